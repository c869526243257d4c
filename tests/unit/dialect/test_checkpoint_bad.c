/* test_checkpoint_bad.c - quantized checkpoints that must not be believed: each is refused with
 * the right code and a message that names file, tensor and reason. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "tests/support/cases/ckpt_case.h"

#define MODULE "model.layers.1.mlp.up_proj"

static void must(sw_code rc, const sw_err *err)
{
    if (rc != SW_OK) fail_msg("%s", err->text);
}

/* What is done to one tensor of the finished checkpoint. */
typedef struct edit {
    const char *dialect;
    const char *suffix;      /* of MODULE */
    enum { DROP, RETYPE, RESHAPE, POKE } how;
    sw_dtype dtype;          /* RETYPE: same width, other name */
    int64_t poke_at;         /* POKE: byte offset of a 16-bit value */
    uint16_t poke;
    sw_code code;
    const char *reason;      /* NULL: must still be read */
    void *copy;
} edit;

static bool apply(void *ctx, const char *name, sw_cview *view)
{
    edit *e = ctx;
    char want[300];
    sw_err err = {0};

    snprintf(want, sizeof want, "%s.%s", MODULE, e->suffix);
    if (strcmp(name, want)) return true;
    if (e->how == DROP) return false;
    if (e->how == RETYPE) view->dtype = e->dtype;
    if (e->how == RESHAPE) {
        view->shape[0] *= 2;
        view->shape[view->n_dims - 1] /= view->n_dims > 1 ? 2 : 1;
    }
    if (e->how != POKE && e->how != RESHAPE) return true;
    if (!e->copy)
        must(sw_mem_get(&e->copy, 2 * (int64_t)view->size_bytes, 1, "copy", &err), &err);
    memcpy(e->copy, view->data, view->size_bytes);
    if (e->how == POKE) sw_store_le16((uint8_t *)e->copy + e->poke_at, e->poke);
    if (view->n_dims == 1 && e->how == RESHAPE) view->size_bytes *= 2;
    view->data = e->copy;
    return true;
}

static const edit edits[] = {
    {"gptq", "qweight", RETYPE, SW_DTYPE_F32, 0, 0, SW_E_FORMAT, "qweight\" is F32 [16, 256]", 0},
    {"gptq", "qweight", RESHAPE, 0, 0, 0, SW_E_FORMAT, "must be I32 [16, 256] by config.json", 0},
    {"gptq", "qzeros", DROP, 0, 0, 0, SW_E_FORMAT, MODULE ".qzeros\" is missing", 0},
    {"gptq", "qzeros", RESHAPE, 0, 0, 0, SW_E_FORMAT, "qzeros\" is I32", 0},
    {"gptq", "qzeros", POKE, 0, 2, 0x7767, SW_E_FORMAT, "qzeros hold 7 at row 5, group 0", 0},
    {"gptq", "scales", DROP, 0, 0, 0, SW_E_FORMAT, "scales\" is missing", 0},
    {"gptq", "scales", RETYPE, SW_DTYPE_I16, 0, 0, SW_E_FORMAT, "scales\" is I16", 0},
    {"gptq", "scales", POKE, 0, 2 * 256 + 6, 0x7e00, SW_E_FORMAT, "scale nan at row 3, group 1", 0},
    {"gptq", "scales", POKE, 0, 2, 0x7c00, SW_E_FORMAT, "scale inf at row 1, group 0", 0},
    {"gptq", "scales", POKE, 0, 4, 0xfc00, SW_E_FORMAT, "scale -inf at row 2, group 0", 0},
    {"gptq", "scales", POKE, 0, 8, 0x7e00, SW_E_FORMAT, "scale nan at row 4, group 0", 0},
    {"gptq", "g_idx", POKE, 0, 4 * 100, 4, SW_E_FORMAT, "g_idx[100] = 4, there are 4 groups", 0},
    {"gptq", "g_idx", POKE, 0, 4 * 100 + 2, 0x8000, SW_E_FORMAT, "g_idx[100] = -2147483645", 0},
    {"gptq", "g_idx", RESHAPE, 0, 0, 0, SW_E_FORMAT, "g_idx\" is I32 [256], must be I32 [128]", 0},
    {"gptq", "g_idx", DROP, 0, 0, 0, SW_OK, NULL, 0},
    {"compressed-tensors", "weight_scale", DROP, 0, 0, 0, SW_E_FORMAT, "missing", 0},
    {"compressed-tensors", "weight_scale", POKE, 0, 2 * 4 + 2, 0x7fc0, SW_E_FORMAT,
     "scale nan at row 1, group 1", 0},
    {"compressed-tensors", "weight_scale", RETYPE, SW_DTYPE_F16, 0, 0, SW_OK, NULL, 0},
    {"compressed-tensors", "weight_shape", POKE, 0, 8, 64, SW_E_FORMAT,
     "weight_shape says [256, 64], the model says [256, 128]", 0},
    {"compressed-tensors", "weight_packed", RESHAPE, 0, 0, 0, SW_E_FORMAT, "weight_packed\" is", 0},
    {"swage", "tiles", RESHAPE, 0, 0, 0, SW_E_FORMAT, "tiles\" is U8", 0},
    {"swage", "tile_shape", POKE, 0, 0, 255, SW_E_FORMAT, "tile_shape says [255, 128]", 0},
    {"swage", "tile_scales", POKE, 0, 2, 0xfc00, SW_E_FORMAT, "at row 8, group 0", 0},
    {"swage", "tile_scales", DROP, 0, 0, 0, SW_E_FORMAT, "tile_scales\" is missing", 0},
};

static void try_edit(const edit *row)
{
    const sw_dialect *dialect = sw_dialect_find(row->dialect);
    edit e = *row;
    scratch s;
    ckpt_case c;
    sw_checkpoint back;
    sw_qtensor q, untouched;
    sw_err err = {0};
    sw_code rc;

    memset(&q, 0x5a, sizeof q);
    untouched = q;
    scratch_open(&s);
    ckpt_source(&s, "llama");
    ckpt_open(&c, &s, dialect, 4, true, 32);
    must(ckpt_write(&c, &s, "out", dialect, false, 0, false, &err), &err);
    ckpt_rewrite(&s, "out", apply, &e);
    must(sw_checkpoint_open(&back, scratch_path(&s, "out"), &err), &err);
    rc = sw_checkpoint_qtensor(&q, &back, MODULE, 256, 128, &err);
    if (rc != row->code) fail_msg("%s.%s: code %d: %s", row->dialect, row->suffix, rc, err.text);
    if (row->reason) {
        if (!strstr(err.text, row->reason)) fail_msg("\"%s\": want \"%s\"", err.text, row->reason);
        if (!strstr(err.text, MODULE)) fail_msg("\"%s\" does not name the tensor", err.text);
        assert_memory_equal(&q, &untouched, sizeof q);
    } else {
        sw_qtensor_free(&q);
    }
    sw_checkpoint_close(&back);
    sw_mem_put(e.copy);
    ckpt_close(&c);
    scratch_close(&s);
}

static void a_tensor_that_contradicts_the_scheme_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) try_edit(&edits[i]);
}

static void write_config(const scratch *s, const char *dir, const char *quant)
{
    char path[300], *spliced, *text = ckpt_text(s, "source", "config.json", NULL);
    sw_err err = {0};
    size_t n = strlen(text), room = n + strlen(quant) + 2;

    must(SW_MEM_GET(&spliced, room, "config", &err), &err);
    while (text[n - 1] != '}') n--;
    snprintf(spliced, room, "%.*s%s}", (int)n - 1, text, quant);
    snprintf(path, sizeof path, "%s/config.json", dir);
    scratch_write(s, path, spliced, strlen(spliced));
    sw_mem_put(spliced);
    sw_mem_put(text);
}

static void how_a_scheme_is_found(void **state)
{
    static const struct { const char *quant, *side; sw_code code; const char *dialect, *reason; }
    rows[] = {
        {"", NULL, SW_OK, NULL, NULL},
        {"", "{\"bits\":4,\"group_size\":32,\"desc_act\":false}", SW_OK, "gptq", NULL},
        {"", "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32}", SW_OK, "gptq", NULL},
        {"", "{\"bits\":4,", SW_E_FORMAT, NULL, "quantize_config.json"},
        {"", "{\"zero_point\":true,\"w_bit\":4}", SW_E_UNSUPPORTED, NULL, "quant_method"},
        {",\"quantization_config\":{\"quant_method\":\"exl3\",\"bits\":4}", NULL, SW_E_UNSUPPORTED,
         NULL, "quant_method \"exl3\" cannot be read; there are marlin, machete, gptq"},
        {",\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4}", NULL, SW_E_FORMAT, NULL,
         "group_size"},
        {",\"quantization_config\":null", NULL, SW_OK, NULL, NULL},
        {",\"quantization_config\":{\"quant_method\":\"swage\",\"layout\":\"swage-tiles\","
         "\"layout_version\":2,\"bits\":4}", NULL, SW_E_FORMAT, NULL, "no tensor is named *.tiles"},
    };
    scratch s;
    ckpt_case c;
    sw_err err = {0};

    (void)state;
    scratch_open(&s);
    ckpt_source(&s, "llama");
    ckpt_open(&c, &s, sw_dialect_find("gptq"), 4, true, 32);
    must(ckpt_write(&c, &s, "out", sw_dialect_find("gptq"), false, 0, false, &err), &err);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *side = scratch_path(&s, "out/quantize_config.json");
        sw_checkpoint back;
        (void)remove(side);
        if (rows[i].side)
            scratch_write(&s, "out/quantize_config.json", rows[i].side, strlen(rows[i].side));
        write_config(&s, "out", rows[i].quant);
        memset(&err, 0, sizeof err);
        sw_code rc = sw_checkpoint_open(&back, scratch_path(&s, "out"), &err);
        if (rc != rows[i].code) fail_msg("row %zu: code %d: %s", i, rc, err.text);
        if (rows[i].reason && !strstr(err.text, rows[i].reason))
            fail_msg("row %zu: \"%s\"", i, err.text);
        if (rc != SW_OK) continue;
        assert_ptr_equal(back.dialect, rows[i].dialect ? sw_dialect_find(rows[i].dialect) : NULL);
        sw_checkpoint_close(&back);
    }
    ckpt_close(&c);
    scratch_close(&s);
}

static void a_group_that_does_not_divide_the_inputs_is_refused(void **state)
{
    scratch s;
    ckpt_case c;
    sw_checkpoint back;
    sw_qtensor q;
    sw_err err = {0};

    (void)state;
    scratch_open(&s);
    ckpt_source(&s, "llama");
    ckpt_open(&c, &s, sw_dialect_find("gptq"), 4, true, 32);
    must(ckpt_write(&c, &s, "out", sw_dialect_find("gptq"), false, 0, false, &err), &err);
    write_config(&s, "out", ",\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,"
                            "\"group_size\":48}");
    must(sw_checkpoint_open(&back, scratch_path(&s, "out"), &err), &err);
    assert_int_equal(sw_checkpoint_qtensor(&q, &back, MODULE, 256, 128, &err), SW_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, MODULE ": group size 48 does not divide the 128 inputs"));
    sw_checkpoint_close(&back);
    ckpt_close(&c);
    scratch_close(&s);
}

static void a_directory_that_is_no_model_is_refused(void **state)
{
    static const struct { const char *config; sw_code code; const char *reason; } rows[] = {
        {NULL, SW_E_IO, "config.json"},
        {"{", SW_E_FORMAT, "config.json: not valid JSON"},
        {"{\"model_type\":\"mamba\"}", SW_E_UNSUPPORTED, "mamba"},
        {"{\"model_type\":\"llama\"}", SW_E_FORMAT, "config.json: "},
    };
    sw_checkpoint back;
    scratch s;
    sw_err err = {0};

    (void)state;
    scratch_open(&s);
    assert_int_equal(sw_checkpoint_open(&back, scratch_path(&s, "none"), &err), SW_E_IO);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].config)
            scratch_write(&s, "config.json", rows[i].config, strlen(rows[i].config));
        memset(&err, 0, sizeof err);
        assert_int_equal(sw_checkpoint_open(&back, s.dir, &err), rows[i].code);
        if (!strstr(err.text, rows[i].reason)) fail_msg("row %zu: \"%s\"", i, err.text);
    }
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tensor_that_contradicts_the_scheme_is_refused),
        cmocka_unit_test(how_a_scheme_is_found),
        cmocka_unit_test(a_group_that_does_not_divide_the_inputs_is_refused),
        cmocka_unit_test(a_directory_that_is_no_model_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
