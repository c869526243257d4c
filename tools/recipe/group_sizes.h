/* group_sizes.h - which numbers of weights may share a scale, and what to do where they cannot. */
#ifndef SW_TOOLS_RECIPE_GROUP_SIZES_H
#define SW_TOOLS_RECIPE_GROUP_SIZES_H

#include "formats/dialect/dialect.h"
#include "formats/model/model.h"

/* sw_opt_choice_fn: what --group-size takes; "channel" is the last. */
const char *sw_name_of_group(int i);
/* 0 for "channel". */
int64_t sw_group_of_name(const char *name);

/* The model's linears and where they would be written. */
typedef struct sw_group_question {
    const sw_model *model;
    const sw_dialect *dialect;
    bool with_head;
} sw_group_question;

#define SW_GROUP_ADVICE_BYTES 256
/* What helps where groups of *spec do not divide the inputs of a linear: the sizes that fit every
 * linear of the model, or for formats that fix theirs the schemes that do. Returns `out`. */
char *sw_group_advice(char out[SW_GROUP_ADVICE_BYTES], const sw_group_question *of,
                      const sw_qspec *spec);

#endif
