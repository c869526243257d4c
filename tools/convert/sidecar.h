/* sidecar.h - kernel-ready Swage tiles of every linear beside the tensors of another format, in one
 * file, "model.tiles": a safetensors container by another name, so that no loader takes it for more
 * weights. An engine maps it and reads the tiles where they lie (formats/pack/tiles.h).
 */
#ifndef SW_TOOLS_CONVERT_SIDECAR_H
#define SW_TOOLS_CONVERT_SIDECAR_H

#include "formats/checkpoint/checkpoint.h"

#define SW_SIDECAR_NAME "model.tiles"

typedef struct sw_sidecar sw_sidecar;

/* Declare the tiles of all linears in `dir`. SW_E_UNSUPPORTED: one that tiles cannot hold. */
sw_code sw_sidecar_new(sw_sidecar **out, const char *dir, const sw_ckpt_linear *linears,
                       int64_t n_linears, sw_err *err) SW_MUST_USE;
/* Threads may put different linears at a time. */
sw_code sw_sidecar_put(sw_sidecar *s, const char *module_path, const sw_qtensor *q,
                       sw_err *err) SW_MUST_USE;
sw_code sw_sidecar_commit(sw_sidecar *s, sw_err *err) SW_MUST_USE;
void sw_sidecar_free(sw_sidecar *s); /* accepts NULL */

#endif
