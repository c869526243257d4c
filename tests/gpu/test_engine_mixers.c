/* test_engine_mixers.c - recurrent mixers on the device against the CPU's, with random inputs:
 * whole sequences, the same in uneven pieces and token by token, and a second text over what the
 * first has left behind. Exit 77 without a GPU.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "formats/model/mixer.h"
#include "kernels/cuda/ops/mixers/mixers.h"
#include "kernels/engine/mixers/gated_delta.h"
#include "kernels/engine/mixers/gated_norm.h"
#include "kernels/engine/mixers/short_conv.h"
#include "kernels/engine/mixers/ssd.h"
#include "tests/gpu/support/device_case.h"
#include "tests/support/toys/open_model.h"
#include "tests/support/toys/random.h"

/* Relative L2: what comes out is rounded to BF16 once, or twice where several blocks of threads
 * make what a norm is taken of; its sums then run in another order for one token than for many. */
#define FAR 5e-3
#define FAR_IN_PIECES 1e-3
/* By chunks the operands of products are BF16 too. */
#define FAR_IN_CHUNKS 6e-3

static sw_device *gpu;
static sw_launch how;

typedef struct mixer_case {
    const char *name;
    int64_t n_seqs, seq_len, n_heads, n_groups, d_k, d_v;
    int n_taps;
    bool is_ssd, is_by_channel, is_grouped, has_bias;
    int64_t group;     /* of the norm; 0: none */
    bool gates_first;
    double scale;      /* on keys, values, steps and gates */
    int n_sms;         /* as if of the device: few make blocks with more columns */
} mixer_case;

static const mixer_case cases[] = {
    {"delta", 3, 37, 4, 2, 16, 32, 4, false, false, false, false, 32, false, 1, 1},
    {"delta by head of keys", 2, 50, 6, 2, 128, 128, 4, false, false, true, false, 128, false, 1,
     1},
    {"the same in tiles", 2, 50, 6, 2, 128, 128, 4, false, false, true, false, 128, false, 1, 132},
    {"delta of odd sizes", 2, 21, 3, 3, 5, 7, 2, false, false, false, false, 7, false, 1, 132},
    {"wide delta", 1, 33, 2, 1, 250, 200, 3, false, false, false, true, 200, false, 1, 132},
    {"delta by channel", 2, 45, 4, 4, 128, 128, 4, false, true, false, false, 128, false, 1, 1},
    {"delta by channel in tiles", 1, 19, 2, 2, 40, 72, 5, false, true, false, false, 72, false, 1,
     132},
    {"Mamba-2, one norm", 2, 40, 8, 2, 16, 32, 4, true, false, false, true, 256, true, 1, 132},
    {"Mamba-2, norms by group", 3, 35, 6, 3, 128, 64, 4, true, false, false, true, 128, true, 0.5,
     132},
    {"Mamba-2, norm first", 1, 70, 5, 1, 64, 48, 4, true, false, false, false, 240, false, 1.25, 1},
    {"Mamba-2 without a norm", 2, 18, 4, 2, 200, 128, 4, true, false, false, true, 0, true, 1, 1},
    {"delta in chunks", 2, 200, 6, 2, 128, 128, 4, false, false, true, true, 128, false, 1, 1},
    {"the same on more processors", 2, 200, 6, 2, 128, 128, 4, false, false, true, true, 128, false,
     1, 132},
    {"long delta", 1, 2300, 2, 1, 16, 32, 4, false, false, false, true, 32, false, 1, 132},
    {"many deltas", 40, 67, 2, 2, 40, 32, 4, false, false, false, true, 32, false, 1, 132},
    {"delta in chunks of odd sizes", 2, 130, 3, 3, 5, 7, 2, false, false, false, false, 7, false, 1,
     132},
    {"wide delta in chunks", 1, 150, 2, 1, 250, 200, 3, false, false, false, true, 200, false, 1,
     132},
    {"Mamba-2 in chunks", 3, 135, 6, 3, 128, 64, 4, true, false, false, true, 128, true, 0.5, 132},
    {"wide Mamba-2 in chunks", 2, 100, 24, 1, 256, 128, 4, true, false, false, true, 0, true, 1,
     132},
    {"delta by channel in chunks", 2, 200, 3, 3, 128, 128, 4, false, true, false, true, 128, false,
     1, 132},
    {"delta by channel of odd sizes", 3, 130, 2, 2, 40, 72, 5, false, true, false, false,
     72, false, 1, 132},
    {"long delta by channel", 1, 2300, 2, 2, 128, 32, 4, false, true, false, true, 32, false, 1, 1},
    {"long Mamba-2, norm first", 2, 1200, 5, 1, 64, 48, 4, true, false, false, false, 240, false,
     1.25, 1},
};
#define N_CASES ((int)(sizeof cases / sizeof *cases))

enum { SEQS_MAX = 40 };
/* How a sequence is cut into calls; 0 ends a row, the last number goes on. */
static const int64_t cuts[][6] = {
#ifndef SW_CHECKED /* thousands of launches, which are other tests' too */
    {1, 0}, {2, 1, 7, 3, 8, 0}, {16, 1, 2, 0},
#endif
    {64, 1, 2, 50, 0}, {2, 1, 96, 3, 1000, 0}};
#define N_CUTS ((int)(sizeof cuts / sizeof *cuts))

/* One case: rows as the device gets them, and where in them what lies. */
typedef struct mixer_data {
    const mixer_case *c;
    int64_t rows, keys, width, conv, heads, n_decays, row; /* heads: that share one of keys */
    float *values;                  /* [rows, row] */
    sw_bf16 *d_values;
    float *taps, *bias, *a_log, *dt_bias, *d, *norm;
    sw_walk_args args;
    int64_t state_floats;
} mixer_data;

/* Sections of a row for the CPU. On the device a grouped row holds them by head of keys. */
enum { Q, K, V, Z, STEP, DECAY, N_SECTIONS };

static void section_sizes(int64_t size[N_SECTIONS], const mixer_data *m)
{
    const int64_t by_group[] = {m->c->d_k, m->c->d_k, m->heads * m->c->d_v, m->heads * m->c->d_v,
                                m->heads, m->c->is_ssd ? 0 : m->n_decays / m->c->n_groups};

    memcpy(size, by_group, sizeof by_group);
}

/* Column of channel `at` of a section, as the device has it or as the CPU does. */
static int64_t column_of(const mixer_data *m, int section, int64_t at, bool is_grouped)
{
    int64_t size[N_SECTIONS], before = 0, group = 0;

    section_sizes(size, m);
    for (int i = 0; i < N_SECTIONS; i++) group += size[i];
    for (int i = 0; i < section; i++) before += size[i] * (is_grouped ? 1 : m->c->n_groups);
    if (!is_grouped) return before + at;
    return at / size[section] * group + before + at % size[section];
}

static sw_mixer_columns columns(const mixer_data *m, int section, double scale)
{
    const int64_t first = column_of(m, section, 0, m->c->is_grouped);
    int64_t size[N_SECTIONS];

    section_sizes(size, m);
    return (sw_mixer_columns){
        .rows = {m->d_values + first, m->row}, .run = size[section] ? size[section] : 1,
        .run_stride = size[section] ? column_of(m, section, size[section], m->c->is_grouped) - first
                                    : 1,
        .scale = (float)scale};
}

static float *random_floats(int64_t n, double center, double size, uint64_t seed)
{
    float *x = malloc((size_t)(n + 1) * sizeof *x);
    test_rng rng = {seed};

    for (int64_t i = 0; i < n; i++) x[i] = (float)(center + size * test_gauss(&rng));
    return x;
}

static const float *on_device(const float *x, int64_t n) { return device_copy(gpu, x, 4 * n + 4); }

static void set_args(mixer_data *m)
{
    const mixer_case *c = m->c;
    const double scale = c->scale;
    const float *d_taps = on_device(m->taps, c->n_taps * m->conv);
    const float *d_bias = c->has_bias ? on_device(m->bias, m->conv) : NULL;
    sw_walk_args *a = &m->args;
    const int64_t at[] = {0, m->keys, 2 * m->keys}, n[] = {m->keys, m->keys, m->width};

    *a = (sw_walk_args){.conv = {.n_parts = 3, .n_taps = c->n_taps, .has_silu = true,
                                 .width = m->conv, .n_seqs = c->n_seqs, .seq_len = c->seq_len},
                        .step = columns(m, STEP, scale), .decay = columns(m, DECAY, 1),
                        .a_log = on_device(m->a_log, c->n_heads),
                        .dt_bias = on_device(m->dt_bias, m->n_decays), .dt_min = 0.05f,
                        .dt_max = 1.5f, .is_by_channel = c->is_by_channel,
                        .gate = {.z = columns(m, Z, scale), .group = c->group,
                                 .w_width = c->is_ssd ? m->width : c->d_v, .eps = 1e-5f,
                                 .is_sigmoid = c->is_by_channel, .gates_first = c->gates_first},
                        .n_heads = (int)c->n_heads, .n_groups = (int)c->n_groups,
                        .d_k = (int)c->d_k, .d_v = (int)c->d_v, .n_sms = c->n_sms};
    for (int i = 0; i < 3; i++)
        a->conv.part[i] = (sw_conv_part){.x = columns(m, i, i ? scale : 1), .n = n[i],
                                         .taps = d_taps + at[i],
                                         .bias = d_bias ? d_bias + at[i] : NULL};
    if (c->is_ssd) a->d = on_device(m->d, c->n_heads);
    if (c->group) a->gate.w = on_device(m->norm, a->gate.w_width);
}

static void mixer_new(mixer_data *m, const mixer_case *c)
{
    void *d = NULL;

    memset(m, 0, sizeof *m);
    m->c = c;
    m->rows = c->n_seqs * c->seq_len;
    m->keys = c->n_groups * c->d_k;
    m->width = c->n_heads * c->d_v;
    m->conv = 2 * m->keys + m->width;
    m->heads = c->n_heads / c->n_groups;
    m->n_decays = c->n_heads * (c->is_by_channel ? c->d_k : 1);
    m->row = m->conv + m->width + c->n_heads + (c->is_ssd ? 0 : m->n_decays) + 3;
    m->values = malloc(4 * (size_t)(m->rows * m->row));
    m->d_values = device_random_rows(gpu, m->values, m->rows * m->row, 1.2, 11);
    m->taps = random_floats(c->n_taps * m->conv, 0, 0.5, 12);
    m->bias = random_floats(m->conv, 0, 0.5, 13);
    m->a_log = random_floats(c->n_heads, -1, 0.7, 14);
    m->dt_bias = random_floats(m->n_decays, -0.5, 0.7, 15);
    m->d = random_floats(c->n_heads, 1, 0.5, 16);
    m->norm = random_floats(m->width, 1, 0.3, 17);
    set_args(m);
    MUST(sw_device_take(&d, gpu, m->rows * m->width, 2, "test", err));
    m->args.out = (sw_bf16_rows){d, m->width};
    MUST(sw_device_take(&d, gpu, SW_MIXER_COUNTERS, 4, "test", err));
    MUST(sw_device_fill(gpu, d, 0, 4 * SW_MIXER_COUNTERS, err));
    m->args.counters = d;
    m->args.scratch_bytes =
        c->is_ssd ? sw_cuda_ssd_scratch(&m->args) : sw_cuda_gated_delta_scratch(&m->args);
    MUST(sw_device_take(&d, gpu, m->args.scratch_bytes + 1, 1, "test", err));
    MUST(sw_device_fill(gpu, d, 0xff, m->args.scratch_bytes, err));
    m->args.scratch = d;
}

static double far_in_pieces(const mixer_data *m)
{
    return m->args.scratch_bytes ? FAR_IN_CHUNKS : FAR_IN_PIECES;
}

static void mixer_free(mixer_data *m)
{
    free(m->values), free(m->taps), free(m->bias), free(m->a_log), free(m->dt_bias);
    free(m->d), free(m->norm);
}

/* Rows in the order of the CPU, sections times their factors. */
static float *rows_for_cpu(const mixer_data *m)
{
    const mixer_case *c = m->c;
    const double scale[N_SECTIONS] = {1, c->scale, c->scale, c->scale, c->scale, 1};
    float *x = calloc((size_t)(m->rows * m->row), 4);
    int64_t size[N_SECTIONS];

    section_sizes(size, m);
    for (int64_t t = 0; t < m->rows; t++)
        for (int i = 0; i < N_SECTIONS; i++)
            for (int64_t at = 0; at < size[i] * c->n_groups; at++)
                x[t * m->row + column_of(m, i, at, false)] =
                    m->values[t * m->row + column_of(m, i, at, c->is_grouped)] * (float)scale[i];
    return x;
}

static float *dense(const mixer_data *m, const float *x, int section, int64_t n)
{
    const int64_t from = column_of(m, section, 0, false);
    float *y = malloc(4 * (size_t)(m->rows * n));

    for (int64_t t = 0; t < m->rows; t++) memcpy(y + t * n, x + t * m->row + from, 4 * (size_t)n);
    return y;
}

static void run_delta(const mixer_data *m, float *x, float *out)
{
    const mixer_case *c = m->c;
    float *b = dense(m, x, STEP, c->n_heads), *a = dense(m, x, DECAY, m->n_decays);
    float *scratch = malloc(4 * (size_t)sw_gated_delta_scratch(c->d_k, c->d_v, 2));
    const sw_gated_delta job = {
        .q = x, .k = x + m->keys, .v = x + 2 * m->keys, .q_stride = m->row, .k_stride = m->row,
        .v_stride = m->row, .b = b, .a = a, .a_log = m->a_log, .dt_bias = m->dt_bias,
        .is_by_channel = c->is_by_channel, .out = out, .n_seqs = c->n_seqs, .seq_len = c->seq_len,
        .n_heads = c->n_heads, .n_key_heads = c->n_groups, .d_k = c->d_k, .d_v = c->d_v,
        .vec = sw_vec_best(), .scratch = scratch, .n_threads = 2};

    sw_gated_delta_run(&job);
    free(b), free(a), free(scratch);
}

static void run_ssd(const mixer_data *m, float *x, float *out)
{
    const mixer_case *c = m->c;
    float *scratch = malloc(4 * (size_t)sw_ssd_scratch(c->d_v, c->d_k, 2));
    const sw_ssd job = {
        .x = x + 2 * m->keys, .b = x + m->keys, .c = x, .dt = x + column_of(m, STEP, 0, false),
        .stride = m->row, .a_log = m->a_log, .d = m->d, .dt_bias = m->dt_bias,
        .dt_min = (double)m->args.dt_min, .dt_max = (double)m->args.dt_max, .out = out,
        .n_seqs = c->n_seqs, .seq_len = c->seq_len, .n_heads = c->n_heads,
        .n_groups = c->n_groups, .d_head = c->d_v, .d_state = c->d_k, .vec = sw_vec_best(),
        .scratch = scratch, .n_threads = 2};

    sw_ssd_run(&job);
    free(scratch);
}

static float *expect(const mixer_data *m)
{
    const mixer_case *c = m->c;
    float *x = rows_for_cpu(m), *out = malloc(4 * (size_t)(m->rows * m->width));
    const sw_short_conv conv = {.x = x, .taps = m->taps, .bias = c->has_bias ? m->bias : NULL,
                                .n_seqs = c->n_seqs, .seq_len = c->seq_len, .width = m->conv,
                                .stride = m->row, .n_taps = c->n_taps, .has_silu = true,
                                .vec = sw_vec_best(), .n_threads = 2};
    const sw_gated_norm norm = {.x = out, .z = x + column_of(m, Z, 0, false),
                                .w = c->group ? m->norm : NULL, .n = m->rows, .width = m->width,
                                .z_stride = m->row, .group = c->group ? c->group : m->width,
                                .w_width = m->args.gate.w_width, .eps = 1e-5,
                                .is_sigmoid = c->is_by_channel, .gates_first = c->gates_first,
                                .vec = sw_vec_best(), .n_threads = 2};

    sw_short_conv_run(&conv);
    if (c->is_ssd) run_ssd(m, x, out);
    else run_delta(m, x, out);
    sw_gated_norm_run(&norm);
    free(x);
    return out;
}

static void run_once(const sw_walk_args *a, bool is_ssd)
{
    if (is_ssd) MUST(sw_cuda_ssd(a, how, err));
    else MUST(sw_cuda_gated_delta(a, how, err));
}

static float *run_whole(const mixer_data *m)
{
    MUST(sw_device_fill(gpu, m->args.out.d, 0xff, 2 * m->rows * m->width, err));
    run_once(&m->args, m->c->is_ssd);
    return device_fetch(gpu, m->args.out.d, m->rows * m->width);
}

/* The rows of tokens [t, t + n) of every sequence one behind the other, for a call. */
static void gather(sw_bf16 *to, const sw_bf16 *from, const mixer_data *m, int64_t t, int64_t n,
                   int64_t width, bool back)
{
    const int64_t len = m->c->seq_len;

    for (int64_t s = 0; s < m->c->n_seqs; s++)
        memcpy(to + (back ? s * len + t : s * n) * width,
               from + (back ? s * n : s * len + t) * width, (size_t)(n * width) * 2);
}

static void remember(sw_walk_args *a, const mixer_data *m, float *d_state, const int32_t *d_first)
{
    const int64_t at[] = {0, m->keys, 2 * m->keys};
    const int64_t kept = (m->c->n_taps * m->conv + 3) / 4 * 4;

    for (int i = 0; i < 3; i++) a->conv.part[i].kept = d_state + at[i];
    a->state = d_state + kept;
    a->conv.state_seq = kept + sw_cuda_walk_state(m->c->n_heads, m->c->d_k, m->c->d_v);
    a->conv.first = d_first;
}

/* All sequences in pieces; the state is whatever d_state holds before. */
static float *run_pieces(const mixer_data *m, const int64_t *cut, float *d_state)
{
    const int64_t len = m->c->seq_len, n_values = m->rows * m->row, n_out = m->rows * m->width;
    sw_bf16 *all = malloc(2 * (size_t)n_values), *some = malloc(2 * (size_t)n_values);
    sw_bf16 *out = malloc(2 * (size_t)n_out);
    float *have = malloc(4 * (size_t)n_out);
    void *d_some = device_copy(gpu, all, 2 * n_values);
    void *d_first = device_copy(gpu, out, 4 * SEQS_MAX);
    sw_walk_args a = m->args;
    int64_t n;

    MUST(sw_device_download(gpu, all, m->d_values, 2 * n_values, err));
    remember(&a, m, d_state, d_first);
    for (int i = 0; i < 3; i++)
        a.conv.part[i].x.rows.d = (sw_bf16 *)d_some + (m->args.conv.part[i].x.rows.d - m->d_values);
    a.step.rows.d = (sw_bf16 *)d_some + (m->args.step.rows.d - m->d_values);
    a.decay.rows.d = (sw_bf16 *)d_some + (m->args.decay.rows.d - m->d_values);
    a.gate.z.rows.d = (sw_bf16 *)d_some + (m->args.gate.z.rows.d - m->d_values);
    for (int64_t t = 0; t < len; t += n) {
        int32_t first[SEQS_MAX];

        n = *cut < len - t ? *cut : len - t;
        if (cut[1]) cut++;
        for (int i = 0; i < SEQS_MAX; i++) first[i] = (int32_t)t;
        gather(some, all, m, t, n, m->row, false);
        MUST(sw_device_upload(gpu, d_some, some, 2 * m->c->n_seqs * n * m->row, err));
        MUST(sw_device_upload(gpu, d_first, first, sizeof first, err));
        a.conv.seq_len = n;
        run_once(&a, m->c->is_ssd);
        MUST(sw_device_download(gpu, some, a.out.d, 2 * m->c->n_seqs * n * m->width, err));
        gather(out, some, m, t, n, m->width, true);
    }
    MUST(sw_float_decode_n(have, out, SW_DTYPE_BF16, n_out, err));
    free(all), free(some), free(out);
    return have;
}

static void check_pieces(const mixer_data *m, const float *whole)
{
    const int64_t n = m->rows * m->width;
    void *d_state = NULL;
    sw_walk_args a = m->args;
    int64_t size_bytes;

    remember(&a, m, NULL, NULL);
    size_bytes = a.conv.state_seq * m->c->n_seqs * 4;
    MUST(sw_device_take(&d_state, gpu, size_bytes, 1, "test", err));
    MUST(sw_device_fill(gpu, d_state, 0xff, size_bytes, err));
    for (int i = 0; i < N_CUTS; i++) { /* over nothing numbers, then over what is left of a text */
        float *have = run_pieces(m, cuts[i], d_state);
        const double error = relative_l2(have, whole, n);

        print_message("  in pieces of %lld: %.2e\n", (long long)cuts[i][0], error);
        if (!(error <= far_in_pieces(m))) fail_msg("%s in pieces: %g", m->c->name, error);
        free(have);
    }
}

/* What goes by chunks, walked. */
static void check_walk(const mixer_data *m, const float *whole)
{
    mixer_data walked = *m;
    float *have;
    double error;

    if (!m->args.scratch_bytes) return;
    walked.args.scratch = NULL;
    have = run_whole(&walked);
    error = relative_l2(have, whole, m->rows * m->width);
    print_message("  walked: %.2e\n", error);
    if (!(error <= FAR_IN_CHUNKS)) fail_msg("%s walked: %g", m->c->name, error);
    free(have);
}

static void test_mixer(void **state)
{
    const mixer_case *c = *state;
    mixer_data m;
    float *want, *have, *again;
    double error;

    mixer_new(&m, c);
    want = expect(&m);
    have = run_whole(&m);
    again = run_whole(&m);
    error = relative_l2(have, want, m.rows * m.width);
    print_message("%s: %.2e\n", c->name, error);
    if (!(error <= (m.args.scratch_bytes ? FAR_IN_CHUNKS : FAR)))
        fail_msg("%s: %g", c->name, error);
    assert_memory_equal(have, again, 4 * (size_t)(m.rows * m.width));
    check_walk(&m, have);
    check_pieces(&m, have);
    free(want), free(have), free(again);
    mixer_free(&m);
}

/* ---- a short convolution as a mixer ---- */

enum { SEQS = 3, LEN = 19, WIDTH = 300, ROW = 3 * WIDTH };

static sw_short_conv_args short_conv_args(sw_bf16 *d_rows, sw_bf16 *d_out, const float *d_taps,
                                          int n_taps)
{
    sw_short_conv_args a = {.conv = {.n_parts = 1, .n_taps = n_taps, .width = WIDTH,
                                     .n_seqs = SEQS, .seq_len = LEN},
                            .after = d_rows + WIDTH, .out = {d_out, WIDTH}};

    a.conv.part[0] = (sw_conv_part){.x = {{d_rows + 2 * WIDTH, ROW}, 1, 1, 1}, .before = d_rows,
                                    .taps = d_taps, .n = WIDTH};
    return a;
}

static void check_short_conv(int n_taps)
{
    static float rows[SEQS * LEN * ROW], want[SEQS * LEN * WIDTH], one[SEQS * WIDTH];
    static sw_bf16 raw[SEQS * LEN * ROW], step[SEQS * ROW];
    sw_bf16 *d_rows = device_random_rows(gpu, rows, SEQS * LEN * ROW, 1, 21);
    float *taps = random_floats(n_taps * WIDTH, 0, 0.5, 22), *have;
    void *d_out = device_copy(gpu, raw, SEQS * LEN * WIDTH * 2), *d_step, *d_first, *d_state;
    const float *d_taps = on_device(taps, n_taps * WIDTH);
    sw_short_conv_args a = short_conv_args(d_rows, d_out, d_taps, n_taps);
    const sw_short_conv cpu = {.x = rows + 2 * WIDTH, .before = rows, .after = rows + WIDTH,
                               .taps = taps, .n_seqs = SEQS, .seq_len = LEN, .width = WIDTH,
                               .stride = ROW, .n_taps = n_taps, .vec = sw_vec_best(),
                               .n_threads = 1};

    sw_short_conv_run(&cpu);
    for (int t = 0; t < SEQS * LEN; t++)
        memcpy(want + t * WIDTH, rows + t * ROW + 2 * WIDTH, 4 * WIDTH);
    MUST(sw_cuda_short_conv(&a, how, err));
    have = device_fetch(gpu, d_out, SEQS * LEN * WIDTH);
    print_message("short convolution of %d: %.2e\n", n_taps,
                  relative_l2(have, want, SEQS * LEN * WIDTH));
    assert_true(relative_l2(have, want, SEQS * LEN * WIDTH) < FAR);
    /* the first LEN - 2 at once, then two alone */
    MUST(sw_device_download(gpu, raw, d_rows, sizeof raw, err));
    d_step = device_copy(gpu, raw, sizeof raw);
    d_first = device_copy(gpu, (int32_t[SEQS]){0, 0, 0}, SEQS * 4);
    MUST(sw_device_take(&d_state, gpu, SEQS * n_taps * WIDTH, 4, "test", err));
    MUST(sw_device_fill(gpu, d_state, 0xff, SEQS * n_taps * WIDTH * 4, err));
    a = short_conv_args(d_step, d_out, d_taps, n_taps);
    a.conv.part[0].kept = d_state;
    a.conv.state_seq = n_taps * WIDTH;
    a.conv.first = d_first;
    a.conv.seq_len = LEN - 2;
    for (int s = 0; s < SEQS; s++)
        MUST(sw_device_upload(gpu, (sw_bf16 *)d_step + s * (LEN - 2) * ROW, raw + s * LEN * ROW,
                              (LEN - 2) * ROW * 2, err));
    MUST(sw_cuda_short_conv(&a, how, err));
    a.conv.seq_len = 1;
    for (int t = LEN - 2; t < LEN; t++) {
        for (int s = 0; s < SEQS; s++)
            memcpy(step + s * ROW, raw + (s * LEN + t) * ROW, ROW * 2);
        MUST(sw_device_upload(gpu, d_step, step, sizeof step, err));
        MUST(sw_device_upload(gpu, d_first, (int32_t[SEQS]){t, t, t}, SEQS * 4, err));
        MUST(sw_cuda_short_conv(&a, how, err));
        free(have);
        have = device_fetch(gpu, d_out, SEQS * WIDTH);
        for (int s = 0; s < SEQS; s++)
            memcpy(one + s * WIDTH, want + (s * LEN + t) * WIDTH, 4 * WIDTH);
        assert_true(relative_l2(have, one, SEQS * WIDTH) < FAR);
    }
    free(have), free(taps);
}

static void test_short_conv(void **state)
{
    (void)state;
    check_short_conv(3);
    check_short_conv(7);
    check_short_conv(1);
}

static void test_too_wide(void **state)
{
    const sw_walk_args a = {.d_k = SW_MIXER_KEYS_MAX + 1};
    sw_err err = {0};

    (void)state;
    assert_int_equal(sw_cuda_gated_delta(&a, how, &err), SW_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "257 keys"));
}

/* One argument: the cases whose name it matches. */
int main(int argc, char **argv)
{
    struct CMUnitTest tests[N_CASES + 2] = {cmocka_unit_test(test_short_conv),
                                            cmocka_unit_test(test_too_wide)};
    int failed = device_open(&gpu);

    if (failed) return failed;
    how = device_launch(gpu);
    for (int i = 0; i < N_CASES; i++)
        tests[i + 2] = (struct CMUnitTest){.name = cases[i].name, .test_func = test_mixer,
                                           .initial_state = (void *)(uintptr_t)&cases[i]};
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    failed = cmocka_run_group_tests_name("recurrent mixers on the device", tests, NULL, NULL);
    sw_device_close(gpu);
    return failed;
}
