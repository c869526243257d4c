/* test_partial_blocks.c - fp8 in blocks whose last one is not full: ceil(K/128) scales a row of
 * blocks, as the method is published. Both readers take them, and what is made of them is right. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/mem.h"
#include "formats/num/num.h"
#include "tests/support/cases/ckpt_case.h"
#include "tests/support/cases/quantized_dir.h"
#include "tests/support/edit_json.h"
#include "verify/base/subject.h"
#include "verify/decoders/decode_spec.h"

#define TOY "tests/golden/arch/llama"
enum { WIDE = 256, NARROW = 192, HIDDEN = 128 }; /* of the MLP, before and after */

static bool ends(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);

    return n >= m && !strcmp(name + n - m, end);
}

/* The first NARROW channels of the MLP; scales are as many as before. */
static bool make_narrow(void *ctx, const char *name, sw_cview *view)
{
    static uint8_t rows[2][HIDDEN * NARROW];
    const uint8_t *from = view->data;

    (void)ctx;
    if (ends(name, "gate_proj.weight") || ends(name, "up_proj.weight")) {
        view->shape[0] = NARROW;
        view->size_bytes = (size_t)NARROW * HIDDEN;
    } else if (ends(name, "down_proj.weight")) {
        uint8_t *to = rows[strstr(name, "layers.1") != NULL];

        for (int64_t i = 0; i < HIDDEN; i++) memcpy(to + i * NARROW, from + i * WIDE, NARROW);
        view->data = to;
        view->shape[1] = NARROW;
        view->size_bytes = (size_t)NARROW * HIDDEN;
    }
    return true;
}

static void make(scratch *s)
{
    scratch_open(s);
    quantized_dir_of_scheme(scratch_path(s, "q"), TOY, "fp8", "FP8_BLOCK");
    ckpt_rewrite(s, "q", make_narrow, NULL);
    edit_json(scratch_path(s, "q"), "config.json", "intermediate_size", "192");
    edit_remove(scratch_path(s, "q"), "manifest.json");
}

static void both_readers_take_them(void **state)
{
    static const char path[] = "model.layers.1.mlp.down_proj";
    sw_checkpoint ckpt;
    sw_subject judged;
    sw_spec_weight w = {0};
    sw_qtensor q = {0};
    float *values = NULL;
    sw_err err = {0};
    scratch s;

    (void)state;
    make(&s);
    if (sw_checkpoint_open(&ckpt, scratch_path(&s, "q"), &err) != SW_OK ||
        sw_checkpoint_qtensor(&q, &ckpt, path, HIDDEN, NARROW, &err) != SW_OK ||
        sw_subject_open(&judged, scratch_path(&s, "q"), true, &err) != SW_OK ||
        sw_spec_decode(&w, &judged.scheme, judged.st, path, HIDDEN, NARROW, &err) != SW_OK)
        fail_msg("%s", err.text);
    assert_int_equal(q.n_groups, 2);
    values = malloc(sizeof *values * HIDDEN * NARROW);
    sw_qtensor_decode(values, &q);
    for (int64_t i = 0; i < HIDDEN * NARROW; i++)
        if (values[i] != w.values[i])
            fail_msg("at %d: %g, the second reading says %g", (int)i, (double)values[i],
                     (double)w.values[i]);
    free(values);
    sw_spec_weight_free(&w);
    sw_qtensor_free(&q);
    sw_subject_close(&judged);
    sw_checkpoint_close(&ckpt);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_readers_take_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
