/* test_mixed.c - checkpoints whose linears have different schemes: written, read back by both
 * decoders, and configs of other writers with patterns in them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/cases/ckpt_case.h"
#include "tests/support/toys/qtensor_gen.h"
#include "verify/decoders/decode_spec.h"

static void must(sw_code rc, const sw_err *err)
{
    if (rc != SW_OK) fail_msg("%s", err->text);
}

/* Give every third linear of a kind another scheme; fused groups do not matter down here. */
static void mix(ckpt_case *c, sw_qspec specs[3])
{
    static const struct { int bits; bool is_symmetric; int64_t group; } kinds[3] = {
        {4, true, 32}, {8, false, 64}, {3, true, 0}};

    for (int i = 0; i < 3; i++) {
        specs[i] = c->config.spec;
        specs[i].num = sw_num_by_bits(kinds[i].bits);
        specs[i].is_symmetric = kinds[i].is_symmetric;
        specs[i].group_elems = kinds[i].group;
    }
    for (int64_t i = 0; i < c->n; i++) {
        const sw_qspec *spec = &specs[i % 3];
        sw_qtensor_free(&c->q[i]);
        sw_gen_qtensor(&c->q[i], spec->num->bits, spec->is_symmetric, spec->group_elems,
                       spec->scale_dtype, c->linears[i].n_out, c->linears[i].k_in, SW_GEN_RANDOM,
                       c->config.spec.zero_min, (uint64_t)i + 7);
        for (int64_t s = 0; s < c->q[i].n_out * c->q[i].n_groups; s++)
            if (c->q[i].scales[s] > 128) c->q[i].scales[s] = 128; /* the judge's limit */
        c->linears[i].spec = spec;
    }
}

static void check_first_decoder(const ckpt_case *c, const sw_checkpoint *back)
{
    sw_err err = {0};

    for (int64_t i = 0; i < c->n; i++) {
        sw_qtensor q;
        must(sw_checkpoint_qtensor(&q, back, c->paths[i], c->linears[i].n_out, c->linears[i].k_in,
                                   &err), &err);
        assert_true(sw_qspec_same(&q.spec, c->linears[i].spec));
        sw_gen_assert_same(&q, &c->q[i]);
        sw_qtensor_free(&q);
    }
}

static void check_second_decoder(const ckpt_case *c, const sw_checkpoint *back)
{
    sw_spec_scheme scheme;
    sw_err err = {0};

    must(sw_spec_scheme_read(&scheme, sw_json_member(back->config, "quantization_config"), &err),
         &err);
    assert_int_equal(scheme.bits_min, 3);
    for (int64_t i = 0; i < c->n; i++) {
        const sw_qtensor *q = &c->q[i];
        sw_spec_weight w = {0};
        must(sw_spec_decode(&w, &scheme, back->st, c->paths[i], q->n_out, q->k_in, &err), &err);
        assert_int_equal(w.bits, q->spec.num->bits);
        assert_int_equal(w.n_groups, q->n_groups);
        assert_memory_equal(w.codes, q->codes, (size_t)(q->n_out * q->k_in));
        assert_memory_equal(w.scales, q->scales,
                            (size_t)(q->n_out * q->n_groups) * sizeof *q->scales);
        sw_spec_weight_free(&w);
    }
}

static void both_decoders_read_every_dialect(void **state)
{
    (void)state;
    for (const sw_dialect *const *d = sw_dialects; *d; d++) {
        sw_qspec specs[3];
        scratch s;
        ckpt_case c;
        sw_checkpoint back;
        sw_err err = {0};

        scratch_open(&s);
        ckpt_source(&s, "llama");
        ckpt_open(&c, &s, *d, 4, true, 32);
        if (!sw_gen_holds_integers(*d)) goto next;
        mix(&c, specs);
        must(ckpt_write(&c, &s, "out", *d, false, 0, false, &err), &err);
        must(sw_checkpoint_open(&back, scratch_path(&s, "out"), &err), &err);
        assert_ptr_equal(back.dialect, *d);
        assert_true(back.qconfig.n_rules > 0);
        check_first_decoder(&c, &back);
        check_second_decoder(&c, &back);
        sw_checkpoint_close(&back);
    next:
        ckpt_close(&c);
        scratch_close(&s);
    }
}

typedef struct foreign {
    const char *config, *path;
    int bits; /* 0: refused */
    int64_t group;
    bool is_symmetric;
} foreign;

#define CT "{\"quant_method\":\"compressed-tensors\",\"config_groups\":{"
#define CT_GROUP(name, targets, bits)                                                          \
    "\"" name "\":{\"targets\":[" targets "],\"weights\":{\"num_bits\":" bits                   \
    ",\"group_size\":64,\"strategy\":\"group\"}}"
#define GPTQ "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":128,\"dynamic\":{"
#define SWAGE "{\"quant_method\":\"swage\",\"layout\":\"swage-tiles\",\"layout_version\":2,"      \
              "\"bits\":4,\"group_size\":128,\"modules\":"
#define DOWN "model.layers.1.mlp.down_proj"

static const foreign rows[] = {
    /* the first rule that matches from the start decides */
    {GPTQ "\"+:model\\\\..*down\":{\"bits\":8,\"group_size\":32}}}", DOWN, 8, 32, true},
    {GPTQ "\".*1.*down_proj\":{\"sym\":false},\".*down.*\":{\"bits\":8}}}", DOWN, 4, 128, false},
    {GPTQ "\"down_proj\":{\"bits\":8}}}", DOWN, 4, 128, true},
    {GPTQ "\"-:.*up.*\":{},\"+:^model\\\\.layers\\\\.1\\\\.mlp\\\\.down_proj$\":{\"bits\":2}}}",
     DOWN, 2, 128, true},
    {GPTQ "\"+:(\":{\"bits\":8}}}", DOWN, 0, 0, false},
    {GPTQ "\"+:.*\":{\"bits\":5}}}", DOWN, 0, 0, false},
    /* names and patterns go before the class, wherever the class stands */
    {CT CT_GROUP("group_0", "\"Linear\"", "4") "," CT_GROUP("group_1", "\"re:.*down_proj\"", "8")
     "}}", DOWN, 8, 64, true},
    {CT CT_GROUP("group_0", "\"re:.*q_proj\"", "8") "," CT_GROUP("group_1", "\"" DOWN "\"", "3")
     "}}", DOWN, 3, 64, true},
    {CT CT_GROUP("group_0", "\"re:.*q_proj\"", "8") "," CT_GROUP("group_1", "\"Linear\"", "4")
     "}}", DOWN, 4, 64, true},
    {CT CT_GROUP("group_0", "\"re:.*q_proj\"", "8") "," CT_GROUP("group_1", "\"re:.*up\"", "4")
     "}}", DOWN, 0, 0, false},
    {SWAGE "{\"" DOWN "\":{\"bits\":8,\"group_size\":-1,\"sym\":false}}}", DOWN, 8, 0, false},
    {SWAGE "{\"" DOWN "x\":{\"bits\":8}}}", DOWN, 4, 128, true},
    {SWAGE "{\"" DOWN "\":{\"bits\":7}}}", DOWN, 0, 0, false},
    {SWAGE "[]}", DOWN, 0, 0, false},
};

static sw_code first_reading(sw_qspec *out, const cJSON *object, const char *path, sw_err *err)
{
    const sw_dialect *dialect = sw_dialect_detect(object);
    sw_qconfig config = {.spec.scale_dtype = SW_DTYPE_F16};
    sw_arena arena = {0};
    sw_rules *rules = NULL;
    sw_code rc = dialect->read_config(&config, object, &arena, err);

    if (rc == SW_OK) rc = sw_rules_new(&rules, &config, err);
    if (rc == SW_OK) rc = sw_rules_find(out, rules, path, err);
    sw_rules_free(rules);
    sw_arena_free(&arena);
    return rc;
}

static void patterns_of_others_are_read_alike(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const foreign *f = &rows[i];
        cJSON *object = cJSON_Parse(f->config);
        sw_spec_scheme scheme, one = {.bits = 0};
        sw_qspec spec = {.num = NULL};
        sw_err err = {0}, second_err = {0};
        sw_code first, second;

        assert_non_null(object);
        first = first_reading(&spec, object, f->path, &err);
        second = sw_spec_scheme_read(&scheme, object, &second_err);
        if (second == SW_OK) second = sw_spec_scheme_of(&one, &scheme, f->path, &second_err);
        if ((first == SW_OK) != (f->bits > 0) || (second == SW_OK) != (f->bits > 0))
            fail_msg("row %zu: %d \"%s\", %d \"%s\"", i, first, err.text, second,
                     second_err.text);
        if (f->bits) {
            assert_int_equal(spec.num->bits, f->bits);
            assert_int_equal(spec.group_elems, f->group);
            assert_int_equal(spec.is_symmetric, f->is_symmetric);
            assert_int_equal(one.bits, f->bits);
            assert_int_equal(one.group_elems, f->group);
            assert_int_equal(one.is_symmetric, f->is_symmetric);
        } else {
            assert_true(err.text[0] && second_err.text[0]);
        }
        cJSON_Delete(object);
    }
}

/* A pattern that backtracks without end is stopped, not waited for. */
static void a_hostile_pattern_is_given_up(void **state)
{
    cJSON *object = cJSON_Parse(GPTQ "\"+:(a+a+)+[bc]$\":{\"bits\":8}}}");
    sw_spec_scheme scheme, one;
    sw_qspec spec;
    sw_err err = {0}, second_err = {0};
    char path[64];

    (void)state;
    memset(path, 'a', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    assert_non_null(object);
    assert_int_equal(first_reading(&spec, object, path, &err), SW_E_FORMAT);
    assert_int_equal(sw_spec_scheme_read(&scheme, object, &second_err), SW_OK);
    assert_int_equal(sw_spec_scheme_of(&one, &scheme, path, &second_err), SW_E_FORMAT);
    cJSON_Delete(object);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_decoders_read_every_dialect),
        cmocka_unit_test(patterns_of_others_are_read_alike),
        cmocka_unit_test(a_hostile_pattern_is_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
