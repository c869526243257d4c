/* test_gguf_pieces.c - orders of rows against lists written by hand, columns by blocks, what is
 * stored of values, and weights of NVFP4 with their factors.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "formats/base/mem.h"
#include "formats/file/gguf.h"
#include "formats/gguf/gguf_names.h"
#include "formats/gguf/gguf_rows.h"
#include "formats/num/blocks.h"
#include "tests/support/cases/ckpt_case.h"
#include "tests/support/scratch.h"
#include "tests/support/toys/qtensor_gen.h"
#include "tools/convert/convert_gguf.h"

#define MUST(call_with_err)                                              \
    do {                                                                 \
        sw_err e_text = {0}, *err = &e_text;                             \
        if ((call_with_err) != SW_OK) fail_msg("%s", err->text);         \
    } while (0)

static void test_orders(void **state)
{
    static const struct {
        sw_gguf_order_of of;
        int32_t want[24];
    } rows[] = {
        /* two heads of six rows, four of which turn */
        {{.kind = SW_GGUF_ROWS_PAIRS, .n_rows = 12, .width = 6, .part = 4},
         {0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11}},
        /* three rows before; heads of two rows, of keys a and b: a0 a1 a2 b0 b1 b2 */
        {{.kind = SW_GGUF_ROWS_HEADS, .n_rows = 15, .first = 3, .groups = 2, .per = 3, .width = 2},
         {0, 1, 2, 3, 4, 9, 10, 5, 6, 11, 12, 7, 8, 13, 14}},
        /* two groups: q0 q1 k v of one row each */
        {{.kind = SW_GGUF_ROWS_QKV, .n_rows = 8, .groups = 2, .per = 2, .width = 1},
         {0, 1, 4, 5, 2, 6, 3, 7}},
        /* two groups: q, k of one row; two v and two z of two rows */
        {{.kind = SW_GGUF_ROWS_DELTA_QKV, .n_rows = 12, .groups = 2, .per = 2, .width = 2,
          .part = 1},
         {0, 10, 1, 11, 2, 3, 4, 5, 12, 13, 14, 15}},
        {{.kind = SW_GGUF_ROWS_DELTA_Z, .n_rows = 8, .groups = 2, .per = 2, .width = 2, .part = 1},
         {6, 7, 8, 9, 16, 17, 18, 19}},
        {{.kind = SW_GGUF_ROWS_TAIL, .n_rows = 4, .groups = 2, .width = 2, .part = 3},
         {3, 4, 8, 9}},
    };
    sw_gguf_orders orders = {.n = 0};
    sw_arena arena = {0};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int32_t *have, *again;

        MUST(sw_gguf_order_rows(&have, &orders, &rows[i].of, &arena, err));
        for (int64_t r = 0; r < rows[i].of.n_rows; r++)
            if (have[r] != rows[i].want[r])
                fail_msg("order %zu, row %lld: %d, want %d", i, (long long)r, have[r],
                         rows[i].want[r]);
        MUST(sw_gguf_order_rows(&again, &orders, &rows[i].of, &arena, err));
        assert_ptr_equal(again, have);
    }
    sw_arena_free(&arena);
}

/* Blocks of 32 follow columns that move in whole ones, and come back. */
static void test_columns(void **state)
{
    enum { N = 128, BYTES = 4 * 34 };
    int32_t cols[N];
    sw_gguf_name name = {.row_elems = N, .file_elems = N, .cols = cols, .cols_run = 32};
    unsigned char model[BYTES], file[BYTES], back[BYTES];

    (void)state;
    for (int i = 0; i < N; i++) cols[i] = (i / 32 * 2 % 4 + i / 64) * 32 + i % 32; /* 0 2 1 3 */
    for (int i = 0; i < BYTES; i++) model[i] = (unsigned char)(i * 7);
    assert_true(sw_gguf_moves_blocks(&name, SW_BLOCK_Q8_0));
    assert_false(sw_gguf_moves_blocks(&name, SW_BLOCK_Q4_K));
    sw_gguf_move_blocks(file, model, &name, SW_BLOCK_Q8_0, true);
    assert_memory_equal(file, model, 34);
    assert_memory_equal(file + 34, model + 68, 34);
    assert_memory_equal(file + 68, model + 34, 34);
    sw_gguf_move_blocks(back, file, &name, SW_BLOCK_Q8_0, false);
    assert_memory_equal(back, model, sizeof model);
}

static void test_values(void **state)
{
    const sw_gguf_name whole = {.kind = SW_GGUF_OFFSET, .offset = 1.0};
    const sw_gguf_name decay = {.kind = SW_GGUF_NEG_EXP};
    float row[] = {0.5f, -0.25f};

    (void)state;
    sw_gguf_store_values(row, &whole, 2);
    assert_true(row[0] == 1.5f && row[1] == 0.75f);
    sw_gguf_read_values(row, &whole, 2);
    assert_true(row[0] == 0.5f && row[1] == -0.25f);
    sw_gguf_store_values(row, &decay, 2);
    assert_true(fabsf(row[0] + 1.6487213f) < 1e-6f && fabsf(row[1] + 0.7788008f) < 1e-6f);
    sw_gguf_read_values(row, &decay, 2);
    assert_true(fabsf(row[0] - 0.5f) < 1e-6f && fabsf(row[1] + 0.25f) < 1e-6f);
}

/* --- NVFP4 ---------------------------------------------------------------------------------- */

#define NVFP4_WEIGHTS 8 /* of sw_gen_float_spec */

/* The weight "blk.0.ffn_up" of the file times its factor is that of the checkpoint. */
static void check_nvfp4(const char *file, const sw_qtensor *q)
{
    const sw_gguf_tensor *t, *factor;
    float *have = NULL, *want = NULL, scale;
    sw_gguf *g = NULL;

    MUST(sw_gguf_open(&g, file, err));
    t = sw_gguf_find(g, "blk.0.ffn_up.weight");
    factor = sw_gguf_find(g, "blk.0.ffn_up.scale");
    assert_true(t && t->type == SW_BLOCK_NVFP4);
    assert_true(factor && factor->type == SW_BLOCK_F32 && factor->n_dims == 1 &&
                factor->shape[0] == 1);
    memcpy(&scale, factor->data, sizeof scale);
    assert_true(scale == q->global_scale);
    MUST(SW_MEM_GET(&have, q->n_out * q->k_in, "have", err));
    MUST(SW_MEM_GET(&want, q->n_out * q->k_in, "want", err));
    sw_block_decode(have, t->data, SW_BLOCK_NVFP4, q->n_out * q->k_in);
    sw_qtensor_decode(want, q);
    for (int64_t i = 0; i < q->n_out * q->k_in; i++)
        if (have[i] * scale != want[i]) fail_msg("element %lld", (long long)i);
    sw_mem_put(have);
    sw_mem_put(want);
    sw_gguf_close(g);
}

static void test_nvfp4(void **state)
{
    sw_gguf_job job = {.embed_type = "F32", .no_tokenizer = true, .n_threads = 2};
    char dir[SW_PATH_BYTES], file[SW_PATH_BYTES];
    bool is_found = false;
    ckpt_case c;
    scratch s;

    (void)state;
    scratch_open(&s);
    ckpt_source(&s, "llama");
    ckpt_open(&c, &s, sw_dialect_find("swage"), 4, true, 32);
    c.config.spec = *sw_gen_float_spec(NVFP4_WEIGHTS);
    for (int64_t i = 0; i < c.n; i++) {
        const int64_t n_out = c.q[i].n_out, k_in = c.q[i].k_in;

        sw_qtensor_free(&c.q[i]);
        sw_gen_float_qtensor(&c.q[i], NVFP4_WEIGHTS, n_out, k_in, (uint64_t)i);
    }
    MUST(ckpt_write(&c, &s, "out", sw_dialect_find("modelopt"), false, 0, false, err));
    (void)snprintf(dir, sizeof dir, "%s", scratch_path(&s, "out"));
    (void)snprintf(file, sizeof file, "%s", scratch_path(&s, "m.gguf"));
    job.source = dir;
    job.out = file;
    MUST(sw_gguf_job_run(&job, err));
    assert_int_equal(job.types[0], SW_BLOCK_NVFP4);
    assert_int_equal(job.report.n_requantized, 0);
    for (int64_t i = 0; i < c.n; i++) {
        if (!strstr(c.paths[i], "layers.0.mlp.up_proj")) continue;
        check_nvfp4(file, &c.q[i]);
        is_found = true;
    }
    assert_true(is_found);
    ckpt_close(&c);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_columns),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_nvfp4),
    };

    return cmocka_run_group_tests_name("pieces of GGUF", tests, NULL, NULL);
}
