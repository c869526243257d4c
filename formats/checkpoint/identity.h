/* identity.h - one hash for a model, so that what was measured on it is not used for another. */
#ifndef SW_FORMATS_CHECKPOINT_IDENTITY_H
#define SW_FORMATS_CHECKPOINT_IDENTITY_H

#include "formats/base/hash.h"
#include "formats/checkpoint/checkpoint.h"

/* SHA-256 over config.json, printed in one way, and over name, dtype, shape and SHA-256 of every
 * tensor, in name order. How tensors are spread over files does not matter. */
sw_code sw_checkpoint_identity(char out[SW_SHA256_HEX_BYTES], const sw_checkpoint *checkpoint,
                               sw_err *err) SW_MUST_USE;

#endif
