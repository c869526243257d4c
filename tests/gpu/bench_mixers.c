/* bench_mixers.c - recurrent mixers on the device at the sizes of published models: microseconds a
 * launch of whole sequences, and of one token a sequence. Prints a table; exit 77 without a GPU.
 *
 *   bench_mixers
 */
#include <cuda_runtime_api.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/cuda/ops/mixers/mixers.h"
#include "tests/gpu/support/device_case.h"

typedef struct shape {
    const char *name;
    int n_heads, n_groups, d_k, d_v;
    bool is_ssd, is_by_channel;
    int64_t group;
} shape;

static const shape shapes[] = {
    {"Qwen3-Next", 32, 16, 128, 128, false, false, 128},
    {"Kimi Linear", 32, 32, 128, 128, false, true, 128},
    {"Nemotron-H 8B", 128, 8, 128, 64, true, false, 1024},
    {"Falcon-H1 7B", 24, 1, 256, 128, true, false, 0},
};
static const int64_t batches[][2] = {{1, 1}, {32, 1}, {1, 2048}, {8, 2048}};
enum { REPEATS = 20, TOKENS_MAX = 8 * 2048, SEQS_MAX = 32 };

static sw_device *gpu;

/* One text's random rows again and again. */
static sw_bf16 *rows(int64_t width)
{
    const int64_t n = TOKENS_MAX * width, n_drawn = (int64_t)1 << 18;
    float *values = malloc(4 * (size_t)n_drawn);
    const sw_bf16 *d_drawn = device_random_rows(gpu, values, n_drawn, 1, 3);
    sw_bf16 *all = malloc(2 * (size_t)(n + n_drawn)), *d;

    MUST(sw_device_download(gpu, all, d_drawn, 2 * n_drawn, err));
    for (int64_t at = n_drawn; at < n; at += n_drawn) memcpy(all + at, all, 2 * (size_t)n_drawn);
    d = device_copy(gpu, all, 2 * n);
    free(all), free(values);
    return d;
}

static const float *vector(int64_t n, float value)
{
    float *values = malloc(4 * (size_t)n);
    const float *d;

    for (int64_t i = 0; i < n; i++) values[i] = value;
    d = device_copy(gpu, values, 4 * n);
    free(values);
    return d;
}

static sw_mixer_columns plain(sw_bf16 *d, int64_t stride)
{
    return (sw_mixer_columns){{d, stride}, 1, 1, 1};
}

static sw_walk_args walk_of(const shape *s)
{
    const int64_t keys = s->n_groups * s->d_k, width = s->n_heads * s->d_v;
    const int64_t conv = 2 * keys + width, n_decays = s->n_heads * (s->is_by_channel ? s->d_k : 1);
    sw_bf16 *mix = rows(conv);
    const float *taps = vector(4 * conv, 0.3f);
    const int64_t at[] = {0, keys, 2 * keys};
    void *d_state = NULL, *d_out = NULL, *d_counters = NULL;
    sw_walk_args a = {.conv = {.n_parts = 3, .n_taps = 4, .has_silu = true, .width = conv},
                      .step = plain(rows(s->n_heads), s->n_heads),
                      .decay = plain(rows(n_decays), n_decays),
                      .a_log = vector(s->n_heads, -1), .dt_bias = vector(n_decays, 0),
                      .d = s->is_ssd ? vector(s->n_heads, 1) : NULL, .dt_max = 1e30f,
                      .is_by_channel = s->is_by_channel,
                      .gate = {.z = plain(rows(width), width), .group = s->group,
                               .w = s->group ? vector(width, 1) : NULL,
                               .w_width = s->is_ssd ? width : s->d_v, .eps = 1e-5f},
                      .n_heads = s->n_heads, .n_groups = s->n_groups, .d_k = s->d_k,
                      .d_v = s->d_v, .n_sms = 132};

    a.conv.state_seq = 4 * conv + sw_cuda_walk_state(s->n_heads, s->d_k, s->d_v);
    MUST(sw_device_take(&d_state, gpu, SEQS_MAX * a.conv.state_seq, 4, "bench", err));
    MUST(sw_device_fill(gpu, d_state, 0, SEQS_MAX * a.conv.state_seq * 4, err));
    MUST(sw_device_take(&d_out, gpu, TOKENS_MAX * width, 2, "bench", err));
    MUST(sw_device_take(&d_counters, gpu, SW_MIXER_COUNTERS, 4, "bench", err));
    MUST(sw_device_fill(gpu, d_counters, 0, SW_MIXER_COUNTERS * 4, err));
    for (int i = 0; i < 3; i++)
        a.conv.part[i] = (sw_conv_part){.x = plain(mix + at[i], conv), .taps = taps + at[i],
                                        .kept = (float *)d_state + at[i],
                                        .n = i == 2 ? width : keys};
    a.state = (float *)d_state + 4 * conv;
    a.out = (sw_bf16_rows){d_out, width};
    a.counters = d_counters;
    return a;
}

static double time_us(const sw_walk_args *a, bool is_ssd)
{
    const sw_launch how = device_launch(gpu);
    cudaEvent_t begin, end;
    float ms = 0;

    (void)cudaEventCreate(&begin);
    (void)cudaEventCreate(&end);
    for (int i = -3; i < REPEATS; i++) {
        if (i == 0) (void)cudaEventRecord(begin, how.stream);
        if (is_ssd) MUST(sw_cuda_ssd(a, how, err));
        else MUST(sw_cuda_gated_delta(a, how, err));
    }
    (void)cudaEventRecord(end, how.stream);
    (void)cudaEventSynchronize(end);
    (void)cudaEventElapsedTime(&ms, begin, end);
    return (double)ms * 1e3 / REPEATS;
}

int main(void)
{
    const int failed = device_open(&gpu);
    int32_t first[SEQS_MAX];

    if (failed) return failed;
    for (int i = 0; i < SEQS_MAX; i++) first[i] = 5;
    printf("model,sequences,tokens,microseconds\n");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        sw_walk_args a = walk_of(&shapes[i]);

        a.conv.first = device_copy(gpu, first, sizeof first);
        for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
            a.conv.n_seqs = batches[b][0];
            a.conv.seq_len = batches[b][1];
            printf("%s,%d,%d,%.1f\n", shapes[i].name, (int)batches[b][0], (int)batches[b][1],
                   time_us(&a, shapes[i].is_ssd));
        }
    }
    sw_device_close(gpu);
    return 0;
}
