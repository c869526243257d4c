/* left_parts.h - what of a checkpoint lies outside its decoder: copied as it is, and said so. */
#ifndef SW_TOOLS_RECIPE_LEFT_PARTS_H
#define SW_TOOLS_RECIPE_LEFT_PARTS_H

#include "formats/checkpoint/checkpoint.h"

#define SW_LEFT_PARTS_MAX 32

typedef struct sw_left_part {
    char name[256]; /* "model.visual", "mtp" */
    int64_t n_tensors;
    double n_bytes;
    bool is_extra_head;
} sw_left_part;

typedef struct sw_left_parts {
    sw_left_part part[SW_LEFT_PARTS_MAX]; /* in the file's order; the last takes what is too many */
    int n;
} sw_left_parts;

void sw_left_parts_find(sw_left_parts *out, const sw_checkpoint *ckpt);
/* A line for each, for the plan. */
void sw_left_parts_print(const sw_left_parts *parts);
/* "left": [{"part", "tensors", "bytes"}], unless there are none. SW_E_NOMEM. */
sw_code sw_left_parts_add_json(cJSON *root, const sw_left_parts *parts, sw_err *err) SW_MUST_USE;

/* Files of the model's directory that no output takes along: a line that names them, unless there
 * are none. A directory that cannot be listed any more says nothing. The manifest has them too, in
 * left_behind. */
void sw_left_files_print(const sw_checkpoint *source);

#endif
