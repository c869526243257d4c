/* original.h - where an original keeps the values of a linear, read a second time.
 *
 * Most store "<path>.weight" [n_out, k_in]. Some families store it [k_in, n_out]. Some keep all
 * experts of a layer in "<prefix>.experts.gate_up_proj" [experts, k_in, 2 n_out] or [experts,
 * 2 n_out, k_in], gate and up channels in turns or one half each, and "<prefix>.experts.down_proj"
 * [experts, k_in, n_out] or [experts, n_out, k_in]; where channels take turns, with biases
 * [experts, 2 n_out] and [experts, n_out] under the same names with "_bias". Shares nothing with
 * the code that wrote the checkpoint.
 */
#ifndef SW_VERIFY_METRICS_ORIGINAL_H
#define SW_VERIFY_METRICS_ORIGINAL_H

#include "verify/base/subject.h"

/* values [n_out, k_in] of a linear of the original; freed by sw_mem_put. SW_E_FORMAT names the
 * tensor that is missing or of another shape. */
sw_code sw_original_weight(float **out, const sw_subject *original, const sw_subject_linear *l,
                           sw_err *err) SW_MUST_USE;
/* true when the original keeps that linear quantized: its values are what its codes stand for. */
bool sw_original_is_quantized(const sw_subject *original, const char *module_path);
/* true when the linear is there, in a tensor of its own, of all experts, or quantized. */
bool sw_original_holds(const sw_subject *original, const sw_subject_linear *l);

/* Is `t` a tensor of all experts of which `checkpoint` keeps each on its own? Weights must all be
 * quantized; biases must be there to the bit. SW_ORIGINAL_SPOILT: `where` names one that is not. */
typedef enum sw_original_split {
    SW_ORIGINAL_OTHER, SW_ORIGINAL_SPLIT, SW_ORIGINAL_SPOILT
} sw_original_split;
sw_original_split sw_original_is_split(const sw_st_tensor *t, const sw_subject *checkpoint,
                                       char where[300]);
/* Is `name` such a bias of one expert? */
bool sw_original_is_split_bias(const char *name, const sw_subject *original);

#endif
