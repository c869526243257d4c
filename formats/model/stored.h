/* stored.h - where a dense checkpoint keeps the values of a linear.
 *
 * Everything else in the program thinks of a linear as rows [n_out, k_in]. Most checkpoints store
 * just that. Some store the transpose, and some one tensor for all experts of a layer, with rows or
 * with columns of inputs, gate and up channels in turns or one half each. Here all become three
 * numbers: the element of channel n and input k lies at
 * first + n * row_step + k * col_step.
 *
 * A fused expert tensor is written back as one module per expert ("...mlp.experts.5.gate_proj"),
 * with a bias of its own where there is one: that is how the loaders of quantized checkpoints
 * name the experts of such models, since their kernels want gate and up apart.
 */
#ifndef SW_FORMATS_MODEL_STORED_H
#define SW_FORMATS_MODEL_STORED_H

#include "formats/model/model.h"

typedef struct sw_stored {
    const sw_st_tensor *tensor;        /* borrowed */
    int64_t n_out, k_in;               /* k_in is 1 for a bias */
    int64_t first, row_step, col_step; /* in elements */
} sw_stored;

/* The tensor `name` with this shape. SW_E_FORMAT names it when it is missing, shaped otherwise, or
 * not F32, F16 or BF16. */
sw_code sw_stored_tensor(const sw_st_tensor **out, const sw_st *st, const char *name,
                         int32_t n_dims, const int64_t *shape, sw_err *err) SW_MUST_USE;
/* The weight, or the bias, of a linear; an expert's own tensor counts before a fused one. */
sw_code sw_stored_weight(sw_stored *out, const sw_model *m, const sw_st *st, int64_t layer,
                         sw_slot slot, int64_t expert, sw_err *err) SW_MUST_USE;
sw_code sw_stored_bias(sw_stored *out, const sw_model *m, const sw_st *st, int64_t layer,
                       sw_slot slot, int64_t expert, sw_err *err) SW_MUST_USE;
/* true for a linear whose rows, as this family is published, do not lie in the file. */
bool sw_stored_may_copy(const sw_model *m, const sw_linear_ref *ref);
/* true when the rows lie in the file as they are meant. */
bool sw_stored_is_plain(const sw_stored *stored);
/* dst = the rows, dense, in the tensor's dtype. */
void sw_stored_copy(void *dst, const sw_stored *stored);

#endif
