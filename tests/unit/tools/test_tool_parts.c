/* test_tool_parts.c - what commands are made of: patterns, selections, calibration windows,
 * sample files, value checks, sizes for people. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/size.h"
#include "quant/run/scheme.h"
#include "tests/support/scratch.h"
#include "tools/calibrate/calibration.h"
#include "tools/calibrate/sample_file.h"
#include "tools/cli/pattern_set.h"
#include "tools/cli/term.h"
#include "tools/cli/values.h"
#include "tools/recipe/selection.h"

#define ARCH "tests/golden/arch/"

static void test_patterns_know_what_matched(void **state)
{
    const char *texts[] = {"layers\\.0\\.", "down_proj$", "nothing"};
    sw_pattern_set set;
    sw_err err = {0};

    (void)state;
    assert_int_equal(sw_pattern_set_new(&set, texts, 2, "--ignore", &err), SW_OK);
    assert_true(sw_pattern_set_match(&set, "model.layers.0.mlp.down_proj"));
    assert_false(sw_pattern_set_match(&set, "model.layers.10.mlp.up_proj"));
    assert_int_equal(sw_pattern_set_check(&set, &err), SW_OK);
    sw_pattern_set_free(&set);

    assert_int_equal(sw_pattern_set_new(&set, texts, 3, "--ignore", &err), SW_OK);
    assert_true(sw_pattern_set_match(&set, "model.layers.0.mlp.down_proj"));
    assert_int_equal(sw_pattern_set_check(&set, &err), SW_E_USAGE);
    assert_non_null(strstr(err.text, "'nothing' matches no linear"));
    sw_pattern_set_free(&set);

    texts[2] = "donw_proj"; /* what may have been meant is told from the paths that there are */
    memset(&err, 0, sizeof err);
    assert_int_equal(sw_pattern_set_new(&set, texts, 3, "--ignore", &err), SW_OK);
    assert_true(sw_pattern_set_match(&set, "model.layers.0.mlp.down_proj"));
    sw_pattern_set_offer(&set, "model.layers.0.mlp.gate_proj");
    sw_pattern_set_offer(&set, "model.layers.0.mlp.down_proj");
    assert_int_equal(sw_pattern_set_check(&set, &err), SW_E_USAGE);
    assert_non_null(strstr(err.text, "did you mean 'down_proj'?"));
    sw_pattern_set_free(&set);
}

static void test_pattern_that_explodes_is_an_error(void **state)
{
    static const char *const texts[] = {"(a+)+(b+)+(a+b+)+(a|b)*$x"};
    char text[4096];
    sw_pattern_set set;
    sw_err err = {0};

    (void)state;
    for (size_t i = 0; i + 1 < sizeof text; i++) text[i] = i % 3 ? 'a' : 'b';
    text[sizeof text - 1] = '\0';
    memcpy(text + sizeof text - 3, "x!", 2);
    assert_int_equal(sw_pattern_set_new(&set, texts, 1, "--ignore", &err), SW_OK);
    (void)sw_pattern_set_match(&set, text);
    assert_int_equal(sw_pattern_set_check(&set, &err), SW_E_USAGE);
    sw_pattern_set_free(&set);
}

static sw_code select_over(sw_selection *out, const char *dir, const char *format,
                           const char *pattern, int64_t group, const sw_override *overrides,
                           int n_overrides, sw_err *err)
{
    const char *items[1] = {pattern};
    sw_opt_list patterns = {items, pattern ? 1 : 0};
    sw_qspec spec = {.num = sw_num_by_bits(4), .is_symmetric = true, .group_elems = group,
                     .scale_dtype = SW_DTYPE_F16};
    sw_selection_request request = {&spec, overrides, n_overrides, &patterns, 0, false, false,
                                    NULL};
    sw_checkpoint ckpt = {0};
    sw_code rc = sw_checkpoint_open(&ckpt, dir, err);

    if (rc == SW_OK)
        rc = sw_selection_new(out, &ckpt.model, &request, sw_dialect_find(format), err);
    sw_checkpoint_close(&ckpt);
    return rc;
}

static sw_code select_from(sw_selection *out, const char *dir, const char *format,
                           const char *pattern, int64_t group, sw_err *err)
{
    return select_over(out, dir, format, pattern, group, NULL, 0, err);
}

static void test_overrides_change_what_they_match(void **state)
{
    static const sw_override overrides[] = {
        {"down_proj", false, NULL, 8, SW_GROUP_KEEP, 0, SW_SHARE_KEEP, 0},
        {"layers.1.mlp", false, NULL, 0, 32, 2, SW_SHARE_KEEP, 0},
        {"layers.0.self_attn.o_proj", true, NULL, 0, SW_GROUP_KEEP, 0, SW_SHARE_KEEP, 0},
    };
    const sw_qspec *spec;
    sw_selection s;
    sw_err err = {0};

    (void)state;
    assert_int_equal(select_over(&s, ARCH "llama", "swage", NULL, 128, overrides, 3, &err), SW_OK);
    assert_true(sw_selection_is_mixed(&s));
    assert_null(sw_selection_spec(&s, "model.layers.0.self_attn.o_proj"));
    spec = sw_selection_spec(&s, "model.layers.1.mlp.down_proj"); /* both, one over the other */
    assert_int_equal(spec->num->bits, 8);
    assert_int_equal(spec->group_elems, 32);
    assert_false(spec->is_symmetric);
    spec = sw_selection_spec(&s, "model.layers.0.mlp.down_proj");
    assert_int_equal(spec->num->bits, 8);
    assert_int_equal(spec->group_elems, 128);
    spec = sw_selection_spec(&s, "model.layers.0.mlp.up_proj");
    assert_int_equal(spec->num->bits, 4);
    sw_selection_free(&s);
}

static void test_overrides_that_cannot_be_are_refused(void **state)
{
    static const struct {
        sw_override override;
        sw_code want;
        const char *says;
    } cases[] = {
        {{"layers.1.self_attn.k_proj", false, NULL, 8, SW_GROUP_KEEP, 0, SW_SHARE_KEEP, 0},
         SW_E_USAGE,
         "overrides give model.layers.1.self_attn.q_proj 4 bits, group 128, symmetric, but "
         "model.layers.1.self_attn.k_proj 8 bits"},
        {{"mlp.up_proj", false, NULL, 0, 64, 0, SW_SHARE_KEEP, 0}, SW_E_USAGE, "mlp.gate_proj"},
        {{"mlp.up_proj", true, NULL, 0, SW_GROUP_KEEP, 0, SW_SHARE_KEEP, 0},
         SW_E_USAGE, "ignore both"},
        {{"expert", false, NULL, 8, SW_GROUP_KEEP, 0, SW_SHARE_KEEP, 0},
         SW_E_USAGE, "matches no linear"},
        {{"(", false, NULL, 8, SW_GROUP_KEEP, 0, SW_SHARE_KEEP, 0}, SW_E_USAGE, "override '('"},
        {{"down_proj", false, NULL, 0, 96, 0, SW_SHARE_KEEP, 0}, SW_E_UNSUPPORTED,
         "down_proj: groups of 96"},
        {{"down_proj", false, NULL, 0, SW_GROUP_KEEP, 0, SW_SHARE_KEEP, 2}, SW_E_USAGE,
         "powers of two"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sw_selection s;
        sw_err err = {0};
        sw_code have = select_over(&s, ARCH "llama", "swage", NULL, 128, &cases[i].override, 1,
                                   &err);
        if (have != cases[i].want || !strstr(err.text, cases[i].says))
            fail_msg("%zu: %d %s", i, have, err.text);
    }
}

static void test_selection_takes_all_but_ignored(void **state)
{
    sw_selection s;
    sw_err err = {0};

    (void)state;
    assert_int_equal(select_from(&s, ARCH "llama", "swage", "layers.0.mlp", 128, &err), SW_OK);
    assert_int_equal(s.n_linears, 11);
    assert_int_equal(s.n_ignored, 4); /* three of the mlp, and the head */
    assert_true(sw_selection_has(&s, "model.layers.1.mlp.down_proj"));
    assert_false(sw_selection_has(&s, "model.layers.0.mlp.down_proj"));
    assert_false(sw_selection_has(&s, "lm_head"));
    assert_string_equal(s.ignored[0], "lm_head");
    for (int64_t i = 1; i < s.n_linears; i++)
        assert_true(strcmp(s.linears[i - 1].module_path, s.linears[i].module_path) < 0);
    sw_selection_free(&s);
}

static sw_code select_head(sw_selection *out, const char *dir, const char *ignored, sw_err *err)
{
    static const sw_override more = {"lm_head", false, NULL, 8, SW_GROUP_KEEP, 0, SW_SHARE_KEEP, 0};
    sw_opt_list ignore = {&ignored, ignored ? 1 : 0};
    sw_qspec spec = {.num = sw_num_by_bits(4), .is_symmetric = true, .group_elems = 32,
                     .scale_dtype = SW_DTYPE_F16};
    sw_selection_request request = {&spec, &more, ignored ? 0 : 1, &ignore, 0, false, true, NULL};
    sw_checkpoint ckpt = {0};
    sw_code rc = sw_checkpoint_open(&ckpt, dir, err);

    if (rc == SW_OK)
        rc = sw_selection_new(out, &ckpt.model, &request, sw_dialect_find("gptq"), err);
    sw_checkpoint_close(&ckpt);
    return rc;
}

static void test_selection_takes_a_head_when_asked(void **state)
{
    sw_selection s;
    sw_err err = {0};

    (void)state;
    assert_int_equal(select_head(&s, ARCH "llama", NULL, &err), SW_OK);
    assert_true(s.has_head && s.n_linears == 15 && !s.n_ignored);
    assert_int_equal(sw_selection_spec(&s, "lm_head")->num->bits, 8);
    assert_int_equal(sw_selection_spec(&s, "model.layers.0.mlp.up_proj")->num->bits, 4);
    sw_selection_free(&s);
    assert_int_equal(select_head(&s, ARCH "llama", "lm_head", &err), SW_OK);
    assert_true(!s.has_head && s.n_linears == 14 && s.n_ignored == 1);
    sw_selection_free(&s);
    assert_int_equal(select_head(&s, ARCH "qwen2", NULL, &err), SW_E_USAGE);
    assert_non_null(strstr(err.text, "tie_word_embeddings"));
}

static void test_selection_leaves_routers(void **state)
{
    sw_selection s;
    sw_err err = {0};
    int n_routers = 0;

    (void)state;
    assert_int_equal(select_from(&s, ARCH "qwen3_moe", "swage", NULL, 32, &err), SW_OK);
    for (int64_t i = 0; i < s.n_ignored; i++)
        n_routers += strstr(s.ignored[i], ".mlp.gate") != NULL;
    assert_int_equal(n_routers, 2); /* one a layer */
    for (int64_t i = 0; i < s.n_linears; i++) {
        const char *end = s.linears[i].module_path + strlen(s.linears[i].module_path);
        assert_string_not_equal(end - 5, ".gate");
    }
    sw_selection_free(&s);
}

static void test_selection_refuses_half_a_fused_group(void **state)
{
    static const struct {
        const char *pattern;
        sw_code want;
    } cases[] = {{"k_proj", SW_E_USAGE},   {"0.mlp.up_proj", SW_E_USAGE}, {"o_proj", SW_OK},
                 {"[qkv]_proj", SW_OK},    {"down_proj", SW_OK},          {"(", SW_E_USAGE},
                 {"(up|gate)_proj", SW_OK}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sw_selection s;
        sw_err err = {0};
        sw_code have = select_from(&s, ARCH "llama", "gptq", cases[i].pattern, 128, &err);
        if (have != cases[i].want) print_error("%s: %s\n", cases[i].pattern, err.text);
        assert_int_equal(have, cases[i].want);
        if (have == SW_OK) sw_selection_free(&s);
    }
}

#define N_IDS 640

static sw_code read_windows(sw_calibration *out, const scratch *s, int64_t samples,
                            int64_t seq_len, int64_t seed, sw_err *err)
{
    const char *file = scratch_path(s, "ids.u16");
    sw_opt_list files = {&file, 1};
    sw_calibration_options o = {ARCH "llama", &files, samples, seq_len, seed, NULL};
    sw_model model = {.vocab = N_IDS, .max_positions = 128};
    unsigned char bytes[2 * N_IDS];

    for (int i = 0; i < N_IDS; i++) sw_store_le16(bytes + 2 * i, (uint16_t)i);
    scratch_write(s, "ids.u16", bytes, sizeof bytes);
    return sw_calibration_read(out, &model, &o, err);
}

static void test_windows_come_from_the_start_or_are_drawn(void **state)
{
    sw_calibration c;
    sw_err err = {0};
    scratch s;
    bool seen[10] = {false}, moved = false;

    (void)state;
    scratch_open(&s);
    assert_int_equal(read_windows(&c, &s, 3, 64, 0, &err), SW_OK);
    for (int i = 0; i < 3 * 64; i++) assert_int_equal(c.calib.ids[i], i);
    sw_calibration_free(&c);

    assert_int_equal(read_windows(&c, &s, 10, 64, 7, &err), SW_OK);
    for (int w = 0; w < 10; w++) { /* each window once, whole and on its own border */
        uint32_t first = c.calib.ids[w * 64];
        assert_int_equal(first % 64, 0);
        assert_false(seen[first / 64]);
        seen[first / 64] = true;
        moved = moved || first != (uint32_t)w * 64;
        for (int i = 0; i < 64; i++) assert_int_equal(c.calib.ids[w * 64 + i], first + i);
    }
    assert_true(moved);
    sw_calibration_free(&c);

    assert_int_equal(read_windows(&c, &s, 11, 64, 0, &err), SW_E_USAGE);
    assert_non_null(strstr(err.text, "--samples 10"));
    memset(&err, 0, sizeof err);
    assert_int_equal(read_windows(&c, &s, 1, 129, 0, &err), SW_E_USAGE);
    scratch_close(&s);
}

static void test_sample_files(void **state)
{
    uint32_t small[] = {0, 5, 65535}, large[] = {65536};
    sw_sample_file file = {.ids = {small, 3, 3}};
    sw_err err = {0};
    scratch s;
    sw_map map = {0};

    (void)state;
    assert_int_equal(sw_sample_file_id_bytes("a.u16"), 2);
    assert_int_equal(sw_sample_file_id_bytes("a.u32"), 4);
    assert_int_equal(sw_sample_file_id_bytes("u16"), 0);
    scratch_open(&s);
    assert_int_equal(sw_sample_file_write(&file, scratch_path(&s, "a.u16"), false, &err), SW_OK);
    assert_int_equal(sw_map_open(&map, scratch_path(&s, "a.u16"), &err), SW_OK);
    assert_int_equal(map.size_bytes, 6);
    assert_memory_equal(map.data, "\0\0\5\0\xff\xff", 6);
    sw_map_close(&map);
    file.ids.ids = large;
    file.ids.n = 1;
    assert_int_equal(sw_sample_file_write(&file, scratch_path(&s, "b.u16"), false, &err),
                     SW_E_UNSUPPORTED);
    assert_false(sw_path_exists(scratch_path(&s, "b.u16")));
    scratch_close(&s);
}

static void test_values(void **state)
{
    static const struct {
        uint16_t bits;
        sw_dtype dtype;
        bool is_finite;
    } cases[] = {
        {0x7f7f, SW_DTYPE_BF16, true},  {0x7f80, SW_DTYPE_BF16, false},
        {0xff80, SW_DTYPE_BF16, false}, {0x7fc0, SW_DTYPE_BF16, false},
        {0x7bff, SW_DTYPE_F16, true},   {0x7c00, SW_DTYPE_F16, false},
        {0xfe00, SW_DTYPE_F16, false},  {0xffff, SW_DTYPE_U16, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint16_t data[3] = {0, 0, cases[i].bits};
        sw_st_tensor t = {"t", {data, sizeof data, cases[i].dtype, 1, {3}}, 0, NULL};
        sw_err err = {0};
        assert_int_equal(sw_values_check(&t, 2, &err), cases[i].is_finite ? SW_OK : SW_E_FORMAT);
        if (!cases[i].is_finite) assert_non_null(strstr(err.text, "element 2"));
    }
}

static void test_bytes_for_people(void **state)
{
    static const struct {
        double n;
        const char *want;
    } cases[] = {{0, "0 B"},       {999, "999 B"},     {1000, "1.0 kB"},  {99400, "99.4 kB"},
                 {99600, "100 kB"}, {999600, "1.0 MB"}, {13.6e6, "13.6 MB"}, {2e15, "2.0 PB"}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[16];
        sw_term_bytes(text, cases[i].n);
        assert_string_equal(text, cases[i].want);
    }
}

/* What a scheme makes of a weight, in words; the longest there can be fits. */
static void test_specs_for_people(void **state)
{
    static const struct {
        const char *scheme, *want;
    } cases[] = {{"W4A16", "4 bits, group 128, symmetric"},
                 {"W2A16", "2 bits, group 64, with zero points"},
                 {"W8A8", "8 bits, per channel, symmetric"},
                 {"FP8", "e4m3, per tensor"},
                 {"FP8_DYNAMIC", "e4m3, per channel"},
                 {"FP8_BLOCK", "e4m3, blocks of 128 x 128"},
                 {"MXFP4", "e2m1, group 32, scales powers of two"},
                 {"NVFP4", "e2m1, group 16"}};
    sw_qspec spec = sw_scheme_spec(sw_scheme_find("W4A16"));
    char text[SW_SPEC_TEXT_BYTES];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sw_qspec one = sw_scheme_spec(sw_scheme_find(cases[i].scheme));
        assert_string_equal(sw_qspec_text(text, &one), cases[i].want);
    }
    spec.is_symmetric = false;
    spec.group_elems = spec.n_outliers = INT64_MAX;
    assert_string_equal(sw_qspec_text(text, &spec), "4 bits, group 9223372036854775807, with zero "
                        "points, 9223372036854775807 outliers");
    spec = sw_scheme_spec(sw_scheme_find("MXFP4"));
    spec.scale_rows = spec.group_elems = spec.n_outliers = INT64_MAX;
    assert_string_equal(sw_qspec_text(text, &spec), "e2m1, blocks of 9223372036854775807 x "
                        "9223372036854775807, scales powers of two, 9223372036854775807 outliers");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_patterns_know_what_matched),
        cmocka_unit_test(test_pattern_that_explodes_is_an_error),
        cmocka_unit_test(test_selection_takes_all_but_ignored),
        cmocka_unit_test(test_overrides_change_what_they_match),
        cmocka_unit_test(test_overrides_that_cannot_be_are_refused),
        cmocka_unit_test(test_selection_takes_a_head_when_asked),
        cmocka_unit_test(test_selection_leaves_routers),
        cmocka_unit_test(test_selection_refuses_half_a_fused_group),
        cmocka_unit_test(test_windows_come_from_the_start_or_are_drawn),
        cmocka_unit_test(test_sample_files),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_bytes_for_people),
        cmocka_unit_test(test_specs_for_people),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
