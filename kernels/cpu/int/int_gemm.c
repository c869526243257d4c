/* int_gemm.c - integer products: activations into signed codes once, weight codes as they lie.
 *
 *        k ->              A panel is 64 channels x 512 inputs of weight codes in word order
 *   n  [   panel   ]       (32 KiB, first-level cache). It is unpacked once and met by all tokens
 *   |  [   panel   ] ...   of the chunk in groups of as many as there are registers for.
 *   v
 *
 * With one group per channel the sums of all of k are integers, and Y is the reference's to the
 * bit. With groups, each one's integer sum is scaled and added in float, in the order of k.
 * Chunks are (64 channels, TOKENS_PER_ITEM tokens); none depends on the thread count.
 */
#include <math.h>
#include <string.h>

#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "formats/num/act.h"
#include "kernels/cpu/int/int_ops.h"
#include "kernels/cpu/simd/features.h"

#define PANEL_TILES 8
/* With few tokens the weights come from memory, which must not rest for long while they run. */
#define PANEL_TILES_FEW 2
#define FEW_TOKENS 8
#define TOKENS_PER_ITEM 192
/* The longest k whose sums of 255 * 127 fit 32 bits; beyond it panels are scaled one by one. */
#define INT_SUM_K_MAX 65536
#define SUM_K 32 /* inputs per stored sum of activation codes: groups are multiples of it */

typedef struct scratch {
    uint8_t panel[PANEL_TILES * SW_WORDS_PER_TILE * SW_PANEL_WORD_BYTES];
    union {
        int32_t sums[TOKENS_PER_ITEM * SW_TILE_N]; /* one group: integers over all of k */
        float totals[TOKENS_PER_ITEM * SW_TILE_N]; /* groups, each scaled */
    } y;
    int32_t sums[SW_INT_TOKENS_MAX * SW_TILE_N]; /* of one group */
    float scales[SW_TILE_N];
    int32_t zeros[SW_TILE_N];
} scratch;

typedef struct int_job {
    const sw_gemm *p;
    const sw_int_ops *ops;
    int64_t k_pad;
    int8_t *codes;    /* [m, k_pad], word order */
    int32_t *x_sums;  /* [m, k_pad / SUM_K] */
    float *x_scales;  /* [m] */
    scratch *scratch; /* [n_threads] */
} int_job;

/* A scale for one token's codes. NaN when the token cannot be quantized, so that Y says so. */
static float scale_of(const sw_weight *w, float abs_max)
{
    if (w->act.scope == SW_ACT_TENSOR) return isnan(abs_max) ? NAN : w->input_scale;
    return isfinite(abs_max) ? sw_act_scale(&abs_max, 1, &w->act, w->input_scale) : NAN;
}

static void quantize_tokens(void *ctx, int64_t begin, int64_t end, int thread)
{
    const int_job *job = (const int_job *)ctx;
    const sw_weight *w = job->p->w;

    (void)thread;
    for (int64_t m = begin; m < end; m++) {
        const float *x = job->p->x + m * job->p->x_stride;

        job->x_scales[m] = scale_of(w, job->ops->abs_max(x, w->k_in));
        job->ops->encode(job->codes + m * job->k_pad, job->x_sums + m * (job->k_pad / SUM_K), x,
                         w->k_in, isnan(job->x_scales[m]) ? 1.0f : job->x_scales[m]);
    }
}

static bool is_one_group(const sw_weight *w)
{
    return w->tiles->n_groups == 1 && w->k_in <= INT_SUM_K_MAX;
}

/* Sums of the codes of token m over inputs k0..k1. */
static int32_t x_sum(const int_job *job, int64_t m, int64_t k0, int64_t k1)
{
    const int32_t *sums = job->x_sums + m * (job->k_pad / SUM_K);
    int32_t sum = 0;

    for (int64_t i = k0 / SUM_K; i < k1 / SUM_K; i++) sum += sums[i];
    return sum;
}

/* Inputs k0..k1 of the panel that starts at panel_k: integers added to integers. */
static void add_integers(const int_job *job, scratch *s, int64_t m0, int64_t n_tokens, int64_t k0,
                         int64_t n_words)
{
    for (int64_t m = 0; m < n_tokens; m += job->ops->tokens)
        job->ops->dot(s->y.sums + m * SW_TILE_N, s->panel, n_words,
                      job->codes + (m0 + m) * job->k_pad + k0, job->k_pad,
                      (int)sw_min_i64(job->ops->tokens, n_tokens - m), k0 > 0);
}

/* Inputs k..k_end, of one group, out of a panel that starts at k0: scaled and added. */
static void add_scaled(const int_job *job, scratch *s, int64_t m0, int64_t n_tokens, int64_t k0,
                       int64_t k, int64_t k_end)
{
    const uint8_t *panel = s->panel + (k - k0) / 4 * SW_PANEL_WORD_BYTES;

    for (int64_t m = 0; m < n_tokens; m += job->ops->tokens) {
        int n = (int)sw_min_i64(job->ops->tokens, n_tokens - m);
        int32_t x_sums[SW_INT_TOKENS_MAX];

        for (int i = 0; i < n; i++) x_sums[i] = x_sum(job, m0 + m + i, k, k_end);
        job->ops->dot(s->sums, panel, (k_end - k) / 4, job->codes + (m0 + m) * job->k_pad + k,
                      job->k_pad, n, false);
        job->ops->add_group(s->y.totals + m * SW_TILE_N, s->sums, s->scales, s->zeros, x_sums, n,
                            k > 0);
    }
}

static void add_panel(const int_job *job, scratch *s, int64_t n_tile, int64_t m0, int64_t n_tokens,
                      int64_t k0, int64_t k_end)
{
    const sw_tiles *t = job->p->w->tiles;
    int64_t group_elems = t->spec.group_elems ? t->spec.group_elems : job->k_pad;

    if (is_one_group(job->p->w)) {
        add_integers(job, s, m0, n_tokens, k0, (k_end - k0) / 4);
        return;
    }
    for (int64_t k = k0, next; k < k_end; k = next) {
        int64_t group = sw_min_i64(k / group_elems, t->n_groups - 1); /* padding: the last */

        next = sw_min_i64((k / group_elems + 1) * group_elems, k_end);
        job->ops->load_record(s->scales, s->zeros, t, n_tile * t->n_groups + group);
        add_scaled(job, s, m0, n_tokens, k0, k, next);
    }
}

static void put_outputs(const int_job *job, scratch *s, int64_t n_tile, int64_t m0,
                        int64_t n_tokens)
{
    const sw_gemm *p = job->p;
    int64_t n0 = n_tile * SW_TILE_N, n_rows = sw_min_i64(SW_TILE_N, p->w->n_out - n0);
    bool is_one = is_one_group(p->w);

    if (is_one) job->ops->load_record(s->scales, s->zeros, p->w->tiles, n_tile);
    for (int64_t m = 0; m < n_tokens; m++) {
        float y[SW_TILE_N], x_scale = job->x_scales[m0 + m];

        if (is_one)
            job->ops->finish_sums(y, s->y.sums + m * SW_TILE_N, s->scales, s->zeros,
                                  x_sum(job, m0 + m, 0, job->k_pad), x_scale);
        else
            job->ops->finish_totals(y, s->y.totals + m * SW_TILE_N, x_scale);
        memcpy(p->y + (m0 + m) * p->y_stride + n0, y, (size_t)n_rows * sizeof *y);
    }
}

static void run_item(void *ctx, int64_t begin, int64_t end, int thread)
{
    const int_job *job = (const int_job *)ctx;
    const sw_tiles *t = job->p->w->tiles;
    int64_t n_tiles = sw_tiles_n(t->n_out), n_tile = begin % n_tiles;
    int64_t m0 = begin / n_tiles * TOKENS_PER_ITEM;
    int64_t n_tokens = sw_min_i64(TOKENS_PER_ITEM, job->p->m - m0);
    int64_t tile_bytes = sw_tile_bytes(t->container_bits);
    int64_t panel_k = SW_TILE_K * (job->p->m <= FEW_TOKENS ? PANEL_TILES_FEW : PANEL_TILES);
    const uint8_t *row = t->codes + n_tile * sw_tiles_k(t->k_in) * tile_bytes;
    scratch *s = job->scratch + thread;

    (void)end;
    for (int64_t k0 = 0; k0 < job->k_pad; k0 += panel_k) {
        int64_t k_end = sw_min_i64(k0 + panel_k, job->k_pad);

        job->ops->unpack(s->panel, row + k0 / SW_TILE_K * tile_bytes, (k_end - k0) / SW_TILE_K,
                         t->container_bits);
        add_panel(job, s, n_tile, m0, n_tokens, k0, k_end);
    }
    put_outputs(job, s, n_tile, m0, n_tokens);
}

static size_t line_up(size_t n_bytes) { return (n_bytes + 63) & ~(size_t)63; }

typedef struct plan {
    size_t codes_bytes, sums_bytes, scales_bytes;
} plan;

static plan plan_of(const sw_gemm *p)
{
    size_t m = (size_t)p->m, k_pad = (size_t)sw_round_up(p->w->k_in, SW_TILE_K);
    plan sizes = {line_up(m * k_pad), line_up(m * (k_pad / SUM_K) * sizeof(int32_t)),
                  line_up(m * sizeof(float))};

    return sizes;
}

static size_t workspace_bytes(const sw_gemm *p)
{
    plan sizes = plan_of(p);

    return sizes.codes_bytes + sizes.sums_bytes + sizes.scales_bytes +
           (size_t)sw_kernel_threads(p) * line_up(sizeof(scratch));
}

static void run(const sw_gemm *p, void *workspace, const sw_int_ops *ops)
{
    plan sizes = plan_of(p);
    uint8_t *at = (uint8_t *)workspace;
    int_job job = {.p = p, .ops = ops, .k_pad = sw_round_up(p->w->k_in, SW_TILE_K)};
    int64_t n_items = sw_tiles_n(p->w->n_out) * sw_ceil_div(p->m, TOKENS_PER_ITEM);
    int n_threads = sw_kernel_threads(p);

    job.codes = (int8_t *)at;
    job.x_sums = (int32_t *)(void *)(at += sizes.codes_bytes);
    job.x_scales = (float *)(void *)(at += sizes.sums_bytes);
    job.scratch = (scratch *)(void *)(at + sizes.scales_bytes);
    sw_parallel_for(n_threads, p->m, 1, quantize_tokens, &job);
    sw_parallel_for(n_threads, n_items, 1, run_item, &job);
}

static bool fits(const sw_weight *w)
{
    return w->k_in > 0 && w->tiles->spec.group_elems % SUM_K == 0;
}

#define INTEGER(id, isa)                                                                      \
    bool sw_##id##_can_run(const sw_gemm *p) { return sw_cpu_has_##isa() && fits(p->w); }     \
    size_t sw_##id##_workspace_bytes(const sw_gemm *p) { return workspace_bytes(p); }         \
    void sw_##id##_run(const sw_gemm *p, void *workspace) { run(p, workspace, &sw_int_ops_##isa); }

INTEGER(w4a8_any, any)
INTEGER(w8a8_any, any)
#if SW_X86_SIMD
INTEGER(w4a8_vnni, vnni)
INTEGER(w4a8_avx2, avx2)
INTEGER(w8a8_vnni, vnni)
INTEGER(w8a8_avx2, avx2)
#endif
