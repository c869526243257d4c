/* damage_parts.h - parts of a model that trade places while every tensor stays well formed: what a
 * converter does that counts experts, halves or factors in another order. */
#ifndef SW_TESTS_SUPPORT_DAMAGE_PARTS_H
#define SW_TESTS_SUPPORT_DAMAGE_PARTS_H

#include "formats/file/safetensors.h"

/* Two names that trade, below one module; or, of a tensor that holds all experts of a layer, the
 * first two experts or the halves of each. */
typedef struct damage_part {
    const char *name;
    const char *a, *b; /* parts of names; b NULL: the tensors whose name holds `a` ... */
    bool is_halves;    /* ... have their halves swapped, else their first two slices */
} damage_part;

extern const damage_part damage_parts[];
extern const int n_damage_parts;

/* Write `dir`/model.safetensors anew from `st` with the parts traded; `module` becomes what the
 * names of all that traded begin with. false: `st` has no such parts, and nothing was written. */
bool damage_part_apply(char module[256], const damage_part *part, const char *dir, const sw_st *st);

#endif
