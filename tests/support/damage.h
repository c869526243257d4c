/* damage.h - what can happen to the bytes of a checkpoint: the kinds of damage that a judge must
 * see, as a table. */
#ifndef SW_TESTS_SUPPORT_DAMAGE_H
#define SW_TESTS_SUPPORT_DAMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/view.h"

/* Which tensor of a linear, or which tensor else: CONV and DECAY (A_log, dt_bias) are of mixers
 * with a state, TOWER of what encodes images, MTP of heads for further tokens. */
typedef enum damage_place {
    DAMAGE_CODES, DAMAGE_SCALES, DAMAGE_ZEROS, DAMAGE_GLOBAL, DAMAGE_INDEX, DAMAGE_NORM,
    DAMAGE_EMBED, DAMAGE_ROUTER, DAMAGE_CONV, DAMAGE_DECAY, DAMAGE_TOWER, DAMAGE_MTP,
    DAMAGE_HEADER
} damage_place;

/* The bytes to damage, in the image of a file; `other` is a tensor of the same dtype and size, of
 * another linear (NULL: there is none). */
typedef struct damage_site {
    uint8_t *own, *other;
    size_t n_bytes, offset; /* offset of `own` in the file */
    sw_dtype dtype;
    int bits;               /* of a code; 0 where codes and scales lie together */
    bool is_float;          /* codes are small floats, whose highest bit is the sign */
} damage_site;

typedef struct damage_kind {
    const char *name;
    damage_place place;
    bool needs_other;
    void (*apply)(const damage_site *site);
} damage_kind;

extern const damage_kind damage_kinds[];
extern const int n_damage_kinds;

/* The place that the name of a tensor which is no linear's stands for, in a model of `n_layers`
 * layers; false: none. */
bool damage_place_by_name(damage_place *out, const char *name, int64_t n_layers);
/* The place that a suffix of a quantized linear stands for; false: none, a bias for example. */
bool damage_place_of(damage_place *out, const char *suffix, const sw_cview *view);

#endif
