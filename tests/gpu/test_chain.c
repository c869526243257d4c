/* test_chain.c - chains of products and attention against kernels of their own, which other tests
 * hold against sums in double. Exit 77 without a GPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "formats/model/model.h"
#include "tests/gpu/support/emulated.h"
#include "tests/gpu/support/fused_case.h"
#include "tests/support/toys/open_model.h"
#include "tests/support/toys/random.h"

/* Blocks one behind the other, of the same weights: more than one launch takes. Fewer and smaller
 * ones where a checker follows every access. STRONGER: a scale of scores that must show. */
#ifdef SW_CHECKED
#define N_BLOCKS 3
#define WIDE 768
#define N_RUNS 1
#define STRONGER 8.0f
#else
#define N_BLOCKS 18
#define WIDE 2816
#define N_RUNS 20
#define STRONGER 1.25f
#endif
#define HIDDEN 1024
#define DIM 128
#define N_Q 8
#define N_KV 2
#define QKV ((N_Q + 2 * N_KV) * DIM)
#define CAPACITY 512
#define POSITION 300
#define CHAIN_LIMIT 1e-2

static sw_device *gpu;
static sw_launch how;
static sw_decode_chain *chain; /* NULL: kernels of their own */

static const fused_case chained[] = {
    /* of which n_out, k_in and out are not looked at */
    {0, 0, 0, false, false, false, SW_FUSED_STORE, F32, SW_NUM_INT8, SW_ACT_TOKEN},
    {0, 0, 0, false, false, false, SW_FUSED_STORE, F32, SW_NUM_E4M3, SW_ACT_TOKEN},
};

typedef struct chain_blocks {
    sw_fused_args qkv, o, gate_up, down;
    sw_attn_args attention;
    sw_heads_args heads;
    char *k_caches, *v_caches; /* of all blocks */
    int element_bytes;         /* of these */
    void *d_scratch;           /* of attention outside a chain */
    float *d_x, x[HIDDEN];
} chain_blocks;

static sw_fused_args product_of(const fused_case *like, int64_t n_out, int64_t k_in,
                                sw_fused_out out)
{
    sw_fused_args a = {.eps = 1e-5f,
                       .out = out,
                       .act = SW_MLP_SILU,
                       .n = 1,
                       .n_sms = 132,
                       .sm = sw_device_about(gpu)->arch};
    fused_case c = *like;
    sw_qtensor q;

    c.n_out = n_out;
    c.k_in = k_in;
    fused_weight(&q, &c, (uint64_t)n_out);
    for (int64_t i = 0; i < q.n_out * q.n_groups; i++)
        q.scales[i] *= c.num == SW_NUM_E4M3 ? 3.0f : 0.3f; /* outputs of about 1 */
    fused_act(&a, &c);
    a.tiles = fused_tiles(gpu, &q);
    sw_qtensor_free(&q);
    return a;
}

/* Codes of up to one, none of them NaN. */
static char *random_codes(int64_t n, uint64_t seed)
{
    uint8_t *codes = malloc((size_t)n);
    test_rng rng = {seed};
    void *d;

    for (int64_t i = 0; i < n; i++) codes[i] = (uint8_t)(test_uniform(&rng) * 256) & 0xb7;
    d = device_copy(gpu, codes, n);
    free(codes);
    return d;
}

static void make_caches(chain_blocks *b, sw_kv_kind kind)
{
    const int64_t n = (int64_t)N_BLOCKS * CAPACITY * N_KV * DIM;
    float *values;

    b->element_bytes = kind ? 1 : 2;
    if (kind) {
        b->k_caches = random_codes(n, 11);
        b->v_caches = random_codes(n, 12);
        return;
    }
    values = malloc(4 * (size_t)n);
    b->k_caches = (char *)device_random_rows(gpu, values, n, 1, 11);
    b->v_caches = (char *)device_random_rows(gpu, values, n, 1, 12);
    free(values);
}

static void make_attention(chain_blocks *b, sw_bf16 *qkv, sw_bf16 *out, sw_kv_kind kind)
{
    const sw_kv_form kv = {kind, 3.0f, 3.0f};
    float cosines[CAPACITY * DIM / 2], sines[CAPACITY * DIM / 2];
    const int32_t first = POSITION;

    for (int i = 0; i < CAPACITY * DIM / 2; i++) {
        const double angle = (double)(i / (DIM / 2)) * pow(1e4, -2.0 * (i % (DIM / 2)) / DIM);

        cosines[i] = (float)cos(angle), sines[i] = (float)sin(angle);
    }
    make_caches(b, kind);
    b->attention = (sw_attn_args){.q = {qkv, QKV},
                                  .out = {out, N_Q * DIM},
                                  .k.stride = N_KV * DIM,
                                  .v.stride = N_KV * DIM,
                                  .k_seq = CAPACITY * N_KV * DIM,
                                  .v_seq = CAPACITY * N_KV * DIM,
                                  .kv = kv,
                                  .first = device_copy(gpu, &first, sizeof first),
                                  .n_seqs = 1,
                                  .seq_len = 1,
                                  .capacity = CAPACITY,
                                  .n_heads = N_Q,
                                  .n_kv_heads = N_KV,
                                  .head_dim = DIM,
                                  .v_head_dim = DIM,
                                  .scale = 0.09f,
                                  .n_sms = sw_device_about(gpu)->n_sms,
                                  .sm = sw_device_about(gpu)->arch};
    b->heads = (sw_heads_args){
        .q = {qkv, QKV}, .k = {qkv + N_Q * DIM, QKV}, .v = {qkv + (N_Q + N_KV) * DIM, QKV},
        .cos = device_copy(gpu, cosines, sizeof cosines),
        .sin = device_copy(gpu, sines, sizeof sines),
        .kv = kv, .first = b->attention.first, .n = 1, .seq_len = 1, .capacity = CAPACITY,
        .n_heads = N_Q, .n_kv_heads = N_KV, .head_dim = DIM, .v_head_dim = DIM, .rope_dim = DIM,
        .eps = 1e-5f};
    b->d_scratch = zeros_on_device(gpu, sw_cuda_decode_scratch_bytes(&b->attention));
}

static void make_blocks(chain_blocks *b, const fused_case *like, sw_kv_kind kind)
{
    sw_bf16 *qkv = zeros_on_device(gpu, 2 * QKV), *out = zeros_on_device(gpu, 2 * HIDDEN);
    sw_bf16 *wide = zeros_on_device(gpu, 2 * WIDE);
    float norm[HIDDEN];
    test_rng rng = {9};

    for (int i = 0; i < HIDDEN; i++) norm[i] = (float)(0.5 + test_uniform(&rng));
    for (int i = 0; i < HIDDEN; i++) b->x[i] = (float)test_gauss(&rng);
    b->d_x = device_copy(gpu, b->x, sizeof b->x);
    b->qkv = product_of(like, QKV, HIDDEN, SW_FUSED_STORE);
    b->o = product_of(like, HIDDEN, N_Q * DIM, SW_FUSED_ADD);
    b->gate_up = product_of(like, 2 * WIDE, HIDDEN, SW_FUSED_GLU);
    b->down = product_of(like, HIDDEN, WIDE, SW_FUSED_ADD);
    b->qkv.x = b->gate_up.x = b->o.sum = b->down.sum = b->d_x;
    b->qkv.norm = b->gate_up.norm = device_copy(gpu, norm, sizeof norm);
    b->qkv.y.d = qkv;
    b->o.rows.d = out;
    b->gate_up.y.d = b->down.rows.d = wide;
    make_attention(b, qkv, out, kind);
}

static sw_code enqueue_attention(const sw_attn_args *a, const sw_heads_args *heads, sw_err *err)
{
    if (!chain) return sw_cuda_attention_decode(a, heads, how, err);
    assert_true(sw_cuda_chain_attention(chain, a, heads));
    return SW_OK;
}

/* x after all blocks. */
static void run_blocks(float *have, chain_blocks *b)
{
    const int64_t each_bytes = (int64_t)CAPACITY * N_KV * DIM * b->element_bytes;

    MUST(sw_device_upload(gpu, b->d_x, b->x, sizeof b->x, err));
    for (int l = 0; l < N_BLOCKS; l++) {
        sw_attn_args a = b->attention;
        sw_heads_args heads = b->heads;

        a.scratch = b->d_scratch;
        a.k.d = heads.k_cache = b->k_caches + l * each_bytes;
        a.v.d = heads.v_cache = b->v_caches + l * each_bytes;
        MUST(fused_enqueue(chain, &b->qkv, how, err));
        MUST(enqueue_attention(&a, &heads, err));
        MUST(fused_enqueue(chain, &b->o, how, err));
        MUST(fused_enqueue(chain, &b->gate_up, how, err));
        MUST(fused_enqueue(chain, &b->down, how, err));
    }
    MUST(sw_cuda_chain_run(chain, how, err));
    MUST(sw_device_download(gpu, have, b->d_x, sizeof b->x, err));
}

/* As kernels of their own have it, and the same bytes each time. */
static void check_chain(const fused_case *like, sw_kv_kind kind)
{
    static chain_blocks b;
    float want[HIDDEN], have[HIDDEN], again[HIDDEN];
    double error, broken;

    make_blocks(&b, like, kind);
    run_blocks(want, &b);
    chain = chain_on_device(gpu, &b.attention);
    run_blocks(have, &b);
    error = relative_l2(have, want, HIDDEN);
    for (int i = 0; i < N_RUNS; i++) {
        run_blocks(again, &b);
        assert_memory_equal(have, again, sizeof have);
    }
    b.attention.scale *= STRONGER;
    run_blocks(again, &b);
    broken = relative_l2(again, want, HIDDEN);
    sw_cuda_chain_free(chain);
    chain = NULL;
    print_message("%d blocks of %s, keys of %d bytes: %.2e from single kernels; broken %.2e\n",
                  N_BLOCKS, sw_nums[like->num].name, b.element_bytes, error, broken);
    if (!(error <= CHAIN_LIMIT) || broken <= CHAIN_LIMIT)
        fail_msg("error %g, broken %g", error, broken);
}

static void test_blocks(void **state)
{
    (void)state;
    if (sw_device_about(gpu)->arch != 90) skip();
    for (size_t i = 0; i < (DEVICE_IS_EMULATED ? 1 : sizeof chained / sizeof *chained); i++)
        check_chain(&chained[i], SW_KV_FLOATS);
    if (DEVICE_IS_EMULATED) print_message("int8 alone on an emulated device\n");
    else check_chain(&chained[1], SW_KV_E4M3);
}

/* One argument: the tests whose name it matches (* and ? as in a shell). */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_blocks)};
    int failed = device_open(&gpu);

    if (failed) return failed;
    how = device_launch(gpu);
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    failed = cmocka_run_group_tests_name("chains", tests, NULL, NULL);
    sw_device_close(gpu);
    return failed;
}
