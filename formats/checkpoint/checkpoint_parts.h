/* checkpoint_parts.h - the stored tensors of one quantized linear. Not for others than the reader
 * and the writer of checkpoints. */
#ifndef SW_FORMATS_CHECKPOINT_CHECKPOINT_PARTS_H
#define SW_FORMATS_CHECKPOINT_CHECKPOINT_PARTS_H

#include "formats/checkpoint/checkpoint.h"

/* In the order that the dialect declares for `spec`, each checked for dtype and shape; NULL for an
 * optional one that the file lacks, and behind the last. SW_E_FORMAT names the offender, also
 * floats of the same linear. */
sw_code sw_checkpoint_parts(const sw_st_tensor *out[SW_DIALECT_TENSORS_MAX],
                            const sw_checkpoint *ckpt, const char *module_path,
                            const sw_qspec *spec, int64_t n_out, int64_t k_in,
                            sw_err *err) SW_MUST_USE;

#endif
