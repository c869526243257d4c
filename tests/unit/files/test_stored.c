/* test_stored.c - where checkpoints keep linears; experts of one tensor taken apart, and judged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "formats/checkpoint/checkpoint.h"
#include "formats/model/stored.h"
#include "tests/support/cases/quantized_dir.h"
#include "tests/support/cases/verify_case.h"
#include "tests/support/scratch.h"
#include "tests/support/toys/open_model.h"
#include "tests/support/toys/patched_model.h"

#define OSS "tests/golden/arch/gpt_oss"
#define EXPERTS "model.layers.1.mlp.experts."

static uint16_t at(const sw_st *st, const char *name, int64_t i)
{
    uint16_t bits;

    memcpy(&bits, (const char *)sw_st_find(st, name)->view.data + 2 * i, 2);
    return bits;
}

/* Every element of one expert against the place that the layout gives it. */
static void test_fused_experts(void **state)
{
    uint16_t *rows = calloc(256 * 128, sizeof *rows);
    sw_stored gate, up, down, bias;
    open_model m;
    sw_err err = {0};

    (void)state;
    open_model_dir(&m, OSS);
    assert_int_equal(sw_stored_weight(&gate, &m.model, m.st, 1, SW_SLOT_GATE, 3, &err), SW_OK);
    assert_int_equal(sw_stored_weight(&up, &m.model, m.st, 1, SW_SLOT_UP, 3, &err), SW_OK);
    assert_int_equal(sw_stored_weight(&down, &m.model, m.st, 1, SW_SLOT_DOWN, 3, &err), SW_OK);
    assert_int_equal(sw_stored_bias(&bias, &m.model, m.st, 1, SW_SLOT_UP, 3, &err), SW_OK);
    assert_false(sw_stored_is_plain(&gate) || sw_stored_is_plain(&down));
    for (int pass = 0; pass < 2; pass++) {
        sw_stored_copy(rows, pass ? &up : &gate);
        for (int64_t n = 0; n < 256; n++)
            for (int64_t k = 0; k < 128; k++)
                assert_int_equal(rows[n * 128 + k], at(m.st, EXPERTS "gate_up_proj",
                                                       (3 * 128 + k) * 512 + 2 * n + pass));
    }
    sw_stored_copy(rows, &down);
    for (int64_t n = 0; n < 128; n++)
        for (int64_t k = 0; k < 256; k++)
            assert_int_equal(rows[n * 256 + k],
                             at(m.st, EXPERTS "down_proj", (3 * 256 + k) * 128 + n));
    sw_stored_copy(rows, &bias);
    for (int64_t n = 0; n < 256; n++)
        assert_int_equal(rows[n], at(m.st, EXPERTS "gate_up_proj_bias", 3 * 512 + 2 * n + 1));
    open_model_close(&m);
    free(rows);
}

static void test_transposed(void **state)
{
    uint16_t *rows = calloc(384 * 128, sizeof *rows);
    sw_stored s;
    open_model m;
    sw_err err = {0};

    (void)state;
    open_model_dir(&m, "tests/golden/arch/gpt2");
    assert_int_equal(sw_stored_weight(&s, &m.model, m.st, 0, SW_SLOT_QKV, -1, &err), SW_OK);
    assert_true(s.n_out == 384 && s.k_in == 128 && !sw_stored_is_plain(&s));
    sw_stored_copy(rows, &s);
    for (int64_t n = 0; n < 384; n++)
        for (int64_t k = 0; k < 128; k++)
            assert_int_equal(rows[n * 128 + k],
                             at(m.st, "transformer.h.0.attn.c_attn.weight", k * 384 + n));
    s.n_out = 101; /* no multiple of any block */
    s.k_in = 77;
    s.first = 5;
    sw_stored_copy(rows, &s);
    for (int64_t n = 0; n < 101; n++)
        for (int64_t k = 0; k < 77; k++)
            assert_int_equal(rows[n * 77 + k],
                             at(m.st, "transformer.h.0.attn.c_attn.weight", 5 + k * 384 + n));
    assert_int_equal(sw_stored_bias(&s, &m.model, m.st, 0, SW_SLOT_QKV, -1, &err), SW_OK);
    assert_true(sw_stored_is_plain(&s) && s.n_out == 384);
    open_model_close(&m);
    free(rows);
}

static void test_misfits(void **state)
{
    sw_stored s = {.n_out = -7};
    open_model m;
    sw_err err = {0}, err2 = {0};

    (void)state;
    open_model_dir(&m, OSS);
    m.model.n_experts = 5;
    assert_int_equal(sw_stored_weight(&s, &m.model, m.st, 0, SW_SLOT_UP, 3, &err), SW_E_FORMAT);
    assert_non_null(strstr(err.text, "gate_up_proj: BF16 [4, 128, 512]"));
    assert_non_null(strstr(err.text, "asks for [5, 128, 512]"));
    assert_int_equal(sw_stored_bias(&s, &m.model, m.st, 0, SW_SLOT_DOWN, 3, &err2), SW_E_FORMAT);
    assert_non_null(strstr(err2.text, "down_proj_bias"));
    assert_int_equal(s.n_out, -7);
    open_model_close(&m);
}

/* A tensor of all experts goes as a whole or stays as a whole. */
static void test_half_of_the_experts(void **state)
{
    const sw_dialect *d = sw_dialect_find("swage");
    sw_checkpoint *source = calloc(1, sizeof *source);
    sw_ckpt_writer *w = NULL;
    sw_ckpt_linear linears[] = {{"model.layers.0.mlp.experts.0.down_proj", 128, 256, NULL},
                                {"model.layers.0.mlp.experts.1.down_proj", 128, 256, NULL}};
    sw_qconfig config = {.damp = 0};
    sw_err err = {0};
    scratch s;

    (void)state;
    scratch_open(&s);
    assert_int_equal(sw_checkpoint_open(source, OSS, &err), SW_OK);
    config.spec = (sw_qspec){.num = sw_num_by_bits(4), .is_symmetric = true, .group_elems = 32,
                             .zero_min = d->zero_min,
                             .scale_dtype = d->scale_dtype(source->model.dtype)};
    assert_int_equal(sw_ckpt_writer_new(&w, source, scratch_path(&s, "q"), false, d, &config,
                                        linears, 2, 0, &err), SW_E_USAGE);
    assert_non_null(strstr(err.text, "all experts or none"));
    assert_null(w);
    sw_checkpoint_close(source);
    free(source);
    scratch_close(&s);
}

/* A flipped bit in the bias of one expert of the result, found by name. */
static void test_spoilt_bias_is_found(void **state)
{
    char file[SW_PATH_BYTES];
    const sw_st_tensor *t;
    sw_verify_options o;
    sw_report r;
    sw_map map = {0};
    sw_st *st = NULL;
    sw_err err = {0};
    size_t place, n_bytes;
    char *bytes;
    scratch s;

    (void)state;
    scratch_open(&s);
    patched_model_make(scratch_path(&s, "model"), OSS, "proj_bias", 0.2, 9);
    quantized_dir_make(scratch_path(&s, "q"), scratch_path(&s, "model"), "swage", 4, true, 32);
    assert_int_equal(sw_path_join(file, scratch_path(&s, "q"), "model.safetensors", &err), SW_OK);
    assert_int_equal(sw_st_open(&st, file, &err), SW_OK);
    assert_int_equal(sw_map_open(&map, file, &err), SW_OK);
    t = sw_st_find(st, EXPERTS "2.up_proj.bias");
    assert_non_null(t);
    assert_null(sw_st_find(st, EXPERTS "gate_up_proj_bias"));
    for (place = 0; memcmp((const char *)map.data + place, t->view.data, t->view.size_bytes);)
        place++;
    n_bytes = map.size_bytes;
    bytes = malloc(n_bytes);
    memcpy(bytes, map.data, n_bytes);
    bytes[place + 5] ^= 1;
    sw_st_close(st);
    sw_map_close(&map);
    assert_int_equal(sw_file_put(file, bytes, n_bytes, &err), SW_OK);
    free(bytes);
    o = verify_options_for(scratch_path(&s, "q"));
    o.original_dir = scratch_path(&s, "model");
    o.n_texts = 0;
    verify_run(&r, &o);
    verify_expect_fail(&r, "differs", "experts.2.up_proj");
    sw_report_free(&r);
    scratch_close(&s);
}

/* Checkpoints of the decoder alone: the same numbers under shorter names, quantized and judged. */
static void test_bare_names(void **state)
{
    static const char *const cases[][2] = {{"gpt2", "transformer."}, {"opt", "model."},
                                           {"gpt_oss", "model."}};
    static const uint32_t ids[6] = {5, 17, 99, 200, 3, 41};

    (void)state;
    for (int i = 0; i < 3; i++) {
        char from[128];
        open_model full, bare;
        float *have, *want;
        sw_verify_options o;
        sw_report r;
        scratch s;

        scratch_open(&s);
        (void)snprintf(from, sizeof from, "tests/golden/arch/%s", cases[i][0]);
        patched_names_make(scratch_path(&s, "m"), from, cases[i][1]);
        open_model_dir(&full, from);
        open_model_dir(&bare, scratch_path(&s, "m"));
        assert_true(strlen(sw_model_end(&bare.model, SW_END_EMBED)) <
                    strlen(sw_model_end(&full.model, SW_END_EMBED)));
        want = model_logits(&full, 1, ids, 1, 6);
        have = model_logits(&bare, 1, ids, 1, 6);
        assert_memory_equal(have, want, (size_t)(6 * full.model.vocab) * sizeof *have);
        quantized_dir_make(scratch_path(&s, "q"), scratch_path(&s, "m"), "swage", 8, true, 32);
        o = verify_options_for(scratch_path(&s, "q"));
        o.original_dir = scratch_path(&s, "m");
        o.n_texts = 0;
        verify_run(&r, &o);
        verify_expect_pass(&r);
        assert_true(r.n_tensors > 7);
        sw_report_free(&r);
        sw_mem_put(want);
        sw_mem_put(have);
        open_model_close(&full);
        open_model_close(&bare);
        scratch_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fused_experts),      cmocka_unit_test(test_transposed),
        cmocka_unit_test(test_misfits),            cmocka_unit_test(test_half_of_the_experts),
        cmocka_unit_test(test_spoilt_bias_is_found), cmocka_unit_test(test_bare_names),
    };
    return cmocka_run_group_tests_name("stored", tests, NULL, NULL);
}
