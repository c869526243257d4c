/* gguf_config.h - the metadata of a GGUF as config.json, and a model description as metadata.
 *
 * Reading builds the config.json that a directory of the same model would have, so that one reader
 * (model.h) judges both. Writing starts from the description; what a family's loaders fix by
 * themselves (window patterns, attention scales) is checked instead of written, and refused where
 * they would get it wrong.
 */
#ifndef SW_FORMATS_GGUF_GGUF_CONFIG_H
#define SW_FORMATS_GGUF_GGUF_CONFIG_H

#include "formats/file/gguf.h"
#include "formats/gguf/gguf_names.h"
#include "formats/gguf/keys/gguf_keys.h"

#define SW_GGUF_ROPE_TENSOR "rope_freqs.weight" /* divisors of the frequencies, F32 [D / 2] */
#define SW_GGUF_STILL 1e30f /* divisor of a pair that does not turn */
#define SW_GGUF_LONG_TENSOR "rope_factors_long.weight" /* the same of longrope, beyond ... */
#define SW_GGUF_SHORT_TENSOR "rope_factors_short.weight" /* ... and within the trained length */

/* The file's config.json, owned by the caller, and its row. `dtype` is for torch_dtype.
 * SW_E_FORMAT names a key that is missing or senseless; SW_E_UNSUPPORTED an architecture. */
sw_code sw_gguf_config_read(cJSON **out, const sw_gguf_arch **arch, const sw_gguf *g,
                            const char *dtype, sw_err *err) SW_MUST_USE;

/* Every general.* and architecture key but those of types. SW_E_UNSUPPORTED: loaders of this
 * architecture would run the model otherwise than it is; says what. */
sw_code sw_gguf_config_write(sw_gguf_writer *w, const sw_model *m, const sw_gguf_arch *arch,
                             const char *name, sw_err *err) SW_MUST_USE;
/* What loaders multiply cosines and sines by under yarn when no key says more. */
double sw_gguf_yarn_factor(const sw_rope *rope);
/* The tensors that go with it, divisors of frequencies: *n of each, 0 when there are none. */
#define SW_GGUF_ROPE_TENSORS_MAX 2
typedef struct sw_gguf_rope_tensor {
    const char *name;
    float values[SW_ROPE_PAIRS_MAX];
} sw_gguf_rope_tensor;
int sw_gguf_rope_tensors(sw_gguf_rope_tensor out[SW_GGUF_ROPE_TENSORS_MAX], int64_t *n,
                         const sw_model *m);

#endif
