/* test_newest_key.c - attention of one query a sequence that puts the newest key and value into
 * the cache itself: out comes, bit by bit, what comes out where they are there already, and the
 * cache then holds the same. So it is where attention is told that the rest of the cache is there,
 * and kernels ahead of it still write queries and new keys. By the kernel of any device and by
 * that of Hopper. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "formats/num/act.h"
#include "formats/num/half.h"
#include "kernels/cuda/attention/attention_decode.h"
#include "kernels/engine/engine.h"
#include "tests/gpu/support/device_case.h"
#include "tests/gpu/support/emulated.h"
#include "tests/support/toys/open_model.h"

#define SEQS 2
#define ROOM 5 /* positions behind the newest key, which hold NaNs */
#define SCALE 0.0078125f
#define SLOW_ROWS (DEVICE_IS_FOLLOWED ? 1 : 4096)
#define SLOW_WIDTH 4096

static sw_device *gpu;
static sw_launch how;

typedef struct newest_case {
    int heads, kv_heads, dim, v_dim, n_keys;
} newest_case;

static const newest_case cases[] = {
    {8, 2, 128, 128, 1},   {8, 2, 128, 128, 16},  {8, 2, 128, 128, 17}, {32, 8, 128, 128, 300},
    {4, 1, 128, 128, 2049}, {4, 4, 64, 64, 257},   {2, 1, 256, 256, 65}, {4, 2, 80, 48, 130},
    {24, 2, 96, 96, 33},
};

/* Of the newest key and value: in the cache, in rows, or in rows that kernels ahead yet make. */
enum { ALL_THERE, NEWEST_IN_ROWS, NEWEST_ON_ITS_WAY, MODES };

/* A cache [SEQS, n_keys + ROOM, kv_heads * dim] and its newest rows [SEQS, kv_heads * dim]. */
typedef struct newest_cache {
    uint8_t *bytes; /* on the host */
    int64_t n_bytes, row_bytes, seq_bytes;
    sw_bf16 *newest;
} newest_cache;

/* Every number is a code times SCALE, of E4M3 where the cache holds none: BF16 holds it too. */
static newest_cache make_cache(const newest_case *c, int dim, sw_kv_kind kind, uint64_t seed)
{
    const int64_t width = (int64_t)c->kv_heads * dim, n = SEQS * c->n_keys * width;
    float *values = malloc(4 * (size_t)n);
    const sw_act act = {.num = sw_kv_num(kind ? kind : SW_KV_E4M3), .scope = SW_ACT_TENSOR};
    uint8_t *codes = malloc((size_t)n);
    newest_cache m = {.row_bytes = width * (kind ? 1 : 2)};

    (void)device_random_rows(gpu, values, n, 1, seed);
    sw_act_quantize(codes, NULL, values, n, 1, n, &act, SCALE);
    sw_act_round(values, n, values, n, 1, n, &act, SCALE);
    m.seq_bytes = m.row_bytes * (c->n_keys + ROOM);
    m.n_bytes = SEQS * m.seq_bytes;
    m.bytes = malloc((size_t)m.n_bytes);
    m.newest = malloc(2 * (size_t)(SEQS * width));
    memset(m.bytes, 0xff, (size_t)m.n_bytes);
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = i / width, seq = row / c->n_keys, position = row % c->n_keys;
        const sw_bf16 wide = sw_bf16_encode(values[i]);
        uint8_t *to = m.bytes + seq * m.seq_bytes + position * m.row_bytes;

        if (kind) to[i % width] = codes[i];
        else memcpy(to + 2 * (i % width), &wide, 2);
        if (position == c->n_keys - 1) m.newest[seq * width + i % width] = wide;
    }
    free(values), free(codes);
    return m;
}

/* On the device, the newest rows as NaNs where they are yet to come. */
static void *cache_on_device(const newest_cache *m, const newest_case *c, bool has_newest)
{
    uint8_t *bytes = malloc((size_t)m->n_bytes);
    void *d;

    memcpy(bytes, m->bytes, (size_t)m->n_bytes);
    for (int64_t seq = 0; seq < SEQS && !has_newest; seq++)
        memset(bytes + seq * m->seq_bytes + (c->n_keys - 1) * m->row_bytes, 0xff,
               (size_t)m->row_bytes);
    d = device_copy(gpu, bytes, m->n_bytes);
    free(bytes);
    return d;
}

static void check_same_bytes(const void *d_cache, const newest_cache *m)
{
    uint8_t *have = malloc((size_t)m->n_bytes);

    MUST(sw_device_download(gpu, have, d_cache, m->n_bytes, err));
    assert_memory_equal(have, m->bytes, (size_t)m->n_bytes);
    free(have);
}

/* Queries or new rows [SEQS, width], and the floats that a kernel makes them of. */
typedef struct made_rows {
    sw_bf16_rows to;
    float *from;
} made_rows;

static made_rows rows_to_make(sw_bf16_rows to, const sw_bf16 *values)
{
    const int64_t n = SEQS * to.stride;
    float *wide = malloc(4 * (size_t)n);
    made_rows m = {.to = to};

    for (int64_t i = 0; i < n; i++) wide[i] = sw_bf16_decode(values[i]);
    m.from = device_copy(gpu, wide, 4 * n);
    free(wide);
    return m;
}

static made_rows slow; /* rows of zeros that take some 30 us */

/* Rows in the place of NaNs, by kernels that may start before those ahead have ended, of which the
 * first takes longer than attention needs to begin. */
static void make_rows(const made_rows *rows, int n)
{
    for (int i = 0; i < n; i++)
        MUST(sw_device_fill(gpu, rows[i].to.d, 0xff, 2 * SEQS * rows[i].to.stride, err));
    MUST(sw_cuda_to_bf16(slow.to, slow.from, (sw_bf16_rows){0}, SLOW_ROWS, slow.to.stride, how,
                         err));
    for (int i = 0; i < n; i++)
        MUST(sw_cuda_to_bf16(rows[i].to, rows[i].from, (sw_bf16_rows){0}, SEQS, rows[i].to.stride,
                             how, err));
}

static int open_slow(void **state)
{
    void *to, *from;

    (void)state;
    MUST(sw_device_take(&to, gpu, SLOW_ROWS * SLOW_WIDTH, 2, "test", err));
    MUST(sw_device_take(&from, gpu, SLOW_ROWS * SLOW_WIDTH, 4, "test", err));
    MUST(sw_device_fill(gpu, from, 0, SLOW_ROWS * SLOW_WIDTH * 4, err));
    slow = (made_rows){{to, SLOW_WIDTH}, from};
    return 0;
}

static sw_code attend(const sw_attn_args *a, const sw_heads_args *heads, sw_err *err)
{
    return sw_attention_decode_can_run(a) ? sw_cuda_attention_decode_copied(a, heads, how, err)
                                          : sw_cuda_attention_decode_any(a, heads, how, err);
}

static void check_case(const newest_case *c, sw_kv_kind kind, int n_sms, int sm)
{
    const int64_t capacity = c->n_keys + ROOM, n_q = SEQS * c->heads * c->dim;
    const int64_t k_width = c->kv_heads * c->dim, v_width = c->kv_heads * c->v_dim;
    const int64_t n_out = SEQS * c->heads * c->v_dim;
    const int32_t first[SEQS] = {c->n_keys - 1, c->n_keys - 1};
    newest_cache k = make_cache(c, c->dim, kind, 2), v = make_cache(c, c->v_dim, kind, 3);
    float *q = malloc(4 * (size_t)n_q);
    sw_bf16 *out[MODES], *q16 = malloc(2 * (size_t)n_q);
    sw_attn_args a = {.n_seqs = SEQS, .seq_len = 1, .capacity = capacity, .n_heads = c->heads,
                      .n_kv_heads = c->kv_heads, .head_dim = c->dim, .v_head_dim = c->v_dim,
                      .scale = (float)(1 / sqrt(c->dim)), .n_sms = n_sms, .sm = sm,
                      .kv = {kind, SCALE, SCALE}, .k_seq = capacity * k_width,
                      .v_seq = capacity * v_width};
    sw_heads_args heads = {.n = SEQS, .seq_len = 1, .capacity = capacity, .n_heads = c->heads,
                           .n_kv_heads = c->kv_heads, .head_dim = c->dim, .v_head_dim = c->v_dim,
                           .kv = a.kv};

    for (int i = 0; i < MODES; i++) out[i] = malloc(2 * (size_t)n_out);
    a.q = (sw_bf16_rows){device_random_rows(gpu, q, n_q, 1.5, 1), c->heads * c->dim};
    a.first = heads.first = device_copy(gpu, first, sizeof first);
    a.out = (sw_bf16_rows){device_copy(gpu, out[0], 2 * n_out), c->heads * c->v_dim};
    heads.k = (sw_bf16_rows){device_copy(gpu, k.newest, 2 * SEQS * k_width), k_width};
    heads.v = (sw_bf16_rows){device_copy(gpu, v.newest, 2 * SEQS * v_width), v_width};
    MUST(sw_device_take(&a.scratch, gpu, sw_cuda_decode_scratch_bytes(&a), 1, "test", err));
    MUST(sw_device_fill(gpu, a.scratch, 0, sw_cuda_decode_scratch_bytes(&a), err));
    for (int64_t i = 0; i < n_q; i++) q16[i] = sw_bf16_encode(q[i]);
    const made_rows rows[] = {rows_to_make(a.q, q16), rows_to_make(heads.k, k.newest),
                              rows_to_make(heads.v, v.newest)};

    for (int mode = 0; mode < MODES; mode++) {
        a.k = (sw_bf16_rows){heads.k_cache = cache_on_device(&k, c, mode == ALL_THERE), k_width};
        a.v = (sw_bf16_rows){heads.v_cache = cache_on_device(&v, c, mode == ALL_THERE), v_width};
        a.cache_is_there = mode == NEWEST_ON_ITS_WAY;
        if (a.cache_is_there) make_rows(rows, 3);
        MUST(attend(&a, mode == ALL_THERE ? NULL : &heads, err));
        MUST(sw_device_download(gpu, out[mode], a.out.d, 2 * n_out, err));
        check_same_bytes(heads.k_cache, &k);
        check_same_bytes(heads.v_cache, &v);
        assert_memory_equal(out[mode], out[0], 2 * (size_t)n_out);
    }
    for (int i = 0; i < MODES; i++) free(out[i]);
    free(q), free(q16);
    free(k.bytes), free(k.newest), free(v.bytes), free(v.newest);
}

static void check_cases(int sm)
{
    for (size_t i = 0; i < 3 * (sizeof cases / sizeof *cases); i++) {
        /* one kind of cache a case */
        if (DEVICE_IS_FOLLOWED && !DEVICE_IS_EMULATED && i / 3 % 3 != i % 3) continue;
        check_case(&cases[i / 3], (sw_kv_kind)(i % 3), 132, sm);
        check_case(&cases[i / 3], (sw_kv_kind)(i % 3), 1, sm);
    }
}

/* ---- heads that are normed and turned ---- */

#define TURNED_BOUND 5e-4 /* some values round to the next BF16 */

static float *random_floats(int64_t n, double spread, uint64_t seed)
{
    float *values = malloc(4 * (size_t)n), *d;

    (void)device_random_rows(gpu, values, n, spread, seed);
    d = device_copy(gpu, values, 4 * n);
    free(values);
    return d;
}

/* What attention puts out and leaves as the newest keys, by the kernel that `sm` has. */
static void attend_turned(float *out, float *newest, const newest_case *c, const newest_cache *k,
                          const newest_cache *v, sw_attn_args a, sw_heads_args heads)
{
    const int64_t k_width = c->kv_heads * c->dim, n_out = SEQS * c->heads * c->v_dim;
    float *rows, *cache;

    a.k = (sw_bf16_rows){heads.k_cache = cache_on_device(k, c, false), k_width};
    a.v = (sw_bf16_rows){heads.v_cache = cache_on_device(v, c, false), c->kv_heads * c->v_dim};
    MUST(sw_device_fill(gpu, a.out.d, 0xff, 2 * n_out, err));
    MUST(attend(&a, &heads, err));
    check_same_bytes(heads.v_cache, v);
    rows = device_fetch(gpu, a.out.d, n_out);
    cache = device_fetch(gpu, heads.k_cache, SEQS * a.capacity * k_width);
    memcpy(out, rows, 4 * (size_t)n_out);
    for (int64_t seq = 0; seq < SEQS; seq++)
        memcpy(newest + seq * k_width,
               cache + (seq * a.capacity + c->n_keys - 1) * k_width, 4 * (size_t)k_width);
    free(rows), free(cache);
}

/* Queries and new keys normed, turned or both, as the kernel of any device has them. */
static void check_turned(const newest_case *c, bool has_norm, bool turns)
{
    const int64_t capacity = c->n_keys + ROOM, n_q = SEQS * c->heads * c->dim;
    const int64_t k_width = c->kv_heads * c->dim, v_width = c->kv_heads * c->v_dim;
    const int64_t n_angles = capacity * c->dim / 2, n_out = SEQS * c->heads * c->v_dim;
    const int32_t first[SEQS] = {c->n_keys - 1, c->n_keys - 1};
    newest_cache k = make_cache(c, c->dim, SW_KV_FLOATS, 2);
    newest_cache v = make_cache(c, c->v_dim, SW_KV_FLOATS, 3);
    float *q = calloc((size_t)n_q, 4), *out[2], *newest[2];
    sw_attn_args a = {.n_seqs = SEQS, .seq_len = 1, .capacity = capacity, .n_heads = c->heads,
                      .n_kv_heads = c->kv_heads, .head_dim = c->dim, .v_head_dim = c->v_dim,
                      .scale = (float)(1 / sqrt(c->dim)), .n_sms = 132, .k_seq = capacity * k_width,
                      .v_seq = capacity * v_width, .cache_is_there = true};
    sw_heads_args heads = {.n = SEQS, .seq_len = 1, .capacity = capacity, .n_heads = c->heads,
                           .n_kv_heads = c->kv_heads, .head_dim = c->dim, .v_head_dim = c->v_dim,
                           .rope_dim = c->dim, .eps = 1e-6f};

    a.q = heads.q = (sw_bf16_rows){device_random_rows(gpu, q, n_q, 1.5, 1), c->heads * c->dim};
    a.first = heads.first = device_copy(gpu, first, sizeof first);
    a.out = (sw_bf16_rows){device_copy(gpu, q, 2 * n_out), c->heads * c->v_dim};
    heads.k = (sw_bf16_rows){device_copy(gpu, k.newest, 2 * SEQS * k_width), k_width};
    heads.v = (sw_bf16_rows){device_copy(gpu, v.newest, 2 * SEQS * v_width), v_width};
    if (has_norm) heads.q_norm = random_floats(c->dim, 1, 4);
    if (has_norm) heads.k_norm = random_floats(c->dim, 1, 5);
    if (turns) heads.cos = random_floats(n_angles, 1, 6);
    if (turns) heads.sin = random_floats(n_angles, 1, 7);
    MUST(sw_device_take(&a.scratch, gpu, sw_cuda_decode_scratch_bytes(&a), 1, "test", err));
    MUST(sw_device_fill(gpu, a.scratch, 0, sw_cuda_decode_scratch_bytes(&a), err));
    for (int i = 0; i < 2; i++) {
        out[i] = malloc(4 * (size_t)n_out);
        newest[i] = malloc(4 * (size_t)(SEQS * k_width));
        a.sm = i ? 90 : 0;
        attend_turned(out[i], newest[i], c, &k, &v, a, heads);
    }
    print_message("%d/%d heads of %d after %d%s%s: %.1e, keys %.1e\n", c->heads, c->kv_heads,
                  c->dim, c->n_keys - 1, has_norm ? ", normed" : "", turns ? ", turned" : "",
                  relative_l2(out[1], out[0], n_out),
                  relative_l2(newest[1], newest[0], SEQS * k_width));
    assert_true(relative_l2(out[1], out[0], n_out) < TURNED_BOUND);
    assert_true(relative_l2(newest[1], newest[0], SEQS * k_width) < TURNED_BOUND);
    for (int i = 0; i < 2; i++) free(out[i]), free(newest[i]);
    free(q), free(k.bytes), free(k.newest), free(v.bytes), free(v.newest);
}

static void test_turned(void **state)
{
    (void)state;
    if (sw_device_about(gpu)->arch != 90) skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int how_made = 0; how_made < 4; how_made++)
            check_turned(&cases[i], how_made & 1, how_made & 2);
}

static void test_any_device(void **state)
{
    (void)state;
    check_cases(0);
}

static void test_here(void **state)
{
    (void)state;
    if (sw_device_about(gpu)->arch != 90) skip();
    check_cases(90);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_device),
        cmocka_unit_test(test_here),
        cmocka_unit_test(test_turned),
    };
    const int missing = device_open(&gpu);
    int failed;

    if (missing) return missing;
    how = device_launch(gpu);
    failed = cmocka_run_group_tests(tests, open_slow, NULL);
    sw_device_close(gpu);
    return failed;
}
