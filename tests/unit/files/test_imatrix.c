/* test_imatrix.c - importance matrices in both forms: written and read back, refused where bytes
 * are spoilt, and rounding that they weigh errs less where they say that it matters.
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
#include "formats/file/imatrix.h"
#include "formats/num/blocks.h"
#include "tests/support/scratch.h"
#include "tools/convert/convert_gguf.h"

#define MUST(call_with_err)                                              \
    do {                                                                 \
        sw_err e_text = {0}, *err = &e_text;                             \
        if ((call_with_err) != SW_OK) fail_msg("%s", err->text);         \
    } while (0)

static void test_round_trip(void **state)
{
    static const char *const names[] = {"a.gguf", "a.dat"};
    static const float means[] = {1.0f, 0.25f, 4.0f, 2.5f}, experts[] = {1.0f, 2.0f, 3.0f, 0.5f};
    static const float counts[] = {96.0f, 64.0f};
    const sw_imatrix_source sources[] = {
        {{"blk.0.ffn_up.weight", 4, means, 0.0}, 1, counts},
        {{"blk.0.ffn_up_exps.weight", 4, experts, 0.0}, 2, counts}};

    (void)state;
    for (int i = 0; i < 2; i++) {
        sw_imatrix *im = NULL;
        const float *have;
        sw_err said = {0};
        scratch s;

        scratch_open(&s);
        MUST(sw_imatrix_write(scratch_path(&s, names[i]), sources, 2, "text", 3, 32, false, err));
        MUST(sw_imatrix_open(&im, scratch_path(&s, names[i]), err));
        assert_int_equal(sw_imatrix_count(im), 2);
        MUST(sw_imatrix_weights(&have, im, "blk.0.ffn_up.weight", 1, 0, 4, err));
        assert_memory_equal(have, means, sizeof means);
        MUST(sw_imatrix_weights(&have, im, "blk.0.ffn_up_exps.weight", 2, 1, 2, err));
        assert_memory_equal(have, experts + 2, 2 * sizeof *experts);
        MUST(sw_imatrix_weights(&have, im, "blk.0.ffn_down.weight", 1, 0, 4, err));
        assert_null(have);
        assert_int_equal(sw_imatrix_weights(&have, im, "blk.0.ffn_up.weight", 1, 0, 8, &said),
                         SW_E_FORMAT);
        assert_non_null(strstr(said.text, "another model"));
        sw_imatrix_free(im);
        scratch_close(&s);
    }
}

/* Every byte of a .dat cut off or spoilt: refused, or still sound. */
static void test_hostile(void **state)
{
    static const struct {
        const char *part;
        unsigned char bytes[32];
        size_t n;
    } rows[] = {
        {"imatrix file", {1, 0, 0, 0}, 4},
        {"imatrix file", {1, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0}, 16},
        {"no values", {1, 0, 0, 0, 1, 0, 0, 0, 'a', 1, 0, 0, 0, 0, 0, 0, 0}, 17},
        {"ends within", {1, 0, 0, 0, 1, 0, 0, 0, 'a', 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0}, 21},
        {"negative", {1, 0, 0, 0, 1, 0, 0, 0, 'a', 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 128, 191}, 21},
        {"negative", {1, 0, 0, 0, 1, 0, 0, 0, 'a', 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 192, 127}, 21},
        {"without a name", {1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}, 21},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sw_imatrix *im = NULL;
        sw_err err = {0};

        assert_int_equal(sw_imatrix_open_bytes(&im, rows[i].bytes, rows[i].n, "im.dat", &err),
                         SW_E_FORMAT);
        if (!strstr(err.text, rows[i].part) || strncmp(err.text, "im.dat", 6))
            fail_msg("row %zu: %s", i, err.text);
    }
}

/* --- rounding ------------------------------------------------------------------------------- */

#define MODEL "tests/golden/arch/llama"
#define LINEAR "blk.0.ffn_up.weight"

/* Of the weight, the squares of rounding errors by inputs times their weights. */
static double error_of(const char *file, const char *exact, const float *weights, int64_t k)
{
    sw_gguf *a = NULL, *b = NULL;
    const sw_gguf_tensor *x, *y;
    float *rows = NULL;
    double sum = 0.0;

    MUST(sw_gguf_open(&a, file, err));
    MUST(sw_gguf_open(&b, exact, err));
    x = sw_gguf_find(a, LINEAR);
    y = sw_gguf_find(b, LINEAR);
    assert_true(x && y && x->shape[1] == k && y->shape[1] == k);
    MUST(SW_MEM_GET(&rows, 2 * k, "rows", err));
    for (int64_t n = 0; n < x->shape[0]; n++) {
        sw_block_decode(rows, (const char *)x->data + n * sw_block_bytes(x->type, k), x->type, k);
        sw_block_decode(rows + k, (const char *)y->data + n * sw_block_bytes(y->type, k), y->type,
                        k);
        for (int64_t i = 0; i < k; i++)
            sum += (double)weights[i] * pow((double)rows[i] - (double)rows[k + i], 2.0);
    }
    sw_mem_put(rows);
    sw_gguf_close(a);
    sw_gguf_close(b);
    return sum;
}

static void convert(const char *out, const char *type, const char *imatrix)
{
    sw_gguf_job job = {.source = MODEL, .out = out, .type = type, .embed_type = "F32",
                       .imatrix = imatrix, .no_tokenizer = true, .may_replace = true,
                       .n_threads = 2};

    MUST(sw_gguf_job_run(&job, err));
    if (imatrix) assert_int_equal(job.report.n_unweighted, 13); /* all linears but one */
}

static void test_weighs(void **state)
{
    static const char *const types[] = {"Q4_0", "Q4_1"};
    enum { K = 128 };
    float weights[K], count = 64.0f;
    const sw_imatrix_source source = {{LINEAR, K, weights, 0.0}, 1, &count};
    char plain[SW_PATH_BYTES], weighed[SW_PATH_BYTES], exact[SW_PATH_BYTES], im[SW_PATH_BYTES];
    scratch s;

    (void)state;
    scratch_open(&s);
    (void)snprintf(plain, sizeof plain, "%s", scratch_path(&s, "plain.gguf"));
    (void)snprintf(weighed, sizeof weighed, "%s", scratch_path(&s, "weighed.gguf"));
    (void)snprintf(exact, sizeof exact, "%s", scratch_path(&s, "exact.gguf"));
    (void)snprintf(im, sizeof im, "%s", scratch_path(&s, "im.dat"));
    for (int i = 0; i < K; i++) weights[i] = i % 8 ? 0.01f : 10.0f;
    MUST(sw_imatrix_write(im, &source, 1, "text", 2, 32, false, err));
    convert(exact, "F32", NULL);
    for (int i = 0; i < 2; i++) {
        double before, after;

        convert(plain, types[i], NULL);
        convert(weighed, types[i], im);
        before = error_of(plain, exact, weights, K);
        after = error_of(weighed, exact, weights, K);
        print_message("           %s: %.3g -> %.3g\n", types[i], before, after);
        assert_true(after < 0.8 * before);
    }
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_weighs),
    };

    return cmocka_run_group_tests_name("imatrix", tests, NULL, NULL);
}
