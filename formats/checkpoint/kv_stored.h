/* kv_stored.h - scales of a cache of codes that a checkpoint stores: "<attention>.k_scale" and
 * "<attention>.v_scale" of a layer. Which codes they are for, and whether an output keeps them.
 */
#ifndef SW_FORMATS_CHECKPOINT_KV_STORED_H
#define SW_FORMATS_CHECKPOINT_KV_STORED_H

#include "formats/checkpoint/checkpoint.h"

/* What scales of `ckpt` are for, if it has any: what its config names, else E4M3, which is what
 * engines take them for. */
const sw_num *sw_kv_stored_num(const sw_checkpoint *ckpt);

/* The codes that an output in `target` says its scales are for, when it keeps those of `source`.
 * NULL: a layer that caches has none, or `target` cannot say it. */
const sw_num *sw_kv_kept_num(const sw_checkpoint *source, const sw_dialect *target);

/* One scale of a layer, keys (0) or values (1); NULL: none is stored. */
const sw_st_tensor *sw_kv_stored_scale(const sw_checkpoint *ckpt, int64_t layer, int which);

/* Whether an output in `target`, whose config names `named` or NULL, may copy those of `source`:
 * a reader of it takes them for the codes that they are for. */
bool sw_kv_may_copy(const sw_checkpoint *source, const sw_dialect *target, const sw_num *named);

#endif
