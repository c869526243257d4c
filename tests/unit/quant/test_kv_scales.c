/* test_kv_scales.c - scales of an eight-bit cache against what a cache of the quantized model
 * really holds, and which checkpoints carry them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/dialect/dialect.h"
#include "formats/io/file_content.h"
#include "kernels/blas.h"
#include "kernels/engine/engine.h"
#include "quant/run/pipeline.h"
#include "tests/support/toys/random.h"

enum { SEQS = 6, LEN = 64, LAYERS = 2, SLOTS = SW_SLOT_COUNT };

typedef struct toy {
    cJSON *config;
    sw_model model;
    sw_st *st;
    uint32_t ids[SEQS * LEN];
    float *values[LAYERS + 1][SLOTS]; /* decoded weights of what was quantized, the head last */
    float scales[LAYERS][2];
    int n_puts;
    const char *skip; /* paths that contain this stay */
} toy;

static void toy_open(toy *t, unsigned seed)
{
    test_rng rng = {seed};
    sw_err err = {0};

    memset(t, 0, sizeof *t);
    sw_blas_single_thread();
    assert_int_equal(sw_json_read(&t->config, "tests/golden/arch/llama/config.json",
                                  &sw_json_caps_config, &err), SW_OK);
    assert_int_equal(sw_model_read(&t->model, t->config, &err), SW_OK);
    assert_int_equal(sw_st_open(&t->st, "tests/golden/arch/llama", &err), SW_OK);
    assert_int_equal(t->model.n_layers, LAYERS);
    for (int i = 0; i < SEQS * LEN; i++)
        t->ids[i] = (uint32_t)(test_uniform(&rng) * (double)t->model.vocab);
}

static void toy_close(toy *t)
{
    for (int i = 0; i < (LAYERS + 1) * SLOTS; i++) sw_mem_put(t->values[i / SLOTS][i % SLOTS]);
    cJSON_Delete(t->config);
    sw_st_close(t->st);
}

static sw_code put(void *self, const sw_linear_ref *ref, const char *path, const sw_qtensor *q,
                   const sw_solve_report *report, sw_err *err)
{
    toy *t = self;
    float **values = &t->values[ref->layer][ref->slot];

    (void)path;
    (void)report;
    assert_int_equal(SW_MEM_GET(values, q->n_out * q->k_in, "values", err), SW_OK);
    sw_qtensor_decode(*values, q);
    return SW_OK;
}

static sw_code put_kv(void *self, int64_t layer, float k_scale, float v_scale, sw_err *err)
{
    toy *t = self;

    (void)err;
    assert_int_equal(layer, t->n_puts++); /* once each, in order */
    t->scales[layer][0] = k_scale;
    t->scales[layer][1] = v_scale;
    return SW_OK;
}

static bool is_selected(void *self, const sw_linear_ref *ref, const char *path)
{
    const toy *t = self;

    (void)ref;
    return !t->skip || !strstr(path, t->skip);
}

static void quantize(toy *t, sw_sequential sequential, const sw_num *num)
{
    sw_quant_sink sink = {.self = t, .put = put, .is_selected = is_selected, .put_kv = put_kv};
    sw_quant_options o = sw_quant_defaults();
    sw_calib calib = {t->ids, SEQS, LEN};
    sw_err err = {0};

    o.algo = sw_algo_find("rtn");
    o.spec.group_elems = 32;
    o.sequential = sequential;
    o.kv_num = num;
    if (sw_quant_run(&t->model, t->st, &calib, &o, &sink, NULL, &err) != SW_OK)
        fail_msg("%s", err.text);
    assert_int_equal(t->n_puts, LAYERS);
}

static float amax_of(float amax, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) amax = fmaxf(amax, fabsf(x[i]));
    return amax;
}

static void use_values(sw_block *block, float *const values[SLOTS])
{
    for (int slot = 0; slot < SLOTS; slot++) {
        sw_weight *w = values[slot] ? sw_block_weight(block, (sw_slot)slot, -1) : NULL;
        if (!w) continue;
        w->dense = values[slot];
        w->dense_dtype = SW_DTYPE_F32;
    }
}

/* What caches hold after every sequence has run through the blocks, with weights put in. */
static void caches_hold(float amax[LAYERS][2], const toy *t, bool is_quantized)
{
    const sw_model *m = &t->model;
    float *x = NULL;
    sw_engine *e = NULL;
    sw_lm lm = {0};
    sw_err err = {0};

    memset(amax, 0, LAYERS * sizeof *amax);
    assert_int_equal(sw_engine_new(&e, m, LEN, LEN, 1, &err), SW_OK);
    assert_int_equal(sw_lm_load(&lm, m, t->st, &err), SW_OK);
    assert_int_equal(SW_MEM_GET(&x, LEN * m->hidden, "x", &err), SW_OK);
    for (int l = 0; l < LAYERS && is_quantized; l++) use_values(&lm.blocks[l], t->values[l]);
    for (int seq = 0; seq < SEQS; seq++) {
        assert_int_equal(sw_engine_embed(e, &lm, x, t->ids + seq * LEN, 1, LEN, 0, &err), SW_OK);
        for (int l = 0; l < LAYERS; l++) {
            sw_kv kv = {0};
            assert_int_equal(sw_kv_reserve(&kv, m, 0, LEN, &err), SW_OK);
            assert_int_equal(sw_engine_block(e, &lm.blocks[l], x, 1, LEN, &kv, NULL,
                                             (sw_site)SW_RUN_ALL, &err), SW_OK);
            amax[l][0] = amax_of(amax[l][0], kv.k, LEN * m->n_kv_heads * m->head_dim);
            amax[l][1] = amax_of(amax[l][1], kv.v, LEN * m->n_kv_heads * m->v_head_dim);
            sw_kv_free(&kv);
        }
    }
    sw_mem_put(x);
    sw_lm_free(&lm);
    sw_engine_free(e);
}

static void scales_are_those_of_the_cache(void **state)
{
    static const struct { sw_sequential sequential; const char *skip; sw_num_id codes; } rows[] = {
        {SW_SEQUENTIAL_SITE, NULL, SW_NUM_E4M3}, {SW_SEQUENTIAL_LAYER, NULL, SW_NUM_INT8},
        {SW_SEQUENTIAL_SITE, "mlp", SW_NUM_E4M3}, {SW_SEQUENTIAL_SITE, "self_attn", SW_NUM_INT8}};

    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const float top = rows[r].codes == SW_NUM_INT8 ? 127.0f : 448.0f;
        float want[LAYERS][2], plain[LAYERS][2];
        toy t;

        toy_open(&t, 29 + (unsigned)r);
        t.skip = rows[r].skip;
        quantize(&t, rows[r].sequential, &sw_nums[rows[r].codes]);
        caches_hold(want, &t, true);
        caches_hold(plain, &t, false);
        for (int l = 0; l < LAYERS; l++)
            for (int i = 0; i < 2; i++)
                if (fabsf(t.scales[l][i] * top - want[l][i]) > 1e-4f * want[l][i])
                    fail_msg("row %zu, layer %d, %c: have %g, want %g", r, l, "kv"[i],
                             (double)t.scales[l][i], (double)(want[l][i] / top));
        /* the original's stream would give others */
        assert_true(fabsf(plain[1][0] - want[1][0]) > 1e-3f * want[1][0]);
        toy_close(&t);
    }
}

#define CT_HEAD "{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"group_0\":{" \
    "\"targets\":[\"Linear\"],\"weights\":{\"num_bits\":4,\"group_size\":128," \
    "\"strategy\":\"group\"}}},\"kv_cache_scheme\":"

static void configs_name_the_cache(void **state)
{
    static const struct { const char *text; sw_code code; const sw_num *num; } rows[] = {
        {CT_HEAD "null}", SW_OK, NULL},
        {CT_HEAD "{\"num_bits\":8,\"type\":\"float\"}}", SW_OK, &sw_nums[SW_NUM_E4M3]},
        {CT_HEAD "{\"num_bits\":8,\"type\":\"int\"}}", SW_OK, &sw_nums[SW_NUM_INT8]},
        {CT_HEAD "{\"num_bits\":4,\"type\":\"int\"}}", SW_E_UNSUPPORTED, NULL},
        {CT_HEAD "{\"num_bits\":8,\"type\":\"int\",\"symmetric\":false}}", SW_E_UNSUPPORTED, NULL},
        {CT_HEAD "{\"num_bits\":8,\"type\":\"float\",\"dynamic\":true}}", SW_E_UNSUPPORTED, NULL},
        {CT_HEAD "{\"num_bits\":8,\"type\":\"float\",\"strategy\":\"channel\"}}",
         SW_E_UNSUPPORTED, NULL}};
    const sw_dialect *ct = sw_dialect_find("compressed-tensors");

    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        cJSON *read = cJSON_Parse(rows[r].text);
        sw_qconfig back = {0};
        sw_arena arena = {0};
        sw_err why = {0};
        assert_non_null(read);
        if (ct->read_config(&back, read, &arena, &why) != rows[r].code)
            fail_msg("row %zu: \"%s\"", r, why.text);
        if (rows[r].code != SW_OK) assert_non_null(strstr(why.text, "kv_cache_scheme"));
        assert_ptr_equal(back.kv_num, rows[r].num);
        cJSON_Delete(read);
        sw_arena_free(&arena);
    }
}

static void check_written(sw_num_id codes, const char *type)
{
    const sw_dialect *ct = sw_dialect_find("compressed-tensors");
    sw_qconfig config = {.kv_num = &sw_nums[codes]};
    cJSON *object = NULL, *scheme;
    sw_err err = {0};

    config.spec = sw_quant_defaults().spec;
    assert_int_equal(ct->write_config(&object, &config, &err), SW_OK);
    scheme = cJSON_GetObjectItem(object, "kv_cache_scheme");
    assert_string_equal(cJSON_GetObjectItem(scheme, "type")->valuestring, type);
    assert_string_equal(cJSON_GetObjectItem(scheme, "strategy")->valuestring, "tensor");
    assert_int_equal(cJSON_GetObjectItem(scheme, "num_bits")->valueint, 8);
    assert_true(cJSON_IsFalse(cJSON_GetObjectItem(scheme, "dynamic")));
    cJSON_Delete(object);
}

static void configs_say_which_codes(void **state)
{
    (void)state;
    check_written(SW_NUM_E4M3, "float");
    check_written(SW_NUM_INT8, "int");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scales_are_those_of_the_cache),
        cmocka_unit_test(configs_name_the_cache),
        cmocka_unit_test(configs_say_which_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
