/* hidden_file.h - what the original made of a text, kept for the next checkpoint to be judged.
 *
 * Judging many checkpoints of one model on one text runs the original each time for the same
 * figures. A file of hidden states after the last block, [tokens, hidden] float32 in batches of
 * windows, spares that half of the work; the head is run again, since logits are vocab / hidden
 * times as large. The file names the model (manifest.h), the token ids and their cut, and serves
 * nothing else. States depend on the processor by the rounding of float sums only.
 */
#ifndef SW_VERIFY_METRICS_HIDDEN_FILE_H
#define SW_VERIFY_METRICS_HIDDEN_FILE_H

#include "formats/base/hash.h"
#include "formats/file/safetensors.h"
#include "formats/io/file.h"
#include "verify/metrics/windows.h"

typedef struct sw_hidden_file {
    sw_st *have;          /* it was there: read from it */
    sw_st_writer *making; /* it was not: put into it, then commit */
    int64_t hidden;
    char path[SW_PATH_BYTES];
} sw_hidden_file;

/* identity: of the model; hidden: its width. SW_E_USAGE: the file is of another model, text or cut.
 * SW_E_FORMAT, SW_E_IO: it cannot be read, or not be made. Closed by sw_hidden_file_close. */
sw_code sw_hidden_file_open(sw_hidden_file *out, const char *path, const char *identity,
                            const sw_windows *windows, int64_t hidden, sw_err *err) SW_MUST_USE;
/* Batch `index` of sw_windows_batch: n_rows states, to or from x [n_rows, hidden]. */
sw_code sw_hidden_file_get(float *x, const sw_hidden_file *f, int64_t index, int64_t n_rows,
                           sw_err *err) SW_MUST_USE;
sw_code sw_hidden_file_put(sw_hidden_file *f, const float *x, int64_t index, int64_t n_rows,
                           sw_err *err) SW_MUST_USE;
/* Publish what was made; nothing to do for a file that was there. */
sw_code sw_hidden_file_commit(sw_hidden_file *f, sw_err *err) SW_MUST_USE;
/* What was not committed is removed. Accepts a zeroed one. */
void sw_hidden_file_close(sw_hidden_file *f);

#endif
