/* test_ct_packing.c - 4-bit weights of compressed-tensors whose inputs are quantized: engines look
 * for them in packed words, older writers stored a byte a code, and both are read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/mem.h"
#include "tests/support/cases/ckpt_case.h"
#include "tests/support/toys/qtensor_gen.h"
#include "verify/decoders/decode_spec.h"

static void must(sw_code rc, const sw_err *err)
{
    if (rc != SW_OK) fail_msg("%s", err->text);
}

static const struct {
    sw_num_id inputs;
    int64_t group;
    bool has_byte_codes;
    const char *format, *codes;
} rows[] = {
    {SW_NUM_INT8, 32, false, "pack-quantized", "weight_packed"},
    {SW_NUM_E4M3, 32, false, "pack-quantized", "weight_packed"},
    {SW_NUM_INT8, 32, true, "int-quantized", "weight"},
    {SW_NUM_E4M3, 32, true, "int-quantized", "weight"},
    {SW_NUM_INT8, 0, false, "int-quantized", "weight"}, /* whole channels stay bytes */
};

static void write_row(ckpt_case *c, const scratch *s, size_t r)
{
    const sw_act act = {&sw_nums[rows[r].inputs], SW_ACT_TOKEN, 0, SW_DTYPE_F32};
    const sw_dialect *d = sw_dialect_find("compressed-tensors");
    sw_err err = {0};

    ckpt_source(s, "llama");
    ckpt_open(c, s, d, 4, true, rows[r].group);
    ckpt_round(c);
    for (int64_t i = 0; i < c->n; i++) {
        c->q[i].spec.act = act;
        c->q[i].spec.has_byte_codes = rows[r].has_byte_codes;
    }
    c->config.spec = c->q[0].spec;
    must(ckpt_write(c, s, "out", d, false, 0, false, &err), &err);
}

/* The text of quantization_config names the format, and the tensors are where it says. */
static void check_form(const sw_checkpoint *ckpt, const char *path, size_t r)
{
    cJSON *quant = cJSON_GetObjectItem(ckpt->config, "quantization_config");
    cJSON *group = cJSON_GetObjectItem(cJSON_GetObjectItem(quant, "config_groups"), "group_0");
    char name[300];

    assert_string_equal(cJSON_GetObjectItem(group, "format")->valuestring, rows[r].format);
    (void)snprintf(name, sizeof name, "%s.%s", path, rows[r].codes);
    assert_non_null(sw_st_find(ckpt->st, name));
}

static void check_judge(const sw_checkpoint *ckpt, const char *path, const sw_qtensor *want)
{
    const cJSON *quant = cJSON_GetObjectItem(ckpt->config, "quantization_config");
    sw_spec_scheme scheme;
    sw_spec_weight w;
    sw_err err = {0};

    must(sw_spec_scheme_read(&scheme, quant, &err), &err);
    must(sw_spec_decode(&w, &scheme, ckpt->st, path, want->n_out, want->k_in, &err), &err);
    assert_memory_equal(w.codes, want->codes, (size_t)(want->n_out * want->k_in));
    assert_memory_equal(w.scales, want->scales,
                        sizeof *w.scales * (size_t)(want->n_out * want->n_groups));
    sw_spec_weight_free(&w);
}

static void both_forms_are_read(void **state)
{
    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        ckpt_case c = {0};
        sw_checkpoint opened;
        scratch s;
        sw_err err = {0};

        scratch_open(&s);
        write_row(&c, &s, r);
        must(sw_checkpoint_open(&opened, scratch_path(&s, "out"), &err), &err);
        check_form(&opened, c.paths[0], r);
        for (int64_t i = 0; i < c.n; i++) {
            sw_qtensor q;
            must(sw_checkpoint_qtensor(&q, &opened, c.paths[i], c.q[i].n_out, c.q[i].k_in, &err),
                 &err);
            sw_gen_assert_same(&q, &c.q[i]);
            assert_false(q.spec.has_byte_codes); /* what is made of it is packed */
            sw_qtensor_free(&q);
            check_judge(&opened, c.paths[i], &c.q[i]);
        }
        sw_checkpoint_close(&opened);
        ckpt_close(&c);
        scratch_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(both_forms_are_read)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
