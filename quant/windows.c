/* windows.c - see windows.h. */
#include "quant/windows.h"

#include <stdbool.h>
#include <string.h>

#include "formats/base/size.h"

#define HELD_EVERY 8

static bool is_held(int64_t seq, int64_t n_seqs)
{
    if (n_seqs < HELD_EVERY) return n_seqs > 1 && seq == n_seqs - 1;
    return seq % HELD_EVERY == HELD_EVERY - 1;
}

/* At most `cap` of the windows of a part, evenly spread. */
static void pick(uint8_t *parts, sw_block_probe_part part, int64_t n_seqs, int64_t cap)
{
    int64_t n_all = 0, at = 0, n_kept = 0;

    for (int64_t i = 0; i < n_seqs; i++)
        n_all += is_held(i, n_seqs) == (part == SW_BLOCK_PROBE_HELD);
    for (int64_t i = 0; i < n_seqs; i++) {
        if (is_held(i, n_seqs) != (part == SW_BLOCK_PROBE_HELD)) continue;
        if (at * cap / n_all >= n_kept && n_kept < cap) {
            parts[i] |= (uint8_t)(1 << part);
            n_kept++;
        }
        at++;
    }
}

static const int64_t tokens_max[SW_BLOCK_PROBE_PARTS] = {
    [SW_BLOCK_PROBE_SEARCH] = 16384, [SW_BLOCK_PROBE_TRIAL] = 4096, [SW_BLOCK_PROBE_HELD] = 4096};

int64_t sw_block_probe_trial_tokens(int64_t n_seqs, int64_t seq_len)
{
    int64_t cap = sw_max_i64(1, tokens_max[SW_BLOCK_PROBE_TRIAL] / seq_len);

    return seq_len * sw_min_i64(n_seqs, cap);
}

void sw_block_probe_parts(uint8_t *parts, int64_t n_seqs, int64_t seq_len)
{
    memset(parts, 0, (size_t)n_seqs);
    for (int part = 0; part < SW_BLOCK_PROBE_PARTS; part++)
        pick(parts, (sw_block_probe_part)part, n_seqs, sw_max_i64(1, tokens_max[part] / seq_len));
}

int64_t sw_kl_probe_windows(int64_t seq_len)
{
    return sw_max_i64(1, SW_KL_PROBE_TOKENS / sw_min_i64(seq_len, SW_KL_PROBE_SEQ_TOKENS));
}
