/* test_marlin.c - weights in Marlin's order put in tiles on the device, byte for byte what the host
 * packs. Exit 77 without a GPU. */
#include <cuda_runtime_api.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "formats/dialect/dialect_common.h"
#include "kernels/cuda/gemm/marlin_tiles.h"
#include "tests/gpu/support/gpu_case.h"
#include "tests/support/toys/qtensor_gen.h"

#define GUARD_BYTES 512
#define POISON 0xa5
#define ARRAYS 3 /* codes, scales, zero points */

#define MUST(call)                                                                  \
    do {                                                                            \
        cudaError_t e = (call);                                                     \
        if (e != cudaSuccess) fail_msg("%s: %s", #call, cudaGetErrorString(e));     \
    } while (0)

/* A weight in both orders on the host, and room for ours on the device between guards. */
typedef struct weight {
    sw_qtensor q;
    uint8_t *want[ARRAYS], *d_have[ARRAYS];
    size_t want_bytes[ARRAYS];
    void *parts[SW_DIALECT_TENSORS_MAX], *d_parts[SW_DIALECT_TENSORS_MAX];
    size_t part_bytes[SW_DIALECT_TENSORS_MAX];
    int n_parts;
    sw_tiles from;
} weight;

static void make_parts(weight *w)
{
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    sw_err err = {0};

    w->n_parts = sw_dialect_marlin.declare(parts, &w->q.spec, w->q.n_out, w->q.k_in);
    for (int i = 0; i < w->n_parts; i++) {
        size_t n_bytes = (size_t)sw_dtype_bits(parts[i].dtype) / 8;

        for (int d = 0; d < parts[i].n_dims; d++) n_bytes *= (size_t)parts[i].shape[d];
        w->part_bytes[i] = n_bytes;
        w->parts[i] = calloc(1, n_bytes);
        MUST(cudaMalloc(&w->d_parts[i], n_bytes));
    }
    if (sw_dialect_marlin.encode(w->parts, &w->q, &err)) fail_msg("%s", err.text);
}

static void make_want(weight *w)
{
    const sw_qspec *spec = &w->q.spec;
    sw_err err = {0};

    w->want_bytes[0] = (size_t)sw_tiles_codes_bytes(spec->num, w->q.n_out, w->q.k_in);
    w->want_bytes[1] = (size_t)sw_tiles_scales_bytes(spec->scale_dtype, w->q.n_out, w->q.n_groups);
    w->want_bytes[2] =
        spec->is_symmetric ? 0 : (size_t)sw_tiles_zeros_bytes(w->q.n_out, w->q.n_groups);
    for (int i = 0; i < ARRAYS; i++) {
        w->want[i] = malloc(w->want_bytes[i] + 1);
        MUST(cudaMalloc((void **)&w->d_have[i], w->want_bytes[i] + 2 * GUARD_BYTES));
        MUST(cudaMemset(w->d_have[i], POISON, w->want_bytes[i] + 2 * GUARD_BYTES));
    }
    if (sw_tiles_pack(w->want[0], w->want[1], w->want[2], &w->q, &err)) fail_msg("%s", err.text);
}

static void weight_new(weight *w, int bits, bool is_symmetric, int64_t group_elems,
                       sw_dtype scale_dtype, int64_t n_out, int64_t k_in)
{
    *w = (weight){0};
    sw_gen_qtensor(&w->q, bits, is_symmetric, group_elems, scale_dtype, n_out, k_in,
                   SW_GEN_RANDOM, 0, (uint64_t)(n_out + k_in + bits));
    make_parts(w);
    make_want(w);
    w->from = (sw_tiles){.spec = w->q.spec, .n_out = n_out, .k_in = k_in,
                         .n_groups = w->q.n_groups, .is_marlin = true, .container_bits = bits,
                         .codes = w->d_parts[0], .scales = w->d_parts[1],
                         .zeros = is_symmetric ? NULL : w->d_parts[2]};
}

static void weight_free(weight *w)
{
    for (int i = 0; i < w->n_parts; i++) {
        free(w->parts[i]);
        MUST(cudaFree(w->d_parts[i]));
    }
    for (int i = 0; i < ARRAYS; i++) {
        free(w->want[i]);
        MUST(cudaFree(w->d_have[i]));
    }
    sw_qtensor_free(&w->q);
}

/* Which array first differs from what the host packs, guards counted in; -1: none. */
static int retile(weight *w)
{
    sw_err err = {0};
    int differs = -1;

    for (int i = 0; i < w->n_parts; i++)
        MUST(cudaMemcpy(w->d_parts[i], w->parts[i], w->part_bytes[i], cudaMemcpyHostToDevice));
    if (sw_marlin_retile(w->d_have[0] + GUARD_BYTES, w->d_have[1] + GUARD_BYTES,
                         w->d_have[2] + GUARD_BYTES, &w->from, NULL, &err))
        fail_msg("%s", err.text);
    MUST(cudaDeviceSynchronize());
    for (int i = ARRAYS - 1; i >= 0; i--) {
        size_t n_bytes = w->want_bytes[i] + 2 * GUARD_BYTES;
        uint8_t *have = malloc(n_bytes), *want = malloc(n_bytes);

        memset(want, POISON, n_bytes);
        memcpy(want + GUARD_BYTES, w->want[i], w->want_bytes[i]);
        MUST(cudaMemcpy(have, w->d_have[i], n_bytes, cudaMemcpyDeviceToHost));
        if (memcmp(have, want, n_bytes) != 0) differs = i;
        free(have);
        free(want);
    }
    return differs;
}

static const int64_t sizes[][2] = {{64, 128}, {192, 128}, {256, 384}, {1024, 640}, {576, 1280}};

static void same_bytes(void **state)
{
    static const int64_t groups[] = {0, 32, 64, 128};

    (void)state;
    for (int v = 0; v < 16; v++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            int bits = v % 2 ? 8 : 4, differs;
            weight w;

            weight_new(&w, bits, v / 2 % 2 == 0, groups[v / 4],
                       (v + (int)i) % 2 ? SW_DTYPE_F16 : SW_DTYPE_BF16, sizes[i][0], sizes[i][1]);
            differs = retile(&w);
            if (differs >= 0)
                fail_msg("array %d differs: %d bits, group %lld, %lld x %lld", differs, bits,
                         (long long)groups[v / 4], (long long)sizes[i][0], (long long)sizes[i][1]);
            weight_free(&w);
        }
}

/* A bit turned over in any array must show, or the comparison proves nothing. */
static void faults_show(void **state)
{
    (void)state;
    for (int bits = 4; bits <= 8; bits += 4)
        for (int i = 0; i < ARRAYS; i++) {
            weight w;

            weight_new(&w, bits, false, 64, SW_DTYPE_BF16, 192, 256);
            ((uint8_t *)w.parts[i])[w.part_bytes[i] / 3] ^= 0x10;
            assert_int_equal(retile(&w), i);
            weight_free(&w);
        }
}

/* The tiles multiply as the ones that the host packs: the same bytes of Y. */
static void products_agree(void **state)
{
    static const gpu_shape shapes[] = {
        {.m = 5, .n_out = 192, .k_in = 512, .group_elems = 128, .num = SW_NUM_INT4},
        {.m = 70, .n_out = 320, .k_in = 384, .group_elems = 64, .num = SW_NUM_INT4,
         .is_asymmetric = true},
        {.m = 33, .n_out = 128, .k_in = 256, .num = SW_NUM_INT8},
    };
    const sw_cuda_device h200 = {90, 132};

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        gpu_shape s = shapes[i];
        sw_cuda_plan plan;
        sw_err err = {0};
        uint16_t *before;
        gpu_case c;
        weight w;

        s.dtype = s.scale_dtype = SW_DTYPE_BF16;
        s.x_num = SW_NUM_INT8;
        gpu_case_new(&c, &s);
        assert_int_equal(sw_cuda_gemm_plan(&plan, &c.problem, &h200, NULL, &err), SW_OK);
        assert_true(gpu_case_run(&c, &plan));
        before = malloc(c.y_bytes);
        memcpy(before, c.y, c.y_bytes);
        weight_new(&w, sw_nums[s.num].bits, !s.is_asymmetric, s.group_elems, s.scale_dtype,
                   s.n_out, s.k_in);
        for (int p = 0; p < w.n_parts; p++) memset(w.parts[p], 0, w.part_bytes[p]);
        assert_int_equal(sw_dialect_marlin.encode(w.parts, &c.q, &err), SW_OK);
        (void)retile(&w);
        c.problem.tiles.codes = w.d_have[0] + GUARD_BYTES;
        c.problem.tiles.scales = w.d_have[1] + GUARD_BYTES;
        if (s.is_asymmetric) c.problem.tiles.zeros = w.d_have[2] + GUARD_BYTES;
        assert_true(gpu_case_run(&c, &plan));
        assert_memory_equal(before, c.y, c.y_bytes);
        free(before);
        c.problem.tiles.codes = c.problem.tiles.scales = c.problem.tiles.zeros = NULL;
        gpu_case_free(&c);
        weight_free(&w);
    }
}

static void refuses_what_it_cannot(void **state)
{
    sw_tiles from = {.n_out = 96, .k_in = 128, .n_groups = 1, .is_marlin = true};
    sw_err err = {0};

    (void)state;
    from.spec = (sw_qspec){.num = &sw_nums[SW_NUM_INT4], .is_symmetric = true,
                           .scale_dtype = SW_DTYPE_F16};
    assert_int_equal(sw_marlin_retile(NULL, NULL, NULL, &from, NULL, &err), SW_E_UNSUPPORTED);
    from.n_out = 128;
    from.spec.scale_dtype = SW_DTYPE_F32;
    assert_int_equal(sw_marlin_retile(NULL, NULL, NULL, &from, NULL, &err), SW_E_UNSUPPORTED);
    from.spec.scale_dtype = SW_DTYPE_F16;
    from.is_marlin = false;
    assert_int_equal(sw_marlin_retile(NULL, NULL, NULL, &from, NULL, &err), SW_E_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bytes), cmocka_unit_test(faults_show),
        cmocka_unit_test(products_agree), cmocka_unit_test(refuses_what_it_cannot),
    };

    if (!gpu_is_there()) return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
