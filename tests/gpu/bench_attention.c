/* bench_attention.c - attention on the device: of whole texts by the kernel of any device and by
 * that of Hopper, and of one query a sequence over long caches. Each is compared with a reference
 * in double at drawn places before it is timed, in a graph of many calls. Prints a table; exit 77
 * without a GPU, 1 where a result is wrong. Rates: TFLOP/s of the keys that queries see, two
 * products; of one query TB/s of keys and values. Percent: of 989 TFLOP/s, and of what a long copy
 * of the device moves. Kernels named _e4m3 and _int8 read keys and values that are kept as codes.
 *
 *   bench_attention [prefill|decode [bf16|e4m3|int8]]
 */
#include <cuda_runtime_api.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "formats/num/act.h"
#include "formats/num/half.h"
#include "kernels/cuda/attention/attention_decode.h"
#include "kernels/cuda/attention/attention_wgmma.h"
#include "kernels/engine/engine.h"
#include "tests/gpu/support/device_case.h"
#include "tests/gpu/support/graph_time.h"
#include "tests/support/toys/random.h"

typedef struct shape {
    int64_t n_seqs, seq_len, first;
    int heads, kv_heads, dim, v_dim;
    int64_t window;
    sw_kv_kind kind;
} shape;

static const shape prefills[] = {
    {2, 2048, 0, 32, 8, 128, 128, 0, SW_KV_FLOATS}, /* of a calibration of 2048 tokens a text */
    {16, 2048, 0, 32, 8, 128, 128, 0, SW_KV_FLOATS},
    {1, 4096, 0, 32, 8, 128, 128, 0, SW_KV_FLOATS},
    {8, 4096, 0, 32, 8, 128, 128, 0, SW_KV_FLOATS},
    {1, 32768, 0, 32, 8, 128, 128, 0, SW_KV_FLOATS},
    {1, 512, 7680, 32, 8, 128, 128, 0, SW_KV_FLOATS},
    {1, 512, 7680, 32, 8, 128, 128, 0, SW_KV_E4M3},
    {1, 512, 7680, 32, 8, 128, 128, 0, SW_KV_INT8},
    {1, 2048, 2048, 32, 8, 128, 128, 0, SW_KV_E4M3},
    {1, 2048, 30720, 32, 8, 128, 128, 0, SW_KV_E4M3},
    {1, 2048, 30720, 32, 8, 128, 128, 0, SW_KV_FLOATS},
    {1, 512, 30720, 32, 8, 128, 128, 1024, SW_KV_INT8},
    {1, 8192, 0, 32, 8, 128, 128, 1024, SW_KV_FLOATS},
    {2, 2048, 0, 32, 32, 64, 64, 0, SW_KV_FLOATS},
    {8, 4096, 0, 32, 32, 64, 64, 0, SW_KV_FLOATS},
    {1, 32768, 0, 32, 32, 64, 64, 0, SW_KV_FLOATS},
    {2, 2048, 0, 16, 8, 256, 256, 0, SW_KV_FLOATS},
    {8, 4096, 0, 16, 2, 256, 256, 0, SW_KV_FLOATS},
    {1, 32768, 0, 16, 2, 256, 256, 0, SW_KV_FLOATS},
    {1, 8192, 0, 16, 8, 256, 256, 1024, SW_KV_FLOATS},
    {2, 2048, 0, 16, 16, 192, 128, 0, SW_KV_FLOATS},
    {8, 4096, 0, 16, 16, 192, 128, 0, SW_KV_FLOATS},
};
static const shape decodes[] = {
    {8, 1, 4095, 32, 8, 128, 128, 0, SW_KV_FLOATS},
    {8, 1, 32767, 32, 8, 128, 128, 0, SW_KV_FLOATS},
    {1, 1, 32767, 32, 8, 128, 128, 0, SW_KV_FLOATS},
    {8, 1, 32767, 32, 32, 64, 64, 0, SW_KV_FLOATS},
    {1, 1, 383, 32, 8, 128, 128, 0, SW_KV_FLOATS},   /* what a benchmark of decoding holds */
    {8, 1, 383, 32, 8, 128, 128, 0, SW_KV_FLOATS},
    {64, 1, 383, 32, 8, 128, 128, 0, SW_KV_FLOATS},
    {64, 1, 4095, 32, 8, 128, 128, 0, SW_KV_FLOATS},
    {8, 1, 383, 32, 8, 64, 64, 0, SW_KV_FLOATS},
    {8, 1, 4095, 32, 8, 64, 64, 0, SW_KV_FLOATS},
    {8, 1, 383, 16, 8, 256, 256, 0, SW_KV_FLOATS},
    {8, 1, 4095, 16, 8, 256, 256, 0, SW_KV_FLOATS},
    {1, 1, 383, 32, 8, 128, 128, 0, SW_KV_E4M3},
    {8, 1, 383, 32, 8, 128, 128, 0, SW_KV_E4M3},
    {8, 1, 4095, 32, 8, 64, 64, 0, SW_KV_E4M3},
    {8, 1, 4095, 16, 8, 256, 256, 0, SW_KV_E4M3},
    {8, 1, 4095, 32, 8, 128, 128, 0, SW_KV_E4M3},
    {8, 1, 32767, 32, 8, 128, 128, 0, SW_KV_E4M3},
    {1, 1, 32767, 32, 8, 128, 128, 0, SW_KV_E4M3},
    {64, 1, 383, 32, 8, 128, 128, 0, SW_KV_E4M3},
    {1, 1, 383, 32, 8, 128, 128, 0, SW_KV_INT8},
    {8, 1, 383, 32, 8, 128, 128, 0, SW_KV_INT8},
    {8, 1, 4095, 32, 8, 128, 128, 0, SW_KV_INT8},
    {8, 1, 32767, 32, 8, 128, 128, 0, SW_KV_INT8},
    {1, 1, 32767, 32, 8, 128, 128, 0, SW_KV_INT8},
    {64, 1, 383, 32, 8, 128, 128, 0, SW_KV_INT8},
};
#define PEAK_TFLOPS 989.0
#define ERROR_MAX 5e-3 /* relative L2 of the drawn rows: rounding of weights and of results */
#define SCALE 0.03125f  /* of codes; a power of two, so that BF16 holds what they stand for */
enum { DRAWN_ROWS = 24, REPEATS = 20 };

static const char *const kinds[] = {
    [SW_KV_FLOATS] = "bf16", [SW_KV_E4M3] = "e4m3", [SW_KV_INT8] = "int8"};

static sw_device *gpu;
static sw_launch how;

static int64_t width_of(const shape *s)
{
    return (int64_t)(s->heads + s->kv_heads) * s->dim + (int64_t)s->kv_heads * s->v_dim;
}

/* Rows of q, k and v beside each other, as one product leaves them, of n_tokens; random numbers
 * again and again. On the host too. */
static sw_bf16 *random_rows(sw_bf16 **host, int64_t n_tokens, int64_t width)
{
    const int64_t n = n_tokens * width, n_drawn = ((int64_t)1 << 20) + 8 * 37;
    float *values = malloc(4 * (size_t)n_drawn);
    sw_bf16 *d_drawn = device_random_rows(gpu, values, n_drawn, 1, 3), *all;
    void *d = NULL;

    all = malloc(2 * (size_t)(n + n_drawn));
    MUST(sw_device_download(gpu, all, d_drawn, 2 * n_drawn, err));
    for (int64_t at = n_drawn; at < n; at += n_drawn) memcpy(all + at, all, 2 * (size_t)n_drawn);
    d = device_copy(gpu, all, 2 * n);
    free(values);
    *host = all;
    return d;
}

static double wide(sw_bf16 b)
{
    const uint32_t bits = (uint32_t)b << 16;
    float f;

    memcpy(&f, &bits, 4);
    return f;
}

/* Codes of n elements on the device; on the host their values take the place of what was there. */
static sw_bf16 *keep_codes(sw_bf16 *host, int64_t n, sw_kv_kind kind)
{
    const sw_act act = {.num = sw_kv_num(kind), .scope = SW_ACT_TENSOR};
    uint8_t *codes = malloc((size_t)n), *code_of = malloc(1 << 16);
    sw_bf16 *value_of = malloc(2 << 16);
    void *d;

    for (uint32_t bits = 0; bits < 1 << 16; bits++) {
        float value = (float)wide((sw_bf16)bits);

        code_of[bits] = 0;
        if (!(fabsf(value) < INFINITY)) continue;
        sw_act_quantize(code_of + bits, NULL, &value, 1, 1, 1, &act, SCALE);
        sw_act_round(&value, 1, &value, 1, 1, 1, &act, SCALE);
        value_of[bits] = sw_bf16_encode(value);
    }
    for (int64_t i = 0; i < n; i++) {
        codes[i] = code_of[host[i]];
        host[i] = value_of[host[i]];
    }
    d = device_copy(gpu, codes, n);
    free(codes);
    free(code_of);
    free(value_of);
    return d;
}

/* One query's result in double, into out [v_dim]. */
static void expect(double *out, const shape *s, const sw_bf16 *q, const sw_bf16 *k,
                   const sw_bf16 *v, int64_t stride, int64_t position)
{
    const int64_t begin = s->window && position >= s->window ? position - s->window + 1 : 0;
    double top = -INFINITY, sum = 0;

    memset(out, 0, sizeof *out * (size_t)s->v_dim);
    for (int64_t key = begin; key <= position; key++) {
        double score = 0, shrink, weight;

        for (int i = 0; i < s->dim; i++) score += wide(q[i]) * wide(k[key * stride + i]);
        score /= sqrt(s->dim);
        shrink = score > top ? exp(top - score) : 1;
        top = fmax(top, score);
        weight = exp(score - top);
        sum = sum * shrink + weight;
        for (int i = 0; i < s->v_dim; i++)
            out[i] = out[i] * shrink + weight * wide(v[key * stride + i]);
    }
    for (int i = 0; i < s->v_dim; i++) out[i] /= sum;
}

/* Device and host rows of a shape: q [tokens], k and v [seqs, keys], all with one stride. */
typedef struct bench {
    const shape *s;
    sw_attn_args a;
    sw_bf16 *q, *k, *v; /* on the host */
} bench;

static double relative_error(const bench *b, const sw_bf16 *have)
{
    const shape *s = b->s;
    test_rng rng = {5};
    double want[256], off = 0, all = 0;

    for (int n = 0; n < DRAWN_ROWS; n++) {
        const int64_t seq = (int64_t)(test_uniform(&rng) * (double)s->n_seqs);
        const int64_t row = n ? (int64_t)(test_uniform(&rng) * (double)s->seq_len)
                              : s->seq_len - 1;
        const int head = (int)(test_uniform(&rng) * s->heads);
        const int kv_head = head / (s->heads / s->kv_heads);
        const sw_bf16 *out = have + (seq * s->seq_len + row) * b->a.out.stride + head * s->v_dim;

        expect(want, s, b->q + (seq * s->seq_len + row) * b->a.q.stride + head * s->dim,
               b->k + seq * b->a.k_seq + kv_head * s->dim,
               b->v + seq * b->a.v_seq + kv_head * s->v_dim, b->a.k.stride, s->first + row);
        for (int i = 0; i < s->v_dim; i++) {
            off += (wide(out[i]) - want[i]) * (wide(out[i]) - want[i]);
            all += want[i] * want[i];
        }
    }
    return sqrt(off / all);
}

static bool is_decode(const sw_attn_args *a) { return a->scratch && !a->scratch_bytes; }

static sw_code attend(const sw_attn_args *a, sw_err *err)
{
    if (!is_decode(a)) return sw_cuda_attention(a, NULL, how, err);
    return a->sm ? sw_cuda_attention_decode_copied(a, NULL, how, err)
                 : sw_cuda_attention_decode_any(a, NULL, how, err);
}

static void call_once(void *args, int copy)
{
    (void)copy;
    MUST(attend(args, err));
}

static bench set_up(const shape *s, bool is_one_each)
{
    const int64_t n_keys = s->first + s->seq_len, kv_width = (int64_t)s->kv_heads * s->dim;
    const bool is_one = s->first == 0; /* keys and values lie beside the queries */
    const int64_t stride = is_one ? width_of(s) : kv_width;
    int32_t first[64];
    void *d = NULL;
    bench b = {.s = s};

    b.a = (sw_attn_args){.n_seqs = s->n_seqs, .seq_len = s->seq_len, .capacity = n_keys,
                         .n_heads = s->heads, .n_kv_heads = s->kv_heads, .head_dim = s->dim,
                         .v_head_dim = s->v_dim, .window = s->window,
                         .scale = (float)(1 / sqrt(s->dim)),
                         .n_sms = sw_device_about(gpu)->n_sms};
    b.a.q = (sw_bf16_rows){random_rows(&b.q, s->n_seqs * s->seq_len, width_of(s)), width_of(s)};
    b.a.k = b.a.v = (sw_bf16_rows){b.a.q.d + s->heads * s->dim, stride};
    b.k = b.q + s->heads * s->dim;
    b.v = b.k + kv_width;
    if (is_one) b.a.v.d += kv_width;
    else {
        b.a.k.d = random_rows(&b.k, s->n_seqs * n_keys, kv_width);
        b.a.v.d = random_rows(&b.v, s->n_seqs * n_keys + 1, kv_width) + 8;
        b.v += 8;
        if (s->kind) {
            b.a.k.d = keep_codes(b.k, s->n_seqs * n_keys * kv_width, s->kind);
            b.a.v.d = keep_codes(b.v, s->n_seqs * n_keys * kv_width, s->kind);
            b.a.kv = (sw_kv_form){s->kind, SCALE, SCALE};
        }
    }
    b.a.k_seq = b.a.v_seq = n_keys * stride;
    for (int i = 0; i < 64; i++) first[i] = (int32_t)s->first;
    b.a.first = device_copy(gpu, first, sizeof first);
    MUST(sw_device_take(&d, gpu, s->n_seqs * s->seq_len * s->heads * s->v_dim, 2, "bench", err));
    b.a.out = (sw_bf16_rows){d, (int64_t)s->heads * s->v_dim};
    if (!is_one_each) return b;
    MUST(sw_device_take(&b.a.scratch, gpu, sw_cuda_decode_scratch_bytes(&b.a), 1, "bench", err));
    MUST(sw_device_fill(gpu, b.a.scratch, 0, sw_cuda_decode_scratch_bytes(&b.a), err));
    return b;
}

/* In which codes become BF16. */
static void take_scratch(sw_attn_args *a)
{
    a->scratch_bytes = sw_attention_wide_bytes(a);
    MUST(sw_device_take(&a->scratch, gpu, a->scratch_bytes, 1, "bench", err));
}

/* Keys that all queries of a head see. */
static double pairs_of(const shape *s)
{
    double n = 0;

    for (int64_t i = s->first; i < s->first + s->seq_len; i++)
        n += (double)(s->window && i >= s->window ? s->window : i + 1);
    return n * (double)s->n_seqs;
}

/* Of attention as `b` has it, in the unit of its kind; false where its result is wrong. */
static bool print_one(const bench *b, const char *kernel, double copy_tbs)
{
    const shape *s = b->s;
    const int64_t n_out = s->n_seqs * s->seq_len * b->a.out.stride;
    const double flops = 2 * pairs_of(s) * s->heads * (s->dim + s->v_dim);
    const double n_bytes =
        (s->kind ? 1 : 2) * pairs_of(s) * s->kv_heads * (s->dim + s->v_dim);
    sw_bf16 *have = malloc(2 * (size_t)n_out);
    sw_attn_args args = b->a;
    double error, us, rate;

    MUST(sw_device_fill(gpu, b->a.out.d, 0xff, 2 * n_out, err));
    MUST(attend(&b->a, err));
    MUST(sw_device_download(gpu, have, b->a.out.d, 2 * n_out, err));
    error = relative_error(b, have);
    us = bench_calls_us((cudaStream_t)how.stream, call_once, &args, flops > 2e12 ? 5 : REPEATS);
    rate = (is_decode(&b->a) ? n_bytes : flops) / us / 1e6;
    printf("%d,%d,%d,%d/%d,%d/%d,%d,%s%s%s,%.1f,%.2f,%.1f,%.1e\n", (int)s->n_seqs, (int)s->seq_len,
           (int)s->first, s->heads, s->kv_heads, s->dim, s->v_dim, (int)s->window, kernel,
           s->kind ? "_" : "", s->kind ? kinds[s->kind] : "", us, rate,
           100 * rate / (is_decode(&b->a) ? copy_tbs : PEAK_TFLOPS), error);
    fflush(stdout);
    free(have);
    return error <= ERROR_MAX;
}

/* TB/s read and written by a copy of a GB. */
static double copy_rate(void)
{
    const int64_t n_bytes = (int64_t)1 << 30;
    void *from = NULL, *to = NULL;
    cudaEvent_t begin, end;
    float ms = 0;

    MUST(sw_device_take(&from, gpu, n_bytes, 1, "bench", err));
    MUST(sw_device_take(&to, gpu, n_bytes, 1, "bench", err));
    (void)cudaEventCreate(&begin);
    (void)cudaEventCreate(&end);
    for (int i = -2; i < 8; i++) {
        if (i == 0) (void)cudaEventRecord(begin, how.stream);
        (void)cudaMemcpyAsync(to, from, (size_t)n_bytes, cudaMemcpyDeviceToDevice, how.stream);
    }
    (void)cudaEventRecord(end, how.stream);
    (void)cudaEventSynchronize(end);
    (void)cudaEventElapsedTime(&ms, begin, end);
    return 2e-9 * (double)n_bytes * 8 / (double)ms;
}

/* Of a device opened for it alone, so that its memory is given back. */
static bool run_shape(const shape *s, bool is_one_each)
{
    bool is_right = true;
    sw_err err = {0};
    double copy;
    bench b;

    if (sw_device_open(&gpu, 0, 0, &err) != SW_OK) return false;
    how = device_launch(gpu);
    copy = is_one_each ? copy_rate() : 0;
    b = set_up(s, is_one_each);
    is_right = print_one(&b, is_one_each ? "decode_any" : "any_device", copy);
    b.a.sm = sw_device_about(gpu)->arch;
    if (is_one_each && sw_attention_decode_can_run(&b.a))
        is_right = print_one(&b, "decode_copied", copy) && is_right;
    if (!is_one_each && sw_attention_wide_bytes(&b.a)) take_scratch(&b.a);
    if (!is_one_each && sw_attention_wgmma_can_run(&b.a, NULL))
        is_right = print_one(&b, "wgmma", 0) && is_right;
    free(b.q);
    if (s->first) free(b.k), free(b.v - 8);
    sw_device_close(gpu);
    return is_right;
}

static bool is_asked_for(int argc, char **argv, const char *what, const shape *s)
{
    return (argc < 2 || !strcmp(argv[1], what)) && (argc < 3 || !strcmp(argv[2], kinds[s->kind]));
}

int main(int argc, char **argv)
{
    const int missing = device_missing();
    bool is_right = true;

    if (missing) return missing;
    printf("sequences,queries,after,heads,dim,window,kernel,microseconds,rate,percent,error\n");
    for (size_t i = 0; i < sizeof prefills / sizeof *prefills; i++)
        if (is_asked_for(argc, argv, "prefill", &prefills[i]))
            is_right = run_shape(&prefills[i], false) && is_right;
    for (size_t i = 0; i < sizeof decodes / sizeof *decodes; i++)
        if (is_asked_for(argc, argv, "decode", &decodes[i]))
            is_right = run_shape(&decodes[i], true) && is_right;
    return is_right ? 0 : 1;
}
