/* test_fold.c - factors per channel move through every architecture and change nothing. */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/json.h"
#include "quant/search/fold.h"
#include "tests/support/scratch.h"
#include "tests/support/toys/open_model.h"
#include "tests/support/toys/random.h"
#include "tests/support/toys/recipe_model.h"
#include "tests/support/toys/st_build.h"

enum { LINEARS_MAX = 512, TOKENS = 48 };

/* What one fold's run needs, and what it handed out. */
typedef struct folding {
    open_model m, twin; /* the two blocks of every layer: original's and quantized's */
    sw_linear_ref linears[LINEARS_MAX];
    int64_t n_linears;
    const char *skip; /* slots whose path holds this are not selected */
    int n_changed, n_scaled, n_folds, n_shared;
} folding;

static sw_code see_change(void *self, const char *name, const float *values, int64_t n, sw_err *err)
{
    folding *f = self;
    const sw_st_tensor *t = sw_st_find(f->m.st, name);
    float *back = malloc((size_t)n * sizeof *back);
    void *stored;

    assert_non_null(t);
    assert_int_equal(t->view.size_bytes * 8, n * sw_dtype_bits(t->view.dtype));
    stored = malloc(t->view.size_bytes);
    assert_int_equal(sw_float_encode_n(stored, t->view.dtype, values, n, err), SW_OK);
    assert_int_equal(sw_float_decode_n(back, stored, t->view.dtype, n, err), SW_OK);
    assert_memory_equal(back, values, (size_t)n * sizeof *back); /* what runs is what is stored */
    free(back);
    free(stored);
    f->n_changed++;
    return SW_OK;
}

static void select_linears(folding *f, int64_t layer)
{
    static sw_linear_ref refs[LINEARS_MAX];
    int64_t n = sw_model_linears(&f->m.model, layer, refs, LINEARS_MAX);

    f->n_linears = 0;
    for (int64_t i = 0; i < n; i++) {
        char path[256];
        assert_true(sw_model_slot_path(path, &f->m.model, layer, refs[i].slot, refs[i].expert));
        if (!f->skip || !strstr(path, f->skip)) f->linears[f->n_linears++] = refs[i];
    }
}

/* Channels of one row have one factor; rows stay within the producer and parts within theirs. */
static void expect_tied(folding *f, const double *scale, const sw_fold *fold, int64_t k)
{
    double of_row[LINEARS_MAX * 4] = {0};
    int64_t n_rows = 0;

    for (int64_t j = 0; j < k; j++) {
        int64_t row = sw_fold_row(fold, j);
        assert_true(row >= fold->first && row < LINEARS_MAX * 4);
        n_rows += of_row[row] == 0;
        assert_true(of_row[row] == 0 || of_row[row] == scale[j]);
        of_row[row] = scale[j];
    }
    assert_int_equal(n_rows * fold->n_sharing, k);
    f->n_shared += fold->n_sharing > 1;
}

static void fold_one(folding *f, const sw_transform_job *job, const sw_fold *fold, int64_t expert,
                     test_rng *rng)
{
    int64_t k = sw_model_site_width(&f->m.model, job->original->layer, fold->site);
    double *scale = malloc((size_t)k * sizeof *scale);
    sw_err err = {0};

    for (int64_t j = 0; j < k; j++) scale[j] = exp(1.2 * test_gauss(rng));
    scale[0] = (double)NAN; /* what no search should bring must do no harm */
    scale[1] = 0;
    scale[2] = 1e30;
    if (sw_fold_round(scale, job, fold, expert, k, &err) != SW_OK) fail_msg("%s", err.text);
    for (int64_t j = 0; j < k; j++) f->n_scaled += scale[j] < 0.9 || scale[j] > 1.1;
    assert_true(scale[0] == 1 && scale[1] == 1 && scale[2] == 1);
    expect_tied(f, scale, fold, k);
    if (sw_fold_apply(job, fold, expert, scale, k, &err) != SW_OK) fail_msg("%s", err.text);
    f->n_folds++;
    free(scale);
}

static void fold_all(folding *f)
{
    const sw_quant_options options = {.n_threads = 1};
    sw_quant_sink sink = {.self = f, .change = see_change};
    test_rng rng = {5};

    for (int64_t l = 0; l < f->m.model.n_layers; l++) {
        sw_transform_job job = {.model = &f->m.model, .st = f->m.st, .sink = &sink,
                                .options = &options,
                                .original = &f->m.lm.blocks[l], .linears = f->linears,
                                .quantized = &f->twin.lm.blocks[l]};
        sw_fold folds[SW_FOLDS_MAX];
        int n = sw_model_folds(folds, &f->m.model, l);

        select_linears(f, l);
        job.n_linears = f->n_linears;
        for (int i = 0; i < n; i++)
            for (int64_t e = 0; e < (folds[i].is_per_expert ? f->m.model.n_experts : 1); e++)
                fold_one(f, &job, &folds[i], folds[i].is_per_expert ? e : -1, &rng);
    }
}

/* Logits before and after, of both blocks. */
static void expect_unchanged(folding *f)
{
    int64_t n = TOKENS * f->m.model.vocab;
    uint32_t ids[TOKENS];
    test_rng rng = {9};
    float *before, *after, *twin;

    for (int i = 0; i < TOKENS; i++) ids[i] = (uint32_t)(test_u64(&rng) % f->m.model.vocab);
    before = model_logits(&f->m, 2, ids, 1, TOKENS);
    fold_all(f);
    after = model_logits(&f->m, 2, ids, 1, TOKENS);
    twin = model_logits(&f->twin, 2, ids, 1, TOKENS);
    assert_true(f->n_scaled > 0);
    assert_memory_equal(after, twin, (size_t)n * sizeof *after);
    if (!(relative_l2(after, before, n) <= 1e-5))
        fail_msg("have %g, want at most 1e-5", relative_l2(after, before, n));
    sw_mem_put(before);
    sw_mem_put(after);
    sw_mem_put(twin);
}

static void run_dir(const char *dir, const char *skip, int n_folds_min)
{
    folding *f = calloc(1, sizeof *f);

    assert_non_null(f);
    open_model_dir(&f->m, dir);
    open_model_dir(&f->twin, dir);
    f->skip = skip;
    expect_unchanged(f);
    assert_true(f->n_folds >= n_folds_min * f->m.model.n_layers);
    assert_true(f->n_shared == (f->m.model.n_kv_heads < f->m.model.n_heads) * f->m.model.n_layers);
    assert_true(f->n_changed > 0 || strstr(dir, "olmo2")); /* which has rows to fold into alone */
    open_model_close(&f->m);
    open_model_close(&f->twin);
    free(f);
}

/* The same of a toy that a recipe describes: every family has some folds. */
static void run_recipe(const char *name)
{
    folding *f = calloc(1, sizeof *f);
    char from[256];
    sw_err err = {0};
    scratch s;

    assert_non_null(f);
    scratch_open(&s);
    (void)snprintf(from, sizeof from, "tests/golden/recipes/%s", name);
    if (recipe_model_make(s.dir, from, "config.json", &err) != SW_OK) fail_msg("%s", err.text);
    open_model_dir(&f->m, s.dir);
    open_model_dir(&f->twin, s.dir);
    expect_unchanged(f);
    print_message("  %s: %d folds in %d layers\n", name, f->n_folds, (int)f->m.model.n_layers);
    assert_true(f->n_folds > 0);
    open_model_close(&f->m);
    open_model_close(&f->twin);
    scratch_close(&s);
    free(f);
}

static void test_every_family(void **state)
{
    DIR *d = opendir("tests/golden/recipes");
    const struct dirent *entry;
    int n = 0;

    (void)state;
    assert_non_null(d);
    while ((entry = readdir(d))) {
        if (strchr(entry->d_name, '.')) continue;
        run_recipe(entry->d_name);
        n++;
    }
    (void)closedir(d);
    assert_true(n >= 59);
}

static void test_every_architecture(void **state)
{
    DIR *d = opendir("tests/golden/arch");
    const struct dirent *entry;
    int n = 0;

    (void)state;
    assert_non_null(d);
    while ((entry = readdir(d))) {
        char path[512];
        (void)snprintf(path, sizeof path, "tests/golden/arch/%s/config.json", entry->d_name);
        if (entry->d_name[0] == '.' || !sw_path_exists(path)) continue;
        print_message("  %s\n", entry->d_name);
        path[strlen(path) - strlen("/config.json")] = '\0';
        run_dir(path, NULL, 1);
        n++;
    }
    (void)closedir(d);
    assert_true(n >= 7);
}

/* What stays in floats is changed by powers of two alone, so that storing it loses nothing. */
static void test_unquantized_readers_and_producers(void **state)
{
    static const char *const skips[] = {"k_proj", "gate_proj", "up_proj", "down_proj", "layers"};

    (void)state;
    for (int i = 0; i < 5; i++) run_dir("tests/golden/arch/llama", skips[i], 2);
    run_dir("tests/golden/arch/mixtral", "experts.1.w", 2);
}

static void test_a_trained_model(void **state)
{
    (void)state;
    run_dir("calib_data/tiny-llama", NULL, 4);
}

/* The llama fixture with every key-value head written out for each of its queries. */
static void add_repeated(st_build *b, const sw_st_tensor *t, int64_t head_dim)
{
    int64_t rows = t->view.shape[0], bytes = (int64_t)t->view.size_bytes / rows;
    int64_t shape[2] = {2 * rows, t->view.shape[1]};
    uint8_t *to = st_build_add(b, t->name, t->view.dtype, t->view.n_dims, shape, NULL);

    for (int64_t i = 0; i < 2 * rows; i++) {
        int64_t from = i / (2 * head_dim) * head_dim + i % head_dim;
        memcpy(to + i * bytes, (const uint8_t *)t->view.data + from * bytes, (size_t)bytes);
    }
}

static void open_without_sharing(open_model *out, st_build *b)
{
    open_model m;
    sw_err err = {0};

    open_model_dir(&m, "tests/golden/arch/llama");
    *out = m;
    out->model.n_kv_heads = m.model.n_heads;
    for (int64_t i = 0; i < sw_st_count(m.st); i++) {
        const sw_st_tensor *t = sw_st_at(m.st, i);
        if (strstr(t->name, "k_proj") || strstr(t->name, "v_proj"))
            add_repeated(b, t, m.model.head_dim);
        else
            st_build_add(b, t->name, t->view.dtype, t->view.n_dims, t->view.shape, t->view.data);
    }
    open_model_close(&m);
    memset(&out->lm, 0, sizeof out->lm);
    out->st = (sw_st *)(uintptr_t)st_build_open(b);
    if (sw_lm_load(&out->lm, &out->model, out->st, &err) != SW_OK) fail_msg("%s", err.text);
}

static void test_values_that_heads_do_not_share(void **state)
{
    folding *f = calloc(1, sizeof *f);
    st_build *a = calloc(1, sizeof *a), *b = calloc(1, sizeof *b);
    sw_fold folds[SW_FOLDS_MAX];

    (void)state;
    assert_true(f && a && b);
    open_without_sharing(&f->m, a);
    open_without_sharing(&f->twin, b);
    assert_int_equal(sw_model_folds(folds, &f->m.model, 0), 4);
    assert_int_equal(folds[1].producer, SW_SLOT_V);
    assert_int_equal(folds[1].site, SW_SITE_O_IN);
    assert_int_equal(folds[1].n_sharing, 1);
    expect_unchanged(f);
    assert_int_equal(f->n_folds, 4 * f->m.model.n_layers);
    sw_lm_free(&f->m.lm);
    sw_lm_free(&f->twin.lm);
    st_build_free(a);
    st_build_free(b);
    free(f);
    free(a);
    free(b);
}

static void test_maps_follow_the_programs(void **state)
{
    open_model m;
    sw_fold folds[SW_FOLDS_MAX];

    (void)state;
    open_model_dir(&m, "tests/golden/arch/llama");
    assert_int_equal(sw_model_folds(folds, &m.model, 0), 4);
    assert_true(folds[0].kind == SW_FOLD_NORM && folds[0].producer == SW_SLOT_NORM_ATTN &&
                folds[0].site == SW_SITE_ATTN_IN);
    assert_true(folds[1].kind == SW_FOLD_ROWS && folds[1].producer == SW_SLOT_V &&
                folds[1].site == SW_SITE_O_IN && folds[1].producer_site == SW_SITE_ATTN_IN);
    assert_true(folds[2].kind == SW_FOLD_NORM && folds[2].producer == SW_SLOT_NORM_MLP &&
                folds[2].site == SW_SITE_MLP_IN);
    assert_true(folds[3].kind == SW_FOLD_ROWS && folds[3].producer == SW_SLOT_UP &&
                folds[3].site == SW_SITE_DOWN_IN && !folds[3].is_per_expert);
    /* four heads of 32 share two: 0 and 1 read the first */
    assert_int_equal(sw_fold_row(&folds[1], 5), 5);
    assert_int_equal(sw_fold_row(&folds[1], 32 + 5), 5);
    assert_int_equal(sw_fold_row(&folds[1], 64 + 5), 32 + 5);
    assert_int_equal(sw_fold_row(&folds[1], 96 + 31), 32 + 31);
    open_model_close(&m);
    open_model_dir(&m, "tests/golden/arch/mixtral");
    assert_int_equal(sw_model_folds(folds, &m.model, 0), 4);
    assert_true(folds[3].is_per_expert);
    open_model_close(&m);
}

/* Rows of a fused linear, and of one that makes keys and values head by head. */
static void test_parts_of_linears(void **state)
{
    open_model m;
    sw_fold folds[SW_FOLDS_MAX];
    int64_t kv, q;

    (void)state;
    open_model_dir(&m, "tests/golden/arch/phi3");
    q = m.model.n_heads * m.model.head_dim;
    kv = m.model.n_kv_heads * m.model.head_dim;
    assert_int_equal(sw_model_folds(folds, &m.model, 0), 4);
    assert_true(folds[0].site == SW_SITE_ATTN_IN && folds[2].site == SW_SITE_MLP_IN);
    assert_true(folds[1].producer == SW_SLOT_QKV && folds[1].site == SW_SITE_O_IN);
    assert_int_equal(sw_fold_row(&folds[1], 0), q + kv);
    assert_int_equal(sw_fold_row(&folds[1], q - 1), q + 2 * kv - 1);
    assert_true(folds[3].producer == SW_SLOT_GATE_UP && folds[3].site == SW_SITE_DOWN_IN);
    assert_int_equal(sw_fold_row(&folds[3], 7), m.model.intermediate + 7);
    open_model_close(&m);
    open_model_dir(&m, "tests/golden/arch/gpt2"); /* an ungated MLP passes nothing */
    assert_int_equal(sw_model_folds(folds, &m.model, 0), 3);
    open_model_close(&m);
    open_model_dir(&m, "tests/golden/arch/deepseek_v3");
    assert_int_equal(sw_model_folds(folds, &m.model, 0), 6);
    assert_true(folds[3].producer == SW_SLOT_KV_B && folds[3].site == SW_SITE_O_IN);
    assert_int_equal(sw_fold_row(&folds[3], 0), m.model.head_dim - m.model.rope_dim);
    assert_int_equal(sw_fold_row(&folds[3], m.model.v_head_dim),
                     2 * (m.model.head_dim - m.model.rope_dim) + m.model.v_head_dim);
    open_model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_maps_follow_the_programs),
        cmocka_unit_test(test_parts_of_linears),
        cmocka_unit_test(test_every_architecture),
        cmocka_unit_test(test_every_family),
        cmocka_unit_test(test_unquantized_readers_and_producers),
        cmocka_unit_test(test_a_trained_model),
        cmocka_unit_test(test_values_that_heads_do_not_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
