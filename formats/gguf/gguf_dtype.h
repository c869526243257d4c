/* gguf_dtype.h - the float types that a checkpoint of the model in a GGUF would have.
 *
 * A GGUF does not say what its model was trained in. Weights of layers that lie in plain floats
 * do. Behind blocks, the norms and biases do, which every converter writes as F32 without loss:
 * all of them are BF16 values of a BF16 model, and F16 values of an F16 one. Where they are neither
 * (a merge, a model in F32), the model counts as BF16, the rule in the field, and those vectors
 * stay F32. Embedding and head do not count: they are often stored in another type than the rest.
 */
#ifndef SW_FORMATS_GGUF_GGUF_DTYPE_H
#define SW_FORMATS_GGUF_GGUF_DTYPE_H

#include "formats/file/gguf.h"
#include "formats/gguf/gguf_names.h"

/* F32, F16 or BF16. Reads all vectors when most weights are in blocks. */
sw_dtype sw_gguf_model_dtype(const sw_gguf *g);
/* Its name in config.json: "bfloat16". */
const char *sw_gguf_dtype_text(sw_dtype dtype);
/* What tensor t is given as: its own float type; of blocks F32; of a vector or a router in F32 the
 * dtype of the model, when every value survives that. */
sw_dtype sw_gguf_dtype_of(const sw_gguf_tensor *t, const sw_gguf_name *name, sw_dtype model);

#endif
