/* test_engine_ops.c - the engine's device kernels one by one against what the CPU computes.
 * Exit 77 without a GPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "formats/model/model.h"
#include "formats/num/act.h"
#include "kernels/cuda/attention/attention_decode.h"
#include "kernels/cuda/attention/attention_wgmma.h"
#include "kernels/cuda/gemm/column_tiles.h"
#include "kernels/cuda/ops/engine_ops.h"
#include "kernels/device.h"
#include "kernels/engine/attention.h"
#include "kernels/engine/engine.h"
#include "tests/gpu/support/device_case.h"
#include "tests/gpu/support/emulated.h"
#include "tests/support/toys/open_model.h"
#include "tests/support/toys/qtensor_gen.h"
#include "tests/support/toys/random.h"

#define ROUNDING 4e-3 /* relative L2 of one rounding to BF16 and what attention adds to it */

static sw_device *gpu;
static sw_launch how;

/* ---- attention ---- */

typedef struct attn_case {
    int heads, kv_heads, dim, v_dim;
    int64_t n_seqs, seq_len, first, window;
    double cap;
    bool has_sinks, has_slopes;
    int chunk;
    int64_t room;       /* positions of a sequence behind its last key, which hold NaNs */
} attn_case;

/* How one is run. */
typedef struct attn_form {
    bool is_decode;
    sw_kv_kind kind;
    int n_sms, sm;
} attn_form;

static const attn_case prefills[] = {
    {8, 2, 128, 128, 2, 300, 0, 0, 0, false, false, 0, 0},
    {4, 4, 64, 64, 1, 130, 0, 50, 0, false, false, 0, 0},
    {2, 1, 256, 256, 1, 200, 0, 0, 30, false, false, 0, 0},
    {4, 4, 192, 128, 1, 97, 0, 0, 0, false, false, 0, 0},
    {4, 2, 80, 80, 3, 64, 0, 0, 0, true, false, 0, 0},
    {2, 2, 96, 96, 1, 1, 0, 0, 0, false, false, 0, 0},
    {8, 1, 128, 128, 1, 70, 450, 0, 0, false, false, 0, 0},
    {4, 2, 32, 32, 1, 600, 100, 64, 20, true, false, 0, 0},
    {4, 2, 64, 64, 1, 150, 37, 0, 0, false, false, 50, 0},
    {4, 4, 128, 128, 2, 100, 0, 0, 0, false, true, 0, 0},
    {3, 1, 32, 32, 1, 1, 300, 0, 0, false, true, 0, 0},
    {2, 1, 512, 512, 1, 130, 20, 60, 0, false, false, 0, 0},
    {4, 2, 320, 264, 2, 70, 0, 0, 0, false, false, 0, 0},
    /* blocks of 64 to 192 queries and tiles of 128 keys: their edges, and more than one round */
    {4, 4, 128, 128, 2, 128, 0, 0, 0, false, false, 0, 3},
    {8, 2, 128, 128, 2, 385, 0, 0, 0, false, false, 0, 128},
    {8, 1, 128, 128, 3, 129, 127, 0, 0, false, false, 0, 200},
    {4, 4, 128, 128, 1, 1, 0, 0, 0, false, false, 0, 5},
    {8, 1, 128, 128, 2, 1, 511, 0, 0, false, false, 0, 9},
    {8, 8, 128, 128, 4, 640, 0, 0, 0, false, false, 0, 0},
    {4, 2, 128, 128, 1, 200, 62, 0, 0, false, false, 0, 6},
    {4, 1, 128, 128, 2, 500, 77, 128, 0, false, false, 0, 1},
    {4, 2, 128, 128, 1, 400, 0, 129, 0, true, false, 0, 0},
    {4, 2, 128, 128, 1, 300, 200, 1, 0, false, false, 0, 7},
    {4, 2, 128, 128, 1, 700, 0, 0, 0, false, false, 256, 0},
    {8, 1, 64, 64, 3, 577, 63, 0, 0, false, false, 0, 90},
    {8, 2, 64, 64, 2, 600, 0, 127, 0, true, false, 0, 2},
    {16, 4, 64, 64, 6, 192, 192, 0, 0, false, false, 0, 0},
    {4, 4, 112, 40, 2, 260, 5, 0, 0, true, false, 0, 11},
    /* wide heads: results where queries were, tiles of fewer keys */
    {4, 2, 256, 256, 3, 300, 0, 0, 0, false, false, 0, 9},
    {8, 1, 256, 256, 3, 193, 70, 100, 0, true, false, 0, 0},
    {2, 1, 256, 256, 1, 500, 100, 0, 0, false, false, 128, 0},
    {4, 4, 160, 200, 2, 260, 5, 0, 0, false, false, 0, 11},
    {8, 8, 192, 128, 3, 400, 33, 0, 0, true, false, 0, 3},
    {4, 4, 192, 128, 2, 129, 127, 70, 0, false, false, 0, 200},
    /* codes before what is seen are not widened */
    {2, 1, 64, 64, 1, 20, 300, 60, 0, false, false, 0, 3},
    {1, 1, 64, 64, 1, 20, 400, 0, 0, false, false, 100, 0},
    {8, 2, 128, 128, 2, 300, 900, 100, 0, true, false, 0, 70},
};
static const attn_case decodes[] = {
    {8, 2, 128, 128, 3, 1, 299, 0, 0, false, false, 0, 9},
    {4, 4, 64, 64, 1, 1, 1000, 50, 0, false, false, 0, 40},
    {2, 1, 256, 256, 2, 1, 77, 0, 30, false, false, 0, 2},
    {7, 1, 128, 128, 1, 1, 2047, 0, 0, true, false, 0, 0},
    {16, 1, 64, 64, 2, 1, 513, 0, 0, false, false, 0, 0},
    {4, 4, 192, 128, 1, 1, 63, 0, 0, false, false, 0, 0},
    {3, 1, 80, 80, 1, 1, 64, 0, 0, true, false, 0, 16},
    {4, 2, 32, 32, 5, 1, 0, 0, 0, false, false, 0, 0},
    {24, 2, 96, 96, 1, 1, 700, 100, 20, true, false, 0, 0},
    {8, 2, 128, 128, 2, 1, 1300, 0, 0, true, false, 0, 0},
    {8, 2, 64, 64, 2, 1, 1000, 0, 0, false, false, 300, 0},
    {8, 2, 64, 64, 1, 1, 640, 0, 0, false, false, 300, 0},
    {16, 2, 64, 64, 1, 1, 20, 12, 0, true, false, 0, 3},
};
/* Multiprocessors that decode plans for: keys in parts, or few warps that have many of them. */
static const int decode_sms[] = {132, 3, 1};

static const char *const kind_notes[] = {
    [SW_KV_FLOATS] = "", [SW_KV_E4M3] = " of E4M3", [SW_KV_INT8] = " of int8"};

/* Of these there are others that are smaller. */
static bool is_left_out(const attn_case *c)
{
    const int64_t n_scores = c->n_seqs * c->heads * c->seq_len * (c->first + c->seq_len);

    return DEVICE_IS_EMULATED && n_scores * (c->dim + c->v_dim) > ((int64_t)3 << 20);
}

static float *expect_attention(const attn_case *c, const float *q, const float *k, const float *v,
                               const float *sinks, const float *slopes)
{
    float *out = calloc((size_t)(c->n_seqs * c->seq_len * c->heads * c->v_dim), sizeof *out);
    sw_attention a = {.q = q, .k = k, .v = v, .out = out, .n_seqs = c->n_seqs,
                      .seq_len = c->seq_len, .first = c->first, .n_heads = c->heads,
                      .n_kv_heads = c->kv_heads, .head_dim = c->dim, .v_head_dim = c->v_dim,
                      .scale = 1 / sqrt(c->dim), .cap = c->cap, .sinks = sinks,
                      .window = c->window, .chunk = c->chunk, .slopes = slopes,
                      .vec = sw_vec_best(), .n_threads = 4};

    a.scratch = malloc(sw_attention_scratch_bytes(4));
    sw_attention_run(&a);
    free(a.scratch);
    return out;
}

/* Rows of n_keys * width elements a sequence with room behind, on the device. */
static void *device_in_room(const void *d_rows, const attn_case *c, int64_t row_bytes)
{
    const int64_t n_keys = c->first + c->seq_len, seq_bytes = (n_keys + c->room) * row_bytes;
    uint8_t *all = malloc((size_t)(c->n_seqs * seq_bytes));
    void *d;

    memset(all, 0xff, (size_t)(c->n_seqs * seq_bytes)); /* a NaN of BF16 and of E4M3 */
    for (int64_t seq = 0; seq < c->n_seqs; seq++)
        MUST(sw_device_download(gpu, all + seq * seq_bytes,
                                (const uint8_t *)d_rows + seq * n_keys * row_bytes,
                                n_keys * row_bytes, err));
    d = device_copy(gpu, all, c->n_seqs * seq_bytes);
    free(all);
    return d;
}

static sw_code attend(const sw_attn_args *a, const float *d_slopes, bool is_decode, sw_err *err)
{
    if (is_decode && sw_attention_decode_can_run(a))
        return sw_cuda_attention_decode_copied(a, NULL, how, err);
    return is_decode ? sw_cuda_attention_decode(a, NULL, how, err)
                     : sw_cuda_attention(a, d_slopes, how, err);
}

/* Scratch of the kernel that `a` is for, of which nothing is there but what a decode wants. */
static void take_scratch(sw_attn_args *a, bool is_decode)
{
    const int64_t n_bytes =
        is_decode ? sw_cuda_decode_scratch_bytes(a) : sw_attention_wide_bytes(a);
    void *d = NULL;

    if (!n_bytes) return;
    MUST(sw_device_take(&d, gpu, n_bytes, 1, "test", err));
    MUST(sw_device_fill(gpu, d, is_decode ? 0 : 0xff, n_bytes, err));
    a->scratch = d;
    a->scratch_bytes = n_bytes;
}

/* What attention put out, [rows, width], into poisoned rows a little further apart. */
static float *attended(const sw_attn_args *a, const float *d_slopes, bool is_decode)
{
    const int64_t rows = a->n_seqs * a->seq_len, width = (int64_t)a->n_heads * a->v_head_dim;
    float *all, *have = malloc(4 * (size_t)(rows * width));

    MUST(sw_device_fill(gpu, a->out.d, 0xff, rows * a->out.stride * 2, err));
    MUST(attend(a, d_slopes, is_decode, err));
    all = device_fetch(gpu, a->out.d, rows * a->out.stride);
    for (int64_t row = 0; row < rows; row++) {
        memcpy(have + row * width, all + row * a->out.stride, 4 * (size_t)width);
        for (int64_t i = width; i < a->out.stride; i++)
            if (!isnan(all[row * a->out.stride + i])) fail_msg("written behind row %d", (int)row);
    }
    free(all);
    return have;
}

static void check_attention(const attn_case *c, attn_form form)
{
    const int64_t n_keys = c->first + c->seq_len, rows = c->n_seqs * c->seq_len;
    const int64_t n_q = rows * c->heads * c->dim, n_k = c->n_seqs * n_keys * c->kv_heads * c->dim;
    const int64_t n_v = c->n_seqs * n_keys * c->kv_heads * c->v_dim;
    const int64_t n_out = rows * c->heads * c->v_dim, elem_bytes = form.kind ? 1 : 2;
    float *q = malloc(4 * (size_t)n_q), *k = malloc(4 * (size_t)n_k), *v = malloc(4 * (size_t)n_v);
    float sinks[64], slopes[64], *want, *have, *again, *d_slopes = NULL;
    int32_t first[8];
    void *d_out = NULL;
    sw_attn_args a = {.n_seqs = c->n_seqs, .seq_len = c->seq_len, .capacity = n_keys + c->room,
                      .n_heads = c->heads, .n_kv_heads = c->kv_heads, .head_dim = c->dim,
                      .v_head_dim = c->v_dim, .window = c->window, .chunk = c->chunk,
                      .scale = (float)(1 / sqrt(c->dim)), .cap = (float)c->cap,
                      .n_sms = form.n_sms, .sm = form.sm, .kv = {form.kind, 0.0625f, 0.03f}};
    double error;

    for (int h = 0; h < c->heads; h++) {
        sinks[h] = (float)h / 4 - 1;
        slopes[h] = 0.25f / (float)(h + 1);
    }
    if (c->has_slopes) d_slopes = device_copy(gpu, slopes, 4 * c->heads);
    for (int i = 0; i < 8; i++) first[i] = (int32_t)c->first;
    a.q = (sw_bf16_rows){device_random_rows(gpu, q, n_q, 1.5, 1), c->heads * c->dim};
    a.k = (sw_bf16_rows){device_random_rows(gpu, k, n_k, 1.5, 2), c->kv_heads * c->dim};
    a.v = (sw_bf16_rows){device_random_rows(gpu, v, n_v, 1, 3), c->kv_heads * c->v_dim};
    a.k.d = device_cached(gpu, k, n_k, form.kind, a.kv.k_scale);
    a.v.d = device_cached(gpu, v, n_v, form.kind, a.kv.v_scale);
    a.k.d = device_in_room(a.k.d, c, a.k.stride * elem_bytes);
    a.v.d = device_in_room(a.v.d, c, a.v.stride * elem_bytes);
    a.k_seq = a.capacity * a.k.stride;
    a.v_seq = a.capacity * a.v.stride;
    a.first = device_copy(gpu, first, sizeof first);
    if (c->has_sinks) a.sinks = device_copy(gpu, sinks, sizeof sinks);
    a.out.stride = c->heads * c->v_dim + (form.is_decode ? 0 : 16);
    MUST(sw_device_take(&d_out, gpu, rows * a.out.stride, 2, "test", err));
    a.out.d = d_out;
    take_scratch(&a, form.is_decode);
    have = attended(&a, d_slopes, form.is_decode);
    again = attended(&a, d_slopes, form.is_decode);
    want = expect_attention(c, q, k, v, c->has_sinks ? sinks : NULL,
                            c->has_slopes ? slopes : NULL);
    error = relative_l2(have, want, n_out);
    print_message("%s%s%s %d/%d heads of %d, %d, %lld after %lld: %.2e\n",
                  form.is_decode ? "decode" : "prefill", kind_notes[form.kind],
                  !form.is_decode && sw_attention_wgmma_can_run(&a, d_slopes) ? " (wgmma)" : "",
                  c->heads, c->kv_heads, c->dim, c->v_dim, (long long)c->seq_len,
                  (long long)c->first, error);
    if (!(error <= ROUNDING)) fail_msg("error %g", error);
    assert_memory_equal(have, again, (size_t)n_out * 4);
    a.scale *= 1.25f; /* of which one key knows nothing */
    free(again);
    again = attended(&a, d_slopes, form.is_decode);
    assert_true(n_keys == 1 || c->window == 1 || relative_l2(again, want, n_out) > ROUNDING);
    free(q), free(k), free(v), free(want), free(have), free(again);
}

static void test_prefill(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof prefills / sizeof *prefills; i++) {
        if (is_left_out(&prefills[i])) continue;
        for (int kind = SW_KV_FLOATS; kind <= SW_KV_INT8; kind++)
            check_attention(&prefills[i], (attn_form){.kind = (sw_kv_kind)kind, .n_sms = 132});
    }
}

/* By the kernel that this device has of its own, where it has one; as if of few multiprocessors
 * too, which then take one block of queries after the other. */
static void test_prefill_here(void **state)
{
    const int sm = sw_device_about(gpu)->arch;

    (void)state;
    if (DEVICE_IS_EMULATED && sm < 90) {
        print_message("no attention by warpgroups on an emulated device of 8.0\n");
        skip();
    }
    for (size_t i = 0; i < sizeof prefills / sizeof *prefills; i++) {
        if (is_left_out(&prefills[i])) continue;
        for (int kind = SW_KV_FLOATS; kind <= SW_KV_INT8; kind++)
            check_attention(&prefills[i],
                            (attn_form){.kind = (sw_kv_kind)kind, .n_sms = 132, .sm = sm});
        check_attention(&prefills[i], (attn_form){.n_sms = 5, .sm = sm});
    }
}

static void check_decodes(int sm)
{
    for (size_t i = 0; i < 3 * (sizeof decodes / sizeof *decodes); i++)
        for (size_t n = 0; n < sizeof decode_sms / sizeof *decode_sms; n++) {
            if (is_left_out(&decodes[i / 3])) continue;
            check_attention(&decodes[i / 3], (attn_form){.is_decode = true,
                                                         .kind = (sw_kv_kind)(i % 3),
                                                         .n_sms = decode_sms[n], .sm = sm});
        }
}

static void test_decode(void **state)
{
    (void)state;
    check_decodes(0);
}

/* By the kernel that this device has of its own, where it has one. */
static void test_decode_here(void **state)
{
    const int sm = sw_device_about(gpu)->arch;

    (void)state;
    if (sm != 90) {
        print_message("decode by the copy engine is for devices of 9.0\n");
        skip();
    }
    check_decodes(sm);
}

/* Keys and values into a cache at their positions, nothing turned: bit by bit, no other byte. */
static void check_cache(sw_kv_kind kind, bool by_attention, int sm)
{
    enum { SEQS = 3, HEADS = 2, DIM = 80, V_DIM = 48, CAPACITY = 6, FIRST = 4 };
    enum { N_K = SEQS * HEADS * DIM, N_V = SEQS * HEADS * V_DIM };
    const int64_t elem_bytes = kind ? 1 : 2;
    const sw_act codes = {.num = sw_kv_num(kind), .scope = SW_ACT_TENSOR};
    const int32_t first[SEQS] = {FIRST, FIRST, FIRST};
    float q[N_K], k[N_K], v[N_V];
    uint8_t want[2 * N_K], have[2 * CAPACITY * N_K];
    sw_heads_args a = {.n = SEQS, .seq_len = 1, .capacity = CAPACITY, .n_heads = HEADS,
                       .n_kv_heads = HEADS, .head_dim = DIM, .v_head_dim = V_DIM,
                       .kv = {kind, 0.0078125f, 0.03f}};
    sw_attn_args attn = {.n_seqs = SEQS, .seq_len = 1, .capacity = CAPACITY, .n_heads = HEADS,
                         .n_kv_heads = HEADS, .head_dim = DIM, .v_head_dim = V_DIM, .kv = a.kv,
                         .scale = 0.1f, .n_sms = 132, .sm = sm};

    attn.q = (sw_bf16_rows){device_random_rows(gpu, q, N_K, 1, 7), HEADS * DIM};
    a.k = (sw_bf16_rows){device_random_rows(gpu, k, N_K, 2, 8), HEADS * DIM};
    a.v = (sw_bf16_rows){device_random_rows(gpu, v, N_V, 2, 9), HEADS * V_DIM};
    a.first = attn.first = device_copy(gpu, first, sizeof first);
    memset(have, 0xaa, sizeof have);
    a.k_cache = device_copy(gpu, have, CAPACITY * N_K * elem_bytes);
    a.v_cache = device_copy(gpu, have, CAPACITY * N_V * elem_bytes);
    memset(have, 0, sizeof have);
    attn.k = (sw_bf16_rows){a.k_cache, HEADS * DIM};
    attn.v = (sw_bf16_rows){a.v_cache, HEADS * V_DIM};
    attn.k_seq = CAPACITY * HEADS * DIM;
    attn.v_seq = CAPACITY * HEADS * V_DIM;
    attn.out = (sw_bf16_rows){device_copy(gpu, have, 2 * N_V), HEADS * V_DIM};
    MUST(sw_device_take(&attn.scratch, gpu, sw_cuda_decode_scratch_bytes(&attn), 1, "test", err));
    MUST(sw_device_fill(gpu, attn.scratch, 0, sw_cuda_decode_scratch_bytes(&attn), err));
    if (by_attention && sw_attention_decode_can_run(&attn))
        MUST(sw_cuda_attention_decode_copied(&attn, &a, how, err));
    else if (by_attention) MUST(sw_cuda_attention_decode(&attn, &a, how, err));
    else MUST(sw_cuda_heads(&a, how, err));
    for (int is_v = 0; is_v < 2; is_v++) {
        const int64_t n = is_v ? N_V : N_K, seq_bytes = n / SEQS * elem_bytes;
        const float scale = is_v ? a.kv.v_scale : a.kv.k_scale;
        const float *values = is_v ? v : k;

        if (kind) sw_act_quantize(want, NULL, values, n, 1, n, &codes, scale);
        else MUST(sw_float_encode_n(want, SW_DTYPE_BF16, values, n, err));
        MUST(sw_device_download(gpu, have, is_v ? a.v_cache : a.k_cache, CAPACITY * n * elem_bytes,
                                err));
        for (int64_t s = 0; s < SEQS; s++)
            for (int64_t t = 0; t < CAPACITY; t++)
                for (int64_t i = 0; i < seq_bytes; i++) {
                    const int byte = have[(s * CAPACITY + t) * seq_bytes + i];

                    if (byte != (t == FIRST ? want[s * seq_bytes + i] : 0xaa))
                        fail_msg("%s of sequence %d, position %d, byte %d: %02x",
                                 is_v ? "value" : "key", (int)s, (int)t, (int)i, byte);
                }
    }
}

static void test_cache(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) check_cache((sw_kv_kind)(i % 3), i / 3, 0);
    for (int i = 0; i < 3; i++)
        check_cache((sw_kv_kind)i, true, sw_device_about(gpu)->arch);
}

/* ---- tiles and rounding: bit by bit ---- */

/* With `orders` as grouped experts want E2M1. */
static void check_tiles(const sw_qtensor *q, bool orders)
{
    const sw_cuda_device hopper = {90, 132};
    const int64_t n = q->n_out * q->k_in;
    uint8_t *codes = malloc((size_t)sw_tiles_codes_bytes(q->spec.num, q->n_out, q->k_in));
    uint8_t *zeros = malloc((size_t)sw_tiles_zeros_bytes(q->n_out, q->n_groups));
    const int64_t scales_bytes = sw_tiles_scales_bytes(q->spec.scale_dtype, q->n_out, q->n_groups);
    void *scales = malloc((size_t)scales_bytes), *d_out = NULL;
    uint16_t *want = malloc(2 * (size_t)n), *have = malloc(2 * (size_t)n);
    float *values = malloc(4 * (size_t)n);
    sw_tiles t = {.spec = q->spec, .n_out = q->n_out, .k_in = q->k_in, .n_groups = q->n_groups,
                  .container_bits = sw_tiles_container_bits(q->spec.num),
                  .global_scale = q->global_scale};

    MUST(sw_tiles_pack(codes, scales, q->zeros ? zeros : NULL, q, err));
    t.codes = device_copy(gpu, codes, sw_tiles_codes_bytes(q->spec.num, q->n_out, q->k_in));
    t.scales = device_copy(gpu, scales, scales_bytes);
    if (q->zeros) t.zeros = device_copy(gpu, zeros, sw_tiles_zeros_bytes(q->n_out, q->n_groups));
    if (orders) MUST(sw_column_tiles_order_expert(&t, &(sw_act){0}, &hopper, how.stream, err));
    assert_int_equal(t.is_e2m1_spread, orders && q->spec.num == &sw_nums[SW_NUM_E2M1]);
    MUST(sw_device_take(&d_out, gpu, n, 2, "test", err));
    MUST(sw_device_fill(gpu, d_out, 0xff, 2 * n, err));
    MUST(sw_cuda_tiles_decode(d_out, &t, how, err));
    MUST(sw_device_download(gpu, have, d_out, 2 * n, err));
    sw_qtensor_decode(values, q);
    MUST(sw_float_encode_n(want, SW_DTYPE_BF16, values, n, err));
    for (int64_t i = 0; i < n; i++)
        if (have[i] != want[i] && values[i] != 0)
            fail_msg("%s at %d: %04x, want %04x", q->spec.num->name, (int)i, have[i], want[i]);
    free(codes), free(zeros), free(scales), free(want), free(have), free(values);
}

static void test_tiles(void **state)
{
    static const int bits[] = {2, 3, 4, 8};
    sw_qtensor q;

    (void)state;
    for (int i = 0; i < 8; i++) {
        sw_gen_qtensor(&q, bits[i / 2], i % 2, i % 3 ? 64 : 0, i % 2 ? SW_DTYPE_F16 : SW_DTYPE_BF16,
                       200, 192 + 16 * i, SW_GEN_RANDOM, 0, (uint64_t)i);
        check_tiles(&q, false);
        sw_qtensor_free(&q);
    }
    for (int i = 0; i < SW_GEN_FLOATS; i++) {
        sw_gen_float_qtensor(&q, i, 256, 256, (uint64_t)i);
        check_tiles(&q, false), check_tiles(&q, true);
        sw_qtensor_free(&q);
    }
}

/* Rows of `width`, `stride` elements apart, from element `from` on; one of them of zeros. */
typedef struct rounding_shape {
    int width, stride, from;
} rounding_shape;

static void check_rounding(const sw_act *act, float input_scale, const rounding_shape *s)
{
    enum { ROWS = 5, WIDEST = 5120 };
    static float x[ROWS * WIDEST + 8], want[ROWS * WIDEST + 8];
    static uint16_t rounded[ROWS * WIDEST + 8];
    const int n = s->from + ROWS * s->stride;
    sw_bf16 *d_x = device_random_rows(gpu, x, n, 3, 9), *d_out;
    float *have;

    x[s->from] = 3e38f, x[s->from + 1] = 500;
    for (int i = 0; i < s->width; i++) x[s->from + 2 * s->stride + i] = 0;
    MUST(sw_float_encode_n(rounded, SW_DTYPE_BF16, x, n, err));
    MUST(sw_float_decode_n(x, rounded, SW_DTYPE_BF16, n, err));
    MUST(sw_device_upload(gpu, d_x, rounded, 2 * n, err));
    d_out = device_copy(gpu, rounded, 2 * n); /* what is in no row stays */
    MUST(sw_cuda_act_round((sw_bf16_rows){d_out + s->from, s->stride},
                           (sw_bf16_rows){d_x + s->from, s->stride}, ROWS, s->width, act,
                           input_scale, how, err));
    have = device_fetch(gpu, d_out, n);
    memcpy(want, x, (size_t)n * sizeof *want);
    sw_act_round(want + s->from, s->stride, x + s->from, s->stride, ROWS, s->width, act,
                 input_scale);
    MUST(sw_float_encode_n(rounded, SW_DTYPE_BF16, want, n, err));
    MUST(sw_float_decode_n(want, rounded, SW_DTYPE_BF16, n, err));
    for (int i = 0; i < n; i++)
        if (have[i] != want[i])
            fail_msg("%s scope %d of %d: %g at %d, want %g of %g", act->num->name, (int)act->scope,
                     s->width, (double)have[i], i, (double)want[i], (double)x[i]);
    free(have);
}

static void test_rounding(void **state)
{
    const sw_num *int8 = &sw_nums[SW_NUM_INT8], *e4m3 = &sw_nums[SW_NUM_E4M3];
    const sw_num *e2m1 = &sw_nums[SW_NUM_E2M1];
    const struct {
        sw_act act;
        float input_scale;
    } cases[] = {
        {{int8, SW_ACT_TOKEN, 0, SW_DTYPE_F32}, 0},
        {{int8, SW_ACT_TENSOR, 0, SW_DTYPE_F32}, 0.07f},
        {{e4m3, SW_ACT_TOKEN, 0, SW_DTYPE_F32}, 0},
        {{e4m3, SW_ACT_TENSOR, 0, SW_DTYPE_F32}, 0.01f},
        {{e4m3, SW_ACT_GROUP, 128, SW_DTYPE_F32}, 0},
        {{e4m3, SW_ACT_GROUP, 32, SW_DTYPE_F8_E8M0}, 0},
        {{e2m1, SW_ACT_GROUP, 32, SW_DTYPE_F8_E8M0}, 0},
        {{e2m1, SW_ACT_GROUP, 16, SW_DTYPE_F8_E4M3}, 0.01f},
        {{e2m1, SW_ACT_GROUP, 16, SW_DTYPE_F8_E4M3}, 1e-4f}, /* the largest becomes infinite */
        {{int8, SW_ACT_GROUP, 48, SW_DTYPE_F32}, 0},
        {{e4m3, SW_ACT_GROUP, 256, SW_DTYPE_F32}, 0},
    };
    /* whole eights; groups and rows that end within; rows that begin anywhere; more than a block */
    static const rounding_shape shapes[] = {
        {256, 256, 0}, {200, 208, 0}, {201, 203, 1}, {7, 8, 0}, {4608, 5120, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            check_rounding(&cases[i].act, cases[i].input_scale, &shapes[s]);
}

/* ---- sampling ---- */

#define VOCAB 5000
#ifdef SW_CHECKED /* a checker follows every access */
#define DRAWS 10
#else
#define DRAWS 300
#endif

/* The same draws as the CPU's from the same logits; its exponentials are other ones, so that a
 * draw may fall on the other side of a border now and then. */
static void check_pick(double temperature, int64_t top_k, double top_p)
{
    const sw_sampling sampling = {temperature, top_k, top_p, 77};
    float *logits = malloc(4 * VOCAB);
    test_rng rng = {5};
    sw_scratch scratch = {0};
    uint64_t state = 77;
    uint32_t have[DRAWS];
    int32_t bad = 0, zero = 0;
    int n_other = 0;
    sw_pick_args a = {.n_seqs = 1, .vocab = VOCAB, .log_capacity = DRAWS,
                      .temperature = (float)temperature, .top_k = top_k, .top_p = top_p};

    for (int i = 0; i < VOCAB; i++) logits[i] = (float)(3 * test_gauss(&rng));
    a.logits = device_copy(gpu, logits, 4 * VOCAB);
    a.ids = device_copy(gpu, have, 4);
    a.first = device_copy(gpu, &zero, 4);
    a.log = device_copy(gpu, have, sizeof have);
    a.n_logged = device_copy(gpu, &zero, 4);
    a.not_finite = device_copy(gpu, &zero, 4);
    a.state = device_copy(gpu, &state, 8);
    for (int i = 0; i < DRAWS; i++) MUST(sw_cuda_pick(&a, how, err));
    MUST(sw_device_download(gpu, have, a.log, sizeof have, err));
    MUST(sw_device_download(gpu, &bad, a.not_finite, 4, err));
    assert_int_equal(bad, 0);
    MUST(sw_device_download(gpu, &zero, a.first, 4, err));
    assert_int_equal(zero, DRAWS);
    for (int i = 0; i < DRAWS; i++) {
        uint32_t want;

        assert_int_equal(sw_sample(&want, logits, VOCAB, &sampling, &state, &scratch, NULL), SW_OK);
        n_other += have[i] != want;
    }
    print_message("temperature %g, top-k %lld, top-p %g: %d of %d draws differ\n", temperature,
                  (long long)top_k, top_p, n_other, DRAWS);
    assert_true(n_other <= 1);
    logits[VOCAB / 2] = NAN;
    MUST(sw_device_upload(gpu, (void *)(uintptr_t)a.logits, logits, 4 * VOCAB, err));
    MUST(sw_cuda_pick(&a, how, err));
    MUST(sw_device_download(gpu, &bad, a.not_finite, 4, err));
    assert_int_equal(bad, 1);
    sw_scratch_free(&scratch);
    free(logits);
}

static void test_pick(void **state)
{
    (void)state;
    check_pick(0, 0, 1);
    check_pick(1, 0, 1);
    check_pick(0.7, 40, 1);
    check_pick(1.3, 0, 0.9);
    check_pick(1, 100, 0.5);
    check_pick(1, 1, 1);
}

/* ---- memory ---- */

static void test_limits(void **state)
{
    const int64_t cap = sw_device_about(gpu)->cap_bytes;
    sw_err err = {0};
    void *d = NULL;

    (void)state;
    assert_int_equal(sw_device_room(gpu, cap + 1, "too much", &err), SW_E_NOMEM);
    assert_non_null(strstr(err.text, "too much"));
    memset(&err, 0, sizeof err);
    assert_int_equal(sw_device_take(&d, gpu, INT64_MAX, 2, "too much", &err), SW_E_NOMEM);
    memset(&err, 0, sizeof err);
    assert_int_equal(sw_device_open(&gpu, 1000, 0, &err), SW_E_CUDA);
    assert_non_null(strstr(err.text, "cuda:1000"));
}

/* One argument: the tests whose name it matches (* and ? as in a shell). */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits),   cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_rounding), cmocka_unit_test(test_pick),
        cmocka_unit_test(test_decode),   cmocka_unit_test(test_decode_here),
        cmocka_unit_test(test_prefill),  cmocka_unit_test(test_prefill_here),
        cmocka_unit_test(test_cache),
    };
    int failed = device_open(&gpu);

    if (failed) return failed;
    how = device_launch(gpu);
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    failed = cmocka_run_group_tests_name("engine ops", tests, NULL, NULL);
    sw_device_close(gpu);
    return failed;
}
