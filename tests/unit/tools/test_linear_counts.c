/* test_linear_counts.c - every matrix of a model's layers is counted once: as codes, left by rule,
 * left by pattern, or unknown.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "formats/dialect/dialect.h"
#include "quant/run/scheme.h"
#include "tests/support/edit_json.h"
#include "tests/support/scratch.h"
#include "tests/support/toys/recipe_model.h"
#include "tools/recipe/linear_counts.h"

static void count(sw_linear_counts *out, const char *dir, const char *pattern, cJSON *root)
{
    const char *items[] = {pattern};
    const sw_opt_list ignore = {.items = items, .n = pattern ? 1 : 0};
    sw_qspec spec = {.num = sw_num_by_bits(8), .is_symmetric = true,
                     .scale_dtype = SW_DTYPE_BF16};
    const sw_selection_request request = {.spec = &spec, .ignore = &ignore};
    sw_selection selection;
    sw_checkpoint ckpt;
    sw_err err = {0};

    if (sw_checkpoint_open(&ckpt, dir, &err) != SW_OK) fail_msg("%s", err.text);
    if (sw_selection_new(&selection, &ckpt.model, &request, sw_dialect_find("compressed-tensors"),
                         &err) != SW_OK)
        fail_msg("%s", err.text);
    sw_linear_counts_find(out, &ckpt, &selection);
    assert_int_equal(sw_linear_counts_add_json(root, out, &err), SW_OK);
    sw_selection_free(&selection);
    sw_checkpoint_close(&ckpt);
}

static void test_counts(void **state)
{
    static const uint16_t zeros[64] = {0};
    cJSON *root = cJSON_CreateObject();
    sw_linear_counts counts;
    sw_err err = {0};
    scratch s;

    (void)state;
    scratch_open(&s);
    if (recipe_model_make(s.dir, "tests/golden/recipes/deepseek_v32", "config.json", &err))
        fail_msg("%s", err.text);
    count(&counts, s.dir, NULL, root);
    assert_int_equal(counts.n_quantized, 28);
    assert_int_equal(counts.n_by_rule, 1 + 1 + 2 * 3); /* router, head, indexers */
    assert_int_equal(counts.n_by_pattern, 0);
    assert_int_equal(counts.n_unknown, 0);
    edit_add_tensor(s.dir, "model.layers.1.self_attn.extra.weight", SW_DTYPE_BF16, 8, 8, zeros);
    edit_add_tensor(s.dir, "model.tower.layers.1.extra.weight", SW_DTYPE_BF16, 8, 8, zeros);
    cJSON_DeleteItemFromObject(root, "linear_counts");
    count(&counts, s.dir, "o_proj", root);
    assert_int_equal(counts.n_quantized, 26);
    assert_int_equal(counts.n_by_rule, 8);
    assert_int_equal(counts.n_by_pattern, 2);
    assert_int_equal(counts.n_unknown, 1);
    assert_string_equal(counts.first_unknown, "model.layers.1.self_attn.extra");
    assert_int_equal(cJSON_GetObjectItem(cJSON_GetObjectItem(root, "linear_counts"),
                                         "unknown")->valueint, 1);
    cJSON_Delete(root);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_counts)};

    return cmocka_run_group_tests_name("linear_counts", tests, NULL, NULL);
}
