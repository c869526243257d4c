/* stats_windows.c - the windows of the text that a statistics file holds. See stats.h. */
#include <string.h>

#include "formats/base/size.h"
#include "quant/search/kl_probe.h"
#include "quant/stats/stats.h"

#define IDS "windows.ids"
#define PARTS "windows.parts"
#define TOKENS_MAX (INT64_C(1) << 24) /* far above what is ever put there */

static sw_code put(sw_zpack_writer *w, const char *name, sw_dtype dtype, int64_t n,
                   const void *data, sw_err *err)
{
    return sw_zpack_writer_put(w, name, dtype, 1, &n, data,
                               (size_t)n * (size_t)sw_dtype_bits(dtype) / 8, err);
}

sw_code sw_stats_put_windows(sw_zpack_writer *w, const sw_calib *calib, sw_err *err)
{
    int64_t n_kept = 0, length = calib->seq_len, n_lead;
    uint32_t *ids = NULL;
    uint8_t *parts = NULL;
    sw_code rc;

    if ((rc = SW_MEM_GET(&ids, calib->n_seqs * length, "windows", err)) != SW_OK ||
        (rc = SW_MEM_GET(&parts, calib->n_seqs, "windows", err)) != SW_OK)
        goto done;
    sw_block_probe_parts(parts, calib->n_seqs, length);
    n_lead = sw_min_i64(calib->n_seqs, sw_kl_probe_windows(length));
    for (int64_t i = 0; i < n_lead; i++) parts[i] |= SW_STATS_LEAD;
    for (int64_t i = 0; i < calib->n_seqs; i++) {
        if (!parts[i]) continue;
        parts[n_kept] = parts[i];
        memcpy(ids + n_kept++ * length, calib->ids + i * length, (size_t)length * sizeof *ids);
    }
    rc = put(w, IDS, SW_DTYPE_U32, n_kept * length, ids, err);
    if (rc == SW_OK) rc = put(w, PARTS, SW_DTYPE_U8, n_kept, parts, err);
done:
    sw_mem_put(ids);
    sw_mem_put(parts);
    return rc;
}

void sw_stats_windows_free(sw_stats_windows *windows)
{
    sw_mem_put(windows->ids);
    sw_mem_put(windows->parts);
    memset(windows, 0, sizeof *windows);
}

static bool is_list(const sw_zpack_tensor *t, sw_dtype dtype)
{
    return t && t->dtype == dtype && t->n_dims == 1 && t->shape[0] > 0 && t->shape[0] < TOKENS_MAX;
}

/* Leave those that are for any of `parts`. */
static sw_code keep(sw_stats_windows *w, int parts, int64_t n, int64_t vocab, sw_err *err)
{
    int64_t length = w->calib.seq_len;

    for (int64_t i = 0; i < n * length; i++)
        if (w->ids[i] >= vocab)
            return SW_FAIL(err, SW_E_FORMAT, "statistics \"" IDS "\": token %u, beyond the "
                           "vocabulary of %lld; calibrate again", w->ids[i], (long long)vocab);
    for (int64_t i = 0; i < n; i++) {
        if (!(w->parts[i] & parts)) continue;
        w->parts[w->calib.n_seqs] = w->parts[i];
        memmove(w->ids + w->calib.n_seqs++ * length, w->ids + i * length,
                (size_t)length * sizeof *w->ids);
    }
    w->calib.ids = w->ids;
    if (w->calib.n_seqs) return SW_OK;
    return SW_FAIL(err, SW_E_FORMAT, "statistics \"" PARTS "\": no window for what is asked; "
                   "calibrate again");
}

sw_code sw_stats_windows_read(sw_stats_windows *out, const sw_zpack *z, const sw_model *model,
                              int parts, const char *who, sw_err *err)
{
    const sw_zpack_tensor *ids = sw_zpack_find(z, IDS), *of = sw_zpack_find(z, PARTS);
    sw_stats_windows w = {.ids = NULL};
    sw_code rc;

    if (!ids && !of)
        return SW_FAIL(err, SW_E_USAGE, "%s tries candidates on calibration text, which these "
                       "statistics were to leave out: calibrate without --no-text, or give "
                       "--calib", who);
    if (!is_list(ids, SW_DTYPE_U32) || !is_list(of, SW_DTYPE_U8) || ids->shape[0] % of->shape[0])
        return SW_FAIL(err, SW_E_FORMAT, "statistics \"" IDS "\", \"" PARTS "\": not whole "
                       "windows and what each is for; calibrate again");
    w.calib.seq_len = ids->shape[0] / of->shape[0];
    if ((rc = SW_MEM_GET(&w.ids, ids->shape[0], "windows", err)) != SW_OK ||
        (rc = SW_MEM_GET(&w.parts, of->shape[0], "windows", err)) != SW_OK ||
        (rc = sw_zpack_load(w.ids, z, ids, err)) != SW_OK ||
        (rc = sw_zpack_load(w.parts, z, of, err)) != SW_OK ||
        (rc = keep(&w, parts, of->shape[0], model->vocab, err)) != SW_OK)
        sw_stats_windows_free(&w);
    else
        *out = w;
    return rc;
}
