/* kept_states.c - see kept_states.h. */
#include "verify/metrics/kept_states.h"

#include <string.h>

static size_t window_elems(const sw_kept_states *kept)
{
    return (size_t)(kept->length * kept->hidden);
}

static float *states_of(const sw_kept_states *kept, int64_t at)
{
    return (float *)kept->file.data + (size_t)(at - kept->first) * window_elems(kept);
}

sw_code sw_kept_states_begin(sw_kept_states *kept, const sw_windows *w, int64_t first, int64_t end,
                             int64_t hidden, sw_err *err)
{
    const sw_kept_states want = {.dir = kept->dir, .first = first, .n_windows = end - first,
                                 .length = w->length, .hidden = hidden};

    if (kept->file.data && kept->first == first && kept->n_windows == want.n_windows &&
        kept->length == want.length && kept->hidden == hidden)
        return SW_OK;
    sw_kept_states_close(kept);
    *kept = want;
    if (!want.n_windows) return SW_OK; /* there are fewer batches than ranks */
    return sw_spill_open(&kept->file, kept->dir,
                         (size_t)want.n_windows * window_elems(&want) * sizeof(float), err);
}

bool sw_kept_states_get(float *x, const sw_kept_states *kept, int64_t at, int64_t n)
{
    const size_t n_bytes = (size_t)n * window_elems(kept) * sizeof *x;

    if (at + n > kept->first + kept->n_put) return false;
    memcpy(x, states_of(kept, at), n_bytes);
    sw_spill_release(&kept->file, states_of(kept, at), n_bytes);
    return true;
}

void sw_kept_states_put(sw_kept_states *kept, const float *x, int64_t at, int64_t n)
{
    const size_t n_bytes = (size_t)n * window_elems(kept) * sizeof *x;

    memcpy(states_of(kept, at), x, n_bytes);
    sw_spill_release(&kept->file, states_of(kept, at), n_bytes);
    kept->n_put = at + n - kept->first;
}

void sw_kept_states_close(sw_kept_states *kept)
{
    const char *dir = kept->dir;

    sw_spill_close(&kept->file);
    *kept = (sw_kept_states){.dir = dir};
}
