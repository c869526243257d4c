/* pickle.h - the tensors that a pickle of PyTorch describes, and nothing else.
 *
 * A pickle is a program that builds objects, and may call any function by name. Here it builds
 * numbers, texts, lists, tuples, dictionaries, storages and tensors; the functions and types it may
 * name are a short table, and any other is refused by name. No code is run, imported or looked up.
 */
#ifndef SW_FORMATS_PICKLE_PICKLE_H
#define SW_FORMATS_PICKLE_PICKLE_H

#include "formats/base/mem.h"
#include "formats/base/view.h"

#define SW_PICKLE_MAX_BYTES ((size_t)64 << 20)

/* A tensor as a view of a storage, which is an entry of its own. */
typedef struct sw_pickle_tensor {
    const char *name; /* its key in the dictionary; UTF-8 */
    const char *storage_key;
    sw_dtype dtype;
    int64_t storage_elems; /* of dtype; what the pickle says */
    int64_t first;         /* element of the storage where it begins */
    int32_t n_dims;
    int64_t shape[SW_DIMS_MAX], strides[SW_DIMS_MAX]; /* in elements, 0 or more */
} sw_pickle_tensor;

/* All tensors of the dictionary that the pickle builds, or of the one inside it under "state_dict",
 * "model" or "module"; other values in it that hold no tensors are passed over. Each lies within
 * its storage. SW_E_UNSUPPORTED: it names something else than tensors are made of. SW_E_FORMAT:
 * not a pickle, or tensors in other places. Everything lives in the arena. */
sw_code sw_pickle_read(sw_pickle_tensor **out, int64_t *n_out, sw_arena *arena, const void *bytes,
                       size_t n_bytes, const char *what, sw_err *err) SW_MUST_USE;

#endif
