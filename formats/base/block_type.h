/* block_type.h - the storage types of GGUF tensors: names, numbers and sizes.
 *
 * What the bytes of a block mean is known to formats/num/blocks.h; containers need the sizes
 * alone. Depends on status.h.
 */
#ifndef SW_FORMATS_BASE_BLOCK_TYPE_H
#define SW_FORMATS_BASE_BLOCK_TYPE_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sw_block_type {
#define SW_BLOCK(name, id, elems, bytes, kind) SW_BLOCK_##name,
#include "formats/base/block_type.def"
#undef SW_BLOCK
    SW_BLOCK_TYPE_COUNT
} sw_block_type;

typedef struct sw_block_size {
    const char *name;
    uint32_t id;        /* in the file */
    int32_t elems, bytes;
    uint32_t file_type; /* general.file_type of a file that is mostly this */
} sw_block_size;

extern const sw_block_size sw_block_sizes[SW_BLOCK_TYPE_COUNT];

/* The type with this number. SW_E_UNSUPPORTED names the type when it is known but not read. */
sw_code sw_block_type_by_id(sw_block_type *out, uint32_t id, sw_err *err) SW_MUST_USE;
/* true and *out for the name of a type, in any case ("q4_k", "Q4_K"). */
bool sw_block_type_find(sw_block_type *out, const char *name);

/* Bytes of n elements, which must be whole blocks. */
static inline int64_t sw_block_bytes(sw_block_type type, int64_t n)
{
    return n / sw_block_sizes[type].elems * sw_block_sizes[type].bytes;
}

#ifdef __cplusplus
}
#endif
#endif
