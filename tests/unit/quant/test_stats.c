/* test_stats.c - statistics of a toy model: to a file, back, and into quantized weights. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/cases/stats_case.h"

typedef stats_case toy;

static const sw_place memory = {.n_threads = 1};

static void assert_same_mean(const sw_hessian *have, const sw_hessian *a, const sw_hessian *b)
{
    int64_t k = a->k_in, n = a->n_tokens + (b ? b->n_tokens : 0);
    double power = 0, error = 0;

    assert_int_equal(have->k_in, k);
    assert_int_equal(have->n_tokens, n);
    for (int64_t i = 0; i < k * k; i++) {
        double want = a->h[i] + (b ? b->h[i] : 0);
        power += want * want;
        error += (have->h[i] - want) * (have->h[i] - want);
    }
    assert_true(sqrt(error) <= 1e-7 * sqrt(power));
}

/* Read alone, and with the one after it. */
static void check_expert(const sw_site_stats *direct, const sw_zpack *z, const sw_model *m,
                         sw_site site, int64_t e, const sw_quant_options *o)
{
    bool is_in = site == SW_SITE_MLP_IN;
    const sw_expert_site *want = is_in ? &direct->experts[e].in : &direct->experts[e].down;
    const sw_expert_site *have;
    sw_site_stats read;
    sw_err err = {0};

    if (!is_in && site != SW_SITE_DOWN_IN) return;
    assert_int_equal(sw_stats_read_experts(&read, z, m, 0, site, o, e,
                                           e + 1 < m->n_experts ? e + 2 : e + 1, &err), SW_OK);
    assert_int_equal(read.expert_begin, e);
    have = is_in ? &read.experts[0].in : &read.experts[0].down;
    assert_int_equal(read.experts[0].n_tokens, direct->experts[e].n_tokens);
    assert_int_equal(!have->half[0].h, !want->half[0].h);
    assert_int_equal(!have->all.h, !want->all.h);
    if (want->half[0].h) assert_same_mean(&have->half[0], &want->half[0], &want->half[1]);
    if (want->all.h) assert_same_mean(&have->all, &want->all, NULL);
    assert_true(have->weight >= 0 && have->weight <= 1);
    sw_site_stats_free(&read);
}

/* Layer 0 observed directly, against what comes back. */
static void check_first_layer(toy *t, const sw_zpack *z, const sw_quant_options *o)
{
    const sw_model *m = &t->ckpt.model;
    bool wanted[SW_SITE_COUNT] = {[SW_SITE_ATTN_IN] = true, [SW_SITE_O_IN] = true,
                                  [SW_SITE_MLP_IN] = true, [SW_SITE_DOWN_IN] = true};
    sw_site_stats direct, read;
    sw_streams streams = {0};
    sw_block block = {0};
    sw_err err = {0};

    assert_int_equal(sw_streams_new(&streams, &memory, m, t->ckpt.st, &t->calib, false, NULL, &err),
                     SW_OK);
    assert_int_equal(sw_block_load(&block, m, t->ckpt.st, 0, &err), SW_OK);
    assert_int_equal(sw_site_stats_new(&direct, m, 0, wanted, false, o->experts, &memory, &err),
                     SW_OK);
    assert_int_equal(sw_streams_observe(&streams, &direct, &block, &block, NULL, &err), SW_OK);
    for (int site = 0; site < SW_SITE_COUNT; site++) {
        if (!wanted[site]) continue;
        assert_int_equal(sw_stats_read(&read, z, m, 0, (sw_site)site, o, &err), SW_OK);
        if (direct.site[site].h) assert_same_mean(&read.site[site], &direct.site[site], NULL);
        sw_site_stats_free(&read);
        for (int64_t e = 0; e < direct.n_experts; e++)
            check_expert(&direct, z, m, (sw_site)site, e, o);
    }
    sw_site_stats_free(&direct);
    sw_block_free(&block);
    sw_streams_free(&streams);
}

static void test_what_is_read_is_what_was_seen(void **state)
{
    toy t;

    (void)state;
    stats_case_open(&t, "qwen2");
    sw_quant_options o = stats_case_options(SW_EXPERTS_SHRINK, 1);
    sw_zpack *z = stats_case_collect(&t, "stats", &o, true);
    check_first_layer(&t, z, &o);
    sw_zpack_close(z);
    stats_case_close(&t);
    stats_case_open(&t, "mixtral");
    for (int policy = 0; policy < SW_EXPERTS_COUNT; policy++) {
        o.experts = (sw_experts)policy;
        z = stats_case_collect(&t, "stats", &o, true);
        check_first_layer(&t, z, &o);
        sw_zpack_close(z);
    }
    stats_case_close(&t);
}

/* In however many passes: the same sums, bit by bit. */
static void test_experts_some_at_a_time(void **state)
{
    const bool wanted[SW_SITE_COUNT] = {[SW_SITE_MLP_IN] = true, [SW_SITE_DOWN_IN] = true};
    sw_site_stats whole, part;
    sw_streams streams = {0};
    sw_block block = {0};
    const sw_model *m;
    sw_err err = {0};
    toy t;

    (void)state;
    stats_case_open(&t, "mixtral");
    m = &t.ckpt.model;
    assert_int_equal(sw_streams_new(&streams, &memory, m, t.ckpt.st, &t.calib, false, NULL, &err),
                     SW_OK);
    assert_int_equal(sw_block_load(&block, m, t.ckpt.st, 0, &err), SW_OK);
    assert_int_equal(sw_site_stats_new(&whole, m, 0, wanted, false, SW_EXPERTS_SHRINK, &memory,
                                       &err),
                     SW_OK);
    assert_int_equal(sw_streams_observe(&streams, &whole, &block, &block, NULL, &err), SW_OK);
    for (int64_t begin = 0; begin < 4; begin += 3) {
        int64_t end = begin ? 4 : 3;
        assert_int_equal(sw_site_stats_new_experts(&part, m, 0, wanted, SW_EXPERTS_SHRINK, begin,
                                                   end, &memory, &err), SW_OK);
        assert_int_equal(sw_streams_observe(&streams, &part, &block, &block, NULL, &err), SW_OK);
        for (int64_t e = begin; e < end; e++) {
            const sw_expert_stats *a = &whole.experts[e], *b = &part.experts[e - begin];
            size_t in = (size_t)(m->hidden * m->hidden) * sizeof(double);
            size_t down = (size_t)(m->intermediate * m->intermediate) * sizeof(double);
            assert_int_equal(a->n_tokens, b->n_tokens);
            for (int i = 0; i < 2; i++) {
                assert_memory_equal(a->in.half[i].h, b->in.half[i].h, in);
                assert_memory_equal(a->down.half[i].h, b->down.half[i].h, down);
            }
            assert_memory_equal(a->down.all.h, b->down.all.h, down);
        }
        sw_site_stats_free(&part);
    }
    sw_site_stats_free(&whole);
    sw_block_free(&block);
    sw_streams_free(&streams);
    stats_case_close(&t);
}

static void test_sizes_of_channels(void **state)
{
    sw_quant_options o = stats_case_options(SW_EXPERTS_SHRINK, 1);
    float most[1024], mean[1024];
    sw_site_stats read;
    sw_err err = {0};
    sw_zpack *z;
    toy t;

    (void)state;
    stats_case_open(&t, "mixtral");
    z = stats_case_collect(&t, "stats", &o, true);
    assert_int_equal(sw_stats_read(&read, z, &t.ckpt.model, 1, SW_SITE_MLP_IN, &o, &err), SW_OK);
    assert_int_equal(sw_zpack_load(most, z, sw_zpack_find(z, "layers.1.mlp_in.abs_max"), &err),
                     SW_OK);
    assert_int_equal(sw_zpack_load(mean, z, sw_zpack_find(z, "layers.1.mlp_in.abs_mean"), &err),
                     SW_OK);
    /* mean of |x| lies below the root of the mean square, and the largest above */
    for (int64_t j = 0; j < t.ckpt.model.hidden; j++) {
        double rms = sqrt(read.site[SW_SITE_MLP_IN].h[j * t.ckpt.model.hidden + j] /
                          (double)(STATS_SEQS * STATS_LEN));
        assert_true((double)mean[j] <= rms * (1 + 1e-6) && (double)most[j] >= rms * (1 - 1e-6));
        assert_true((double)mean[j] > 0.3 * rms);
    }
    sw_site_stats_free(&read);
    sw_zpack_close(z);
    stats_case_close(&t);
}

typedef struct take {
    int n, n_fallback;
    uint64_t hash;
} take;

static sw_code put(void *self, const sw_linear_ref *ref, const char *path, const sw_qtensor *q,
                   const sw_solve_report *report, sw_err *err)
{
    take *k = self;

    (void)path, (void)err;
    k->n++;
    k->n_fallback += report->is_fallback;
    assert_true(report->error <= report->error_rtn);
    for (int64_t i = 0; i < ref->n_out * ref->k_in; i++)
        k->hash = (k->hash ^ q->codes[i]) * UINT64_C(1099511628211);
    return SW_OK;
}

static bool is_selected(void *self, const sw_linear_ref *ref, const char *path)
{
    (void)self, (void)path;
    return ref->slot != SW_SLOT_HEAD;
}

static take solve_all(toy *t, const sw_zpack *z, const sw_quant_options *o)
{
    take k = {0};
    sw_quant_sink sink = {.self = &k, .put = put, .is_selected = is_selected};
    sw_err err = {0};

    assert_int_equal(sw_quant_run_stats(&t->ckpt.model, t->ckpt.st, z, o, &sink, NULL, &err),
                     SW_OK);
    return k;
}

/* One file serves every width, group and order, and gives the same whatever the threads. */
static void test_one_file_any_scheme(void **state)
{
    static const int bits[] = {2, 3, 4, 8};
    uint64_t seen[16];
    int n_seen = 0;
    toy t;

    (void)state;
    stats_case_open(&t, "qwen3_moe");
    sw_quant_options o = stats_case_options(SW_EXPERTS_SHRINK, 2);
    sw_zpack *z = stats_case_collect(&t, "stats", &o, true);
    for (int b = 0; b < 4; b++)
        for (int policy = 0; policy < SW_EXPERTS_COUNT; policy++) {
            sw_quant_options one = stats_case_options((sw_experts)policy, 1);
            take k;
            one.spec.num = sw_num_by_bits(bits[b]);
            one.order = (sw_order)(b % SW_ORDER_COUNT);
            one.refine_rounds = 1;
            k = solve_all(&t, z, &one);
            assert_int_equal(k.n, 2 * (4 + 3 * 4));
            assert_int_equal(k.n_fallback, 0);
            /* an expert that reads what all read is solved alike by shrink and all */
            for (int i = 0; i < n_seen; i++)
                assert_true(seen[i] != k.hash || policy != SW_EXPERTS_ROUTED);
            seen[n_seen++] = k.hash;
            one.n_threads = 2;
            if (b == 2) assert_true(solve_all(&t, z, &one).hash == k.hash);
        }
    sw_zpack_close(z);
    stats_case_close(&t);
}

static void test_threads_give_the_same_file(void **state)
{
    toy t;

    (void)state;
    stats_case_open(&t, "mixtral");
    sw_quant_options one = stats_case_options(SW_EXPERTS_SHRINK, 1), three = one;
    three.n_threads = 3;
    sw_zpack *a = stats_case_collect(&t, "a", &one, true);
    sw_zpack *b = stats_case_collect(&t, "b", &three, true);
    assert_string_equal(sw_zpack_sha256(a), sw_zpack_sha256(b));
    sw_zpack_close(a);
    sw_zpack_close(b);
    stats_case_close(&t);
}

static void test_what_cannot_serve_is_refused(void **state)
{
    sw_err err = {0};
    toy t;

    (void)state;
    stats_case_open(&t, "mixtral");
    sw_quant_options o = stats_case_options(SW_EXPERTS_ALL, 1);
    sw_zpack *z = stats_case_collect(&t, "stats", &o, true);
    assert_int_equal(sw_stats_check(z, t.identity, &t.ckpt.model, SW_EXPERTS_ROUTED, &err),
                     SW_E_USAGE);
    assert_non_null(strstr(err.text, "--experts all and cannot serve routed"));
    err = (sw_err){0};
    t.identity[5] ^= 1;
    assert_int_equal(sw_stats_check(z, t.identity, &t.ckpt.model, SW_EXPERTS_ALL, &err),
                     SW_E_FORMAT);
    assert_non_null(strstr(err.text, "another model"));
    sw_zpack_close(z);
    stats_case_close(&t);
}

/* A copy of a file in which one tensor is left out, or changed in one number. */
static sw_zpack *spoil(toy *t, const sw_zpack *z, const char *name, double value)
{
    sw_zpack_writer *w = NULL;
    sw_zpack *out = NULL;
    sw_err err = {0};

    assert_int_equal(sw_zpack_writer_new(&w, scratch_path(&t->s, "bad"), true, &err), SW_OK);
    for (int64_t i = 0; i < sw_zpack_count(z); i++) {
        const sw_zpack_tensor *x = sw_zpack_at(z, i);
        bool is_it = !strcmp(x->name, name);
        char *raw = malloc((size_t)x->raw_bytes + 1);
        float f = (float)value;
        int64_t n = (int64_t)value;
        assert_int_equal(sw_zpack_load(raw, z, x, &err), SW_OK);
        if (is_it && x->dtype == SW_DTYPE_F32) memcpy(raw, &f, sizeof f);
        if (is_it && x->dtype == SW_DTYPE_F64) memcpy(raw, &value, sizeof value);
        if (is_it && x->dtype == SW_DTYPE_I64) memcpy(raw, &n, sizeof n);
        if (!is_it || value != 12345)
            assert_int_equal(sw_zpack_writer_put(w, x->name, x->dtype, x->n_dims, x->shape, raw,
                                                 (size_t)x->raw_bytes, &err), SW_OK);
        free(raw);
    }
    assert_int_equal(sw_zpack_writer_commit(w, &err), SW_OK);
    sw_zpack_writer_free(w);
    assert_int_equal(sw_zpack_open(&out, scratch_path(&t->s, "bad"), &err), SW_OK);
    return out;
}

static void test_numbers_that_no_statistics_hold(void **state)
{
    static const struct {
        const char *name;
        sw_site site;
        double value; /* 12345: leave it out */
        const char *says;
    } bad[] = {
        {"layers.0.attn_in.hessian", SW_SITE_ATTN_IN, (double)NAN, "NaN"},
        {"layers.0.attn_in.hessian", SW_SITE_ATTN_IN, (double)INFINITY, "infinity"},
        {"layers.0.attn_in.hessian", SW_SITE_ATTN_IN, -1, "negative diagonal"},
        {"layers.0.attn_in.hessian", SW_SITE_ATTN_IN, 12345, "have no \"layers.0.attn_in.hessian"},
        {"layers.0.o_in.tokens", SW_SITE_O_IN, 0, "a count that cannot be"},
        {"layers.0.o_in.tokens", SW_SITE_O_IN, -3, "a count that cannot be"},
        {"layers.0.experts.1.tokens", SW_SITE_MLP_IN, -1, "a count that cannot be"},
        {"layers.0.experts.2.down.weight", SW_SITE_DOWN_IN, (double)NAN, "not in 0..1"},
        {"layers.0.experts.2.in.weight", SW_SITE_MLP_IN, 1.5, "not in 0..1"},
        {"layers.0.experts.3.down.all", SW_SITE_DOWN_IN, (double)NAN, "NaN"},
        {"layers.0.experts.3.down.all_tokens", SW_SITE_DOWN_IN, 0, "a count that cannot be"},
        {"layers.0.experts.1.in.hessian", SW_SITE_MLP_IN, 12345, "calibrate again"},
    };
    sw_quant_options o = stats_case_options(SW_EXPERTS_SHRINK, 1);
    sw_zpack *z;
    toy t;

    (void)state;
    stats_case_open(&t, "mixtral");
    z = stats_case_collect(&t, "stats", &o, true);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        sw_zpack *spoilt = spoil(&t, z, bad[i].name, bad[i].value);
        sw_site_stats read;
        sw_err err = {0};
        sw_code rc = sw_stats_read(&read, spoilt, &t.ckpt.model, 0, bad[i].site, &o, &err);
        if (strstr(bad[i].name, "experts")) {
            assert_int_equal(rc, SW_OK);
            sw_site_stats_free(&read);
            rc = sw_stats_read_experts(&read, spoilt, &t.ckpt.model, 0, bad[i].site, &o, 0, 4,
                                       &err);
        }
        assert_int_equal(rc, SW_E_FORMAT);
        assert_non_null(strstr(err.text, bad[i].says));
        assert_non_null(strstr(err.text, bad[i].name));
        sw_zpack_close(spoilt);
    }
    sw_zpack_close(z);
    stats_case_close(&t);
}

static void test_ranges_that_cannot_be(void **state)
{
    static const struct {
        const char *name;
        double value; /* 12345: leave it out */
        const char *says;
    } bad[] = {
        {"layers.0.attn_in.range", -1, "a count that cannot be"},
        {"layers.0.attn_in.range", 12345, "calibrate again"},
        {"layers.0.attn_in.abs_max", (double)NAN, "no magnitude"},
        {"layers.0.attn_in.abs_max", -1, "no magnitude"},
        {"layers.0.experts.3.down.abs_max", (double)INFINITY, "no magnitude"},
        {"layers.0.kv_abs_max", (double)NAN, "no magnitude"},
        {"layers.0.kv_abs_max", 12345, "calibrate again"},
    };
    sw_quant_options o = stats_case_options(SW_EXPERTS_SHRINK, 1);
    sw_range *range = calloc(1, sizeof *range);
    const sw_site_scales none = {.scale = {NULL}};
    sw_zpack *z;
    toy t;

    (void)state;
    stats_case_open(&t, "mixtral");
    z = stats_case_collect(&t, "stats", &o, true);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        sw_zpack *spoilt = spoil(&t, z, bad[i].name, bad[i].value);
        sw_site site = strstr(bad[i].name, "down") ? SW_SITE_DOWN_IN : SW_SITE_ATTN_IN;
        sw_kv_range kv;
        sw_err err = {0};
        sw_code rc = strstr(bad[i].name, "kv")
                         ? sw_stats_read_kv(&kv, spoilt, 0, &err)
                         : sw_stats_read_range(range, spoilt, &t.ckpt.model, 0, site, &none, &err);
        assert_int_equal(rc, SW_E_FORMAT);
        assert_non_null(strstr(err.text, bad[i].says));
        assert_non_null(strstr(err.text, bad[i].name));
        sw_zpack_close(spoilt);
    }
    sw_zpack_close(z);
    stats_case_close(&t);
    free(range);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_read_is_what_was_seen),
        cmocka_unit_test(test_experts_some_at_a_time),
        cmocka_unit_test(test_sizes_of_channels),
        cmocka_unit_test(test_one_file_any_scheme),
        cmocka_unit_test(test_threads_give_the_same_file),
        cmocka_unit_test(test_what_cannot_serve_is_refused),
        cmocka_unit_test(test_numbers_that_no_statistics_hold),
        cmocka_unit_test(test_ranges_that_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
