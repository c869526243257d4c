/* cuda_sizes.h - how the CUDA backend cuts its work by the memory that a device has, as pure
 * functions: its steps ask them with what is left of the device, a forecast with what it foresees.
 */
#ifndef SW_QUANT_BACKEND_CUDA_CUDA_SIZES_H
#define SW_QUANT_BACKEND_CUDA_CUDA_SIZES_H

#include "formats/model/model.h"

/* Threads that may solve beside each other where so much is left and an item takes item_bytes. */
int sw_cuda_lanes_in(int64_t left_bytes, int64_t item_bytes);
/* Windows that run through a block at a time, of n_seqs that are here, on a device of cap_bytes. */
int64_t sw_cuda_batch_seqs(const sw_model *model, int64_t chunk_seqs, int64_t seq_len,
                           int64_t n_seqs, int64_t cap_bytes);
/* Whether n_tokens streams are to begin by a table of n_rows tokens in BF16 on the device: where so
 * much is left, and where the rows as floats would be more to send. */
bool sw_cuda_looks_up(int64_t left_bytes, int64_t n_rows, int64_t hidden, int64_t n_tokens);
/* What that takes of the device. */
int64_t sw_cuda_look_up_bytes(int64_t n_rows, int64_t hidden, int64_t n_tokens);
/* Bytes that the sums of experts may take at a time where so much is left. */
int64_t sw_cuda_sums_bytes_in(int64_t left_bytes, const sw_model *model);
/* Rows of an expert's inputs, of k, that are gathered before their products are summed: a chunk of
 * the text, or half of one where sums are so wide that it fills the device. By k alone, since the
 * bytes of sums follow. */
int64_t sw_cuda_expert_rows(int64_t k);
/* Of n_seqs windows whose inputs, of k, take seq_bytes each, how many may be kept where so much is
 * left: all of them or some eighths. */
int64_t sw_cuda_kept_windows(int64_t left_bytes, int64_t n_seqs, int64_t seq_bytes, int64_t k);
/* Whether n_bytes more of experts may lie there while inputs of k are solved for, since so much is
 * left. */
bool sw_cuda_may_stay(int64_t left_bytes, int64_t n_bytes, int64_t k);
/* Are a site's inputs such that they may be kept for moving the streams? */
bool sw_cuda_may_keep(const sw_model *model, int64_t layer, sw_site site);
/* The one linear that reads a site of k inputs, if its outputs go into the residual stream and are
 * no more; else SW_SLOT_COUNT. */
sw_slot sw_cuda_only_slot(const sw_model *model, int64_t layer, sw_site site, int64_t k,
                          int64_t n_out_residual);
/* The one linear that reads a site of k inputs, if it is one whose W D is less to sum than D, the
 * product that makes its rows included; else SW_SLOT_COUNT. */
sw_slot sw_cuda_weighing_slot(const sw_model *model, int64_t layer, sw_site site, int64_t k,
                              int64_t n_out_residual);

#endif
