/* device_sizes.h - device memory that the CUDA engine takes, as functions of the model alone: what
 * a forecast asks without a device. How buffers lie is the engine's own, which asks here too.
 */
#ifndef SW_KERNELS_DEVICE_SIZES_H
#define SW_KERNELS_DEVICE_SIZES_H

#include "formats/model/model.h"

#define SW_DEVICE_ROW_ALIGN 8 /* elements: kernels load 16 bytes at a time */
#define SW_CUBLASLT_WORK_BYTES ((int64_t)32 << 20) /* what the library asks for on Hopper */

/* Buffers that are columns of one: products of joined weights write all of them at once, and what
 * the program splits is split already. */
typedef struct sw_column_group {
    sw_buf whole, parts[3];
    int n_parts;
} sw_column_group;
#define SW_COLUMN_GROUPS 4
extern const sw_column_group sw_column_groups[SW_COLUMN_GROUPS];
bool sw_buf_is_in_group(int buf);
/* Must the whole have a place of its own, because heads that come in groups are moved? */
bool sw_column_group_is_apart(const sw_model *m, sw_buf whole);
/* Elements from row to row of a buffer that is in no group. */
int64_t sw_device_row_stride(int buf, int64_t width);

/* Bytes of an engine for so many tokens a call and positions a sequence, without the workspace that
 * products ask for, and without what models with far keys have besides. */
int64_t sw_device_scratch_bytes(const sw_model *m, int64_t max_tokens, int64_t max_seq);
/* Bytes of a layer's weights in BF16, its experts among them or not. */
int64_t sw_device_layer_bytes(const sw_model *m, int64_t layer, bool with_experts);

#endif
