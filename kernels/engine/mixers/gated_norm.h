/* gated_norm.h - what a recurrent mixer's output passes before its last linear: a norm and a gate.
 *
 *   gate after norm:   x = norm(x) * act(z)         Gated DeltaNet; Kimi Linear, act sigmoid
 *   gate before norm:  x = norm(x * act(z))         Mamba-2
 *   no norm:           x = x * act(z)
 *   norm(y) = y / sqrt(mean(y^2) + eps) * w, the mean over runs of `group` channels
 *
 * A w of `group` elements serves all runs alike, one of `width` has an element per channel. Dao and
 * Gu, Transformers are SSMs (2024), section 7.1 (the norm) and section 8.1 (its groups); Yang,
 * Kautz and Hatamizadeh, Gated Delta Networks (2024), section 3.4.
 */
#ifndef SW_KERNELS_ENGINE_MIXERS_GATED_NORM_H
#define SW_KERNELS_ENGINE_MIXERS_GATED_NORM_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/engine/vec/vec.h"

typedef struct sw_gated_norm {
    float *x;       /* [n, width], replaced by the output */
    float *z;       /* [n, width], rows z_stride apart; destroyed */
    const float *w; /* [w_width]; NULL: no norm */
    int64_t n, width, z_stride, group, w_width; /* w_width is `group` or `width` */
    double eps;
    bool is_sigmoid; /* act: sigmoid instead of SiLU */
    bool gates_first;
    const sw_vec *vec;
    int n_threads;
} sw_gated_norm;

/* In float32, row by row; the same bytes for any number of threads. Cannot fail. */
void sw_gated_norm_run(const sw_gated_norm *job);

#endif
