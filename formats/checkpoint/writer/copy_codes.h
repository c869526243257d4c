/* copy_codes.h - one linear of a quantized source into another dialect, window by window
 * (window.h): what is read, decoded, encoded and written at a time stays in the cache.
 */
#ifndef SW_FORMATS_CHECKPOINT_WRITER_COPY_CODES_H
#define SW_FORMATS_CHECKPOINT_WRITER_COPY_CODES_H

#include "formats/checkpoint/checkpoint.h"

typedef enum sw_copy_codes_kind {
    SW_COPY_CODES_READ,    /* a window of a source tensor that does not lie in one piece */
    SW_COPY_CODES_WRITTEN, /* a window of a target tensor */
    SW_COPY_CODES_WHOLE,   /* a target tensor whose windows do not lie in one piece */
    SW_COPY_CODES_KINDS
} sw_copy_codes_kind;

/* Buffers that one linear after the other uses; one per thread. Zero-initialise. */
typedef struct sw_copy_codes_room {
    void *buffers[SW_COPY_CODES_KINDS][SW_DIALECT_TENSORS_MAX];
    uint64_t room_bytes[SW_COPY_CODES_KINDS][SW_DIALECT_TENSORS_MAX];
} sw_copy_codes_room;
void sw_copy_codes_free(sw_copy_codes_room *room);

/* Read the linear at `module_path` of the writer's source, which is quantized, and put it: as if
 * sw_checkpoint_qtensor and sw_ckpt_writer_put were called. *is_done false: nothing is put, since
 * it has to go whole, or something is wrong that these two say of the whole weight. Threads may
 * carry different linears at a time. SW_E_IO, SW_E_NOMEM: not even they would succeed. */
sw_code sw_ckpt_writer_copy_codes(bool *is_done, sw_ckpt_writer *w, const char *module_path,
                                  sw_copy_codes_room *room, sw_err *err) SW_MUST_USE;

#endif
