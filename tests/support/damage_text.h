/* damage_text.h - what can happen to the files beside the weights, and to the list of tensors. */
#ifndef SW_TESTS_SUPPORT_DAMAGE_TEXT_H
#define SW_TESTS_SUPPORT_DAMAGE_TEXT_H

#include "formats/base/json.h"
#include "formats/file/safetensors.h"

/* One value of a JSON file replaced; `wants` is what the judge must name. */
typedef struct damage_field {
    const char *name, *file;
    const char *path;  /* keys, with dots between them; the last may be new */
    const char *value; /* JSON; NULL: the file is cut off in the middle */
    const char *needs; /* a path that must be there; NULL: none */
    const char *wants;
} damage_field;

extern const damage_field damage_fields[];
extern const int n_damage_fields;

/* The damaged text, freed by cJSON_free, or NULL where the file has no such field, or has that
 * value already. */
char *damage_field_apply(const damage_field *field, const char *text);
/* Two tokens of the vocabulary trade their ids. Freed by cJSON_free; NULL: there is none. */
char *damage_swap_ids(const char *text);

typedef enum damage_list_kind {
    DAMAGE_FLOATS_BESIDE, DAMAGE_NO_NORM, DAMAGE_NO_CODES, DAMAGE_TWO_SHAPES, DAMAGE_EXTRA,
    DAMAGE_LIST_COUNT
} damage_list_kind;

extern const char *const damage_list_names[DAMAGE_LIST_COUNT];

/* Write `dir`/model.safetensors anew from `st` with its list of tensors damaged; the linear at
 * `path` has a tensor `codes`. false: `st` cannot be damaged so. */
bool damage_list_apply(damage_list_kind kind, const char *dir, const sw_st *st, const char *path,
                       const char *codes);

#endif
