/* stub_engine.c - gpu_engine.h in a build without CUDA. Nothing can be opened, so the rest is never
 * reached with anything but what says so. */
#include "kernels/engine/gpu_engine.h"

static sw_code absent(sw_err *err)
{
    return SW_FAIL(err, SW_E_CUDA, "this build of swage has no CUDA; build it where nvcc is (make "
                                   "CUDA=1), or use --device cpu");
}

sw_code sw_gpu_engine_new(sw_gpu_engine **out, sw_gpu *gpu, const sw_model *m, int64_t max_tokens,
                          int64_t max_seq, sw_err *err)
{
    (void)out, (void)gpu, (void)m, (void)max_tokens, (void)max_seq;
    return absent(err);
}

void sw_gpu_engine_free(sw_gpu_engine *e) { (void)e; }

sw_code sw_gpu_block_load(sw_gpu_block **out, sw_gpu_engine *e, const sw_block *block, sw_err *err)
{
    (void)out, (void)e, (void)block;
    return absent(err);
}

void sw_gpu_block_free(sw_gpu_block *block) { (void)block; }

sw_code sw_gpu_block_put(sw_gpu_block *block, sw_slot slot, int64_t expert, const float *d_values,
                         sw_err *err)
{
    (void)block, (void)slot, (void)expert, (void)d_values;
    return absent(err);
}

sw_code sw_gpu_engine_block(sw_gpu_engine *e, const sw_gpu_block *block, float *d_x,
                            int64_t n_seqs, int64_t seq_len, const sw_gpu_tap *tap,
                            sw_site stop_at, sw_err *err)
{
    (void)e, (void)block, (void)d_x, (void)n_seqs, (void)seq_len, (void)tap, (void)stop_at;
    return absent(err);
}

sw_code sw_gpu_engine_half(sw_gpu_engine *e, const sw_gpu_block *block, float *d_x, int64_t n_seqs,
                           int64_t seq_len, sw_half half, const sw_gpu_tap *tap, sw_site stop_at,
                           sw_err *err)
{
    (void)e, (void)block, (void)d_x, (void)n_seqs, (void)seq_len, (void)half, (void)tap;
    (void)stop_at;
    return absent(err);
}

sw_code sw_gpu_engine_rest(sw_gpu_engine *e, const sw_gpu_block *block, float *d_x, int64_t n_seqs,
                           int64_t seq_len, sw_half half, sw_site site, const void *d_rows,
                           sw_err *err)
{
    (void)e, (void)block, (void)d_x, (void)n_seqs, (void)seq_len, (void)half, (void)site;
    (void)d_rows;
    return absent(err);
}

int64_t sw_gpu_lm_bytes(const sw_gpu_engine *e, const sw_lm *lm)
{
    (void)e, (void)lm;
    return 0;
}

void sw_gpu_lm_count(sw_gpu_lm_linears *out, const sw_gpu_lm *lm)
{
    (void)lm;
    *out = (sw_gpu_lm_linears){0};
}

sw_code sw_gpu_lm_new(sw_gpu_lm **out, sw_gpu_engine *e, const sw_lm *lm, sw_err *err)
{
    (void)out, (void)e, (void)lm;
    return absent(err);
}

void sw_gpu_lm_free(sw_gpu_lm *lm) { (void)lm; }

sw_code sw_gpu_lm_forward(sw_gpu_lm *lm, const uint32_t *ids, int64_t n_seqs, int64_t seq_len,
                          sw_err *err)
{
    (void)lm, (void)ids, (void)n_seqs, (void)seq_len;
    return absent(err);
}

sw_code sw_gpu_lm_head(sw_gpu_lm *lm, float *logits, int64_t row0, int64_t n, sw_err *err)
{
    (void)lm, (void)logits, (void)row0, (void)n;
    return absent(err);
}

sw_code sw_gpu_session_new(sw_gpu_session **out, sw_gpu_lm *lm, int64_t n_seqs, int64_t capacity,
                           const sw_sampling *sampling, sw_err *err)
{
    (void)out, (void)lm, (void)n_seqs, (void)capacity, (void)sampling;
    return absent(err);
}

void sw_gpu_session_free(sw_gpu_session *s) { (void)s; }

sw_code sw_gpu_session_feed(sw_gpu_session *s, int64_t seq, const uint32_t *ids, int64_t n,
                            sw_err *err)
{
    (void)s, (void)seq, (void)ids, (void)n;
    return absent(err);
}

sw_code sw_gpu_session_step(sw_gpu_session *s, uint32_t *ids, int64_t n_steps, sw_err *err)
{
    (void)s, (void)ids, (void)n_steps;
    return absent(err);
}

sw_code sw_gpu_session_logits(sw_gpu_session *s, float *logits, sw_err *err)
{
    (void)s, (void)logits;
    return absent(err);
}

int64_t sw_gpu_session_room(const sw_gpu_session *s)
{
    (void)s;
    return 0;
}
