/* test_candidates.c - schemes chosen by what they cost: outliers are kept where there are some and
 * not where there are none, fused groups stay equal, and a size holds with outliers in it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "quant/method/algo.h"
#include "tests/support/scratch.h"
#include "tests/support/toys/patched_model.h"
#include "tests/support/toys/random.h"
#include "tools/quantize/candidates.h"
#include "tools/quantize/target_bits.h"

#define MODEL "tests/golden/arch/llama"
enum { SEQS = 4, LEN = 48, LOUD = 5 };

typedef struct choice {
    sw_checkpoint ckpt;
    sw_selection selection;
    sw_target_outcome outcome;
} choice;

static sw_qspec base_spec(void)
{
    return (sw_qspec){.num = sw_num_by_bits(4), .group_elems = 64, .scale_dtype = SW_DTYPE_F16};
}

static sw_code choose(choice *out, const char *dir, double bits, double share, bool is_auto,
                      const char *format, sw_err *err)
{
    static uint32_t ids[SEQS * LEN];
    static const sw_opt_list none;
    sw_qspec spec = base_spec();
    sw_selection_request select = {.spec = &spec, .ignore = &none, .outlier_share = share};
    sw_calib calib = {ids, SEQS, LEN};
    sw_target_request r = {.bits = bits, .spec = &spec, .outlier_share = share,
                           .chooses_outliers = is_auto, .dialect = sw_dialect_find(format),
                           .algo = sw_algo_find("gptq"), .calib = &calib, .damp = 0.01,
                           .n_threads = 1};
    test_rng rng = {4};
    sw_code rc;

    memset(out, 0, sizeof *out);
    if (sw_checkpoint_open(&out->ckpt, dir, err) != SW_OK) fail_msg("%s", err->text);
    for (int i = 0; i < SEQS * LEN; i++)
        ids[i] = (uint32_t)(test_u64(&rng) % (uint64_t)out->ckpt.model.vocab);
    rc = sw_selection_new(&out->selection, &out->ckpt.model, &select, r.dialect, err);
    if (rc == SW_OK)
        rc = sw_target_bits_choose(&out->outcome, &out->selection, &out->ckpt.model, out->ckpt.st,
                                   &r, NULL, err);
    return rc;
}

static void drop(choice *c)
{
    sw_selection_free(&c->selection);
    sw_checkpoint_close(&c->ckpt);
}

typedef struct range {
    int64_t least, most;
} range;

/* Channels kept by the linears of a layer that read a norm, or by the others. */
static range kept_in(const choice *c, const char *layer, bool reads_norm)
{
    range r = {1 << 20, 0};

    for (int64_t i = 0; i < c->selection.n_linears; i++) {
        const sw_ckpt_linear *l = &c->selection.linears[i];
        bool is_inner = strstr(l->module_path, "o_proj") || strstr(l->module_path, "down_proj");
        int64_t n = l->spec->n_outliers;
        if (!strstr(l->module_path, layer) || is_inner == reads_norm) continue;
        r.most = n > r.most ? n : r.most;
        r.least = n < r.least ? n : r.least;
    }
    return r;
}

static void test_outliers_are_kept_where_there_are_some(void **state)
{
    scratch s;
    choice plain, loud;
    sw_err err = {0};

    (void)state;
    scratch_open(&s);
    outlier_model_make(scratch_path(&s, "loud"), MODEL, LOUD, 30, 7);
    if (choose(&loud, scratch_path(&s, "loud"), 0, 0, true, "swage", &err) != SW_OK ||
        choose(&plain, MODEL, 0, 0, true, "swage", &err) != SW_OK)
        fail_msg("%s", err.text);
    /* what reads a norm keeps its loud channels where they matter, what does not keeps few */
    for (int l = 0; l < 2; l++) {
        const char *layer = l ? "layers.1." : "layers.0.";
        range norm = kept_in(&loud, layer, true), inner = kept_in(&loud, layer, false);
        range norm_plain = kept_in(&plain, layer, true);
        print_message("  layer %d: %d to %d, beside norms %d to %d, without outliers %d to %d\n", l,
                      (int)norm.least, (int)norm.most, (int)inner.least, (int)inner.most,
                      (int)norm_plain.least, (int)norm_plain.most);
        assert_true(norm.least >= 3 && norm.most <= 2 * LOUD);
        assert_int_equal(norm_plain.least, 0);
        if (!l) continue; /* the first layer is worth more than average with any scheme */
        assert_int_equal(norm_plain.most, 0);
        assert_true(inner.most <= 2);
    }
    drop(&loud);
    drop(&plain);
    scratch_close(&s);
}

static void test_fused_groups_stay_equal(void **state)
{
    scratch s;
    choice c;
    sw_err err = {0};

    (void)state;
    scratch_open(&s);
    outlier_model_make(scratch_path(&s, "loud"), MODEL, LOUD, 30, 7);
    if (choose(&c, scratch_path(&s, "loud"), 4.8, 0, true, "swage", &err) != SW_OK)
        fail_msg("%s", err.text);
    for (int l = 0; l < 2; l++) {
        static const char *const fused[] = {"self_attn.q_proj", "self_attn.k_proj",
                                            "self_attn.v_proj"};
        const sw_qspec *first = NULL;
        for (int i = 0; i < 3; i++) {
            char path[64];
            const sw_qspec *spec;
            (void)snprintf(path, sizeof path, "model.layers.%d.%s", l, fused[i]);
            spec = sw_selection_spec(&c.selection, path);
            assert_non_null(spec);
            if (!first) first = spec;
            assert_true(sw_qspec_same(spec, first));
        }
    }
    assert_true(c.outcome.bits <= 4.8 && c.outcome.bits > 4.3);
    drop(&c);
    scratch_close(&s);
}

/* A share that all keep goes with any width, and into the size. */
static void test_a_size_with_a_share(void **state)
{
    choice with, without;
    sw_err err = {0};

    (void)state;
    if (choose(&with, MODEL, 5, 0.03, false, "swage", &err) != SW_OK ||
        choose(&without, MODEL, 5, 0, false, "swage", &err) != SW_OK)
        fail_msg("%s", err.text);
    assert_true(with.outcome.bits <= 5 && without.outcome.bits <= 5);
    for (int64_t i = 0; i < with.selection.n_linears; i++) {
        const sw_ckpt_linear *l = &with.selection.linears[i];
        assert_int_equal(l->spec->n_outliers, llround(0.03 * (double)l->k_in));
        assert_int_equal(without.selection.linears[i].spec->n_outliers, 0);
    }
    drop(&with);
    drop(&without);
}

static void test_what_cannot_be(void **state)
{
    choice c;
    sw_err err = {0}, least = {0};

    (void)state;
    assert_int_equal(choose(&c, MODEL, 0, 0, true, "gptq_v2", &err), SW_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "--format swage"));
    drop(&c);
    assert_int_equal(choose(&c, MODEL, 4.3, 0.2, false, "swage", &least), SW_E_USAGE);
    assert_non_null(strstr(least.text, "needs at least"));
    drop(&c);
}

static void test_lists(void **state)
{
    sw_qspec base = base_spec(), spec;
    sw_candidates c;

    (void)state;
    for (int bits = 2; bits <= 8; bits += bits == 4 ? 4 : 1) {
        int n_prices = 0, n_three = 0;
        base.num = sw_num_by_bits(bits);
        sw_candidates_of_shares(&c, &base);
        assert_true(c.n <= SW_CANDIDATES_MAX && !(c.shares[0] > 0) && !c.is_price[0]);
        for (int64_t i = 0; i < c.n; i++) {
            n_prices += c.is_price[i];
            n_three += c.specs[i].num->bits == 3;
        }
        assert_true(n_prices >= 2 && n_three > 0); /* to buy elsewhere, and to measure with */
    }
    sw_candidates_of_sizes(&c, &base, false, false, 0, true);
    assert_true(c.n <= SW_CANDIDATES_MAX);
    spec = sw_candidate_spec(&c, c.n - 1, 1000);
    assert_int_equal(spec.n_outliers, 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_outliers_are_kept_where_there_are_some),
        cmocka_unit_test(test_fused_groups_stay_equal),
        cmocka_unit_test(test_a_size_with_a_share),
        cmocka_unit_test(test_what_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
