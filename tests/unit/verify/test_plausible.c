/* test_plausible.c - sound weights pass and planted faults are caught and named: on a trained
 * model's weights, plainly rounded and by GPTQ, in every dialect and at every width. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/size.h"
#include "quant/method/algo.h"
#include "quant/run/scheme.h"
#include "tests/support/cases/plausible_case.h"
#include "tests/support/toys/random.h"
#include "tests/support/toys/st_build.h"
#include "verify/checks/plausible.h"
#include "verify/decoders/decode_spec.h"

/* o_proj is square, so that it can be transposed unseen by shape checks. */
#define SOURCE "calib_data/tiny-llama"
#define WEIGHT "model.layers.3.self_attn.o_proj.weight"
enum { N = 256, K = 256, TOKENS = 600 };

static float *weight;    /* [N, K] */
static sw_hessian stats; /* of made-up inputs with shared directions and loud channels */

/* Every scheme is solved once, however many dialects and faults it serves. */
static struct {
    bool by_gptq;
    sw_qtensor q;
} solved[96];
static int n_solved;

static int make_inputs(void **state)
{
    const sw_st_tensor *t;
    float *x = malloc(TOKENS * K * sizeof *x);
    test_rng rng = {7};
    sw_st *st = NULL;
    sw_err err = {0};

    (void)state;
    weight = malloc(N * K * sizeof *weight);
    if (!x || !weight || sw_st_open(&st, SOURCE, &err) != SW_OK) fail_msg("%s", err.text);
    t = sw_st_find(st, WEIGHT);
    assert_non_null(t);
    assert_int_equal(sw_float_decode_n(weight, t->view.data, t->view.dtype, N * K, &err), SW_OK);
    sw_st_close(st);
    for (int i = 0; i < TOKENS; i++) {
        double shared[8];

        for (int j = 0; j < 8; j++) shared[j] = test_gauss(&rng);
        for (int j = 0; j < K; j++)
            x[i * K + j] = (float)((shared[j % 8] + shared[j / 8 % 8] + 0.4 * test_gauss(&rng)) *
                                   (j % 61 == 3 ? 5.0 : 0.3 + 0.01 * (j % 37)));
    }
    assert_int_equal(sw_hessian_new(&stats, K, false, 0, 1, &err), SW_OK);
    assert_int_equal(sw_hessian_add(&stats, x, NULL, NULL, TOKENS, &err), SW_OK);
    sw_hessian_finish(&stats);
    free(x);
    return 0;
}

static int free_inputs(void **state)
{
    (void)state;
    free(weight);
    sw_hessian_free(&stats);
    for (int i = 0; i < n_solved; i++) sw_qtensor_free(&solved[i].q);
    return 0;
}

static void solve(sw_qtensor *q, bool by_gptq, const sw_qspec *spec, const float *w)
{
    plausible_solve(q, spec, w, N, K, by_gptq ? &stats : NULL);
}

static const sw_qtensor *solved_once(bool by_gptq, const sw_qspec *spec)
{
    for (int i = 0; i < n_solved; i++) {
        const sw_qspec *have = &solved[i].q.spec;

        if (solved[i].by_gptq == by_gptq && have->num == spec->num &&
            have->is_symmetric == spec->is_symmetric && have->group_elems == spec->group_elems)
            return &solved[i].q;
    }
    assert_in_range(n_solved, 0, 95);
    solved[n_solved].by_gptq = by_gptq;
    solve(&solved[n_solved].q, by_gptq, spec, weight);
    return &solved[n_solved++].q;
}

/* A copy to spoil. */
static void quantize(sw_qtensor *q, bool by_gptq, const sw_qspec *spec)
{
    const sw_qtensor *from = solved_once(by_gptq, spec);
    size_t n_cells = (size_t)(N * from->n_groups);
    sw_err err = {0};

    assert_int_equal(sw_qtensor_alloc(q, spec, N, K, &err), SW_OK);
    memcpy(q->codes, from->codes, N * K);
    memcpy(q->scales, from->scales, n_cells * sizeof *q->scales);
    if (q->zeros) memcpy(q->zeros, from->zeros, n_cells);
    q->global_scale = from->global_scale;
}

typedef struct subject {
    st_build built;
    sw_spec_scheme scheme;
} subject;

static void encode(subject *s, const sw_dialect *dialect, const sw_qtensor *q)
{
    sw_qconfig config = {.spec = q->spec};
    cJSON *object = NULL;
    sw_err err = {0};

    memset(s, 0, sizeof *s);
    assert_int_equal(dialect->write_config(&object, &config, &err), SW_OK);
    assert_int_equal(sw_spec_scheme_read(&s->scheme, object, &err), SW_OK);
    cJSON_Delete(object);
    st_build_encode(&s->built, dialect, "p", q);
}

/* What the judge says of the stored bytes; "" when nothing. */
static const char *verdict(subject *s)
{
    static char why[SW_ERR_TEXT_BYTES + SW_PLAUSIBLE_TEXT_BYTES];
    sw_report_tensor figures = {.bits = s->scheme.bits};
    sw_spec_weight w = {0};
    sw_err err = {0};

    why[0] = '\0';
    if (sw_spec_decode(&w, &s->scheme, st_build_open(&s->built), "p", N, K, &err) != SW_OK)
        snprintf(why, sizeof why, "decode: %s", err.text);
    else
        assert_int_equal(sw_plausible_check(&figures, why, &w, weight, &err), SW_OK);
    sw_spec_weight_free(&w);
    return why;
}

static void expect(const sw_dialect *d, const sw_qtensor *q, const char *fault, const char *have,
                   const char *want)
{
    if (want ? !strstr(have, want) : *have)
        fail_msg("%s, %d bits, %s, group %lld, %s: have \"%s\", want \"%s\"", d->name,
                 q->spec.num->bits, q->spec.is_symmetric ? "symmetric" : "asymmetric",
                 (long long)q->spec.group_elems, fault, have, want ? want : "");
}

/* Every dialect stores F16 scales. */
static sw_qspec spec_of(int bits, bool is_symmetric, int64_t group)
{
    sw_qspec spec = {.num = sw_num_by_bits(bits), .is_symmetric = is_symmetric,
                     .group_elems = group, .scale_dtype = SW_DTYPE_F16};

    return spec;
}

static const int widths[] = {2, 3, 4, 8};

static void sound_weights_pass(void **state)
{
    static const int64_t groups[] = {32, 128, 0};

    (void)state;
    for (int i = 0; i < 4 * 2 * 3 * 2; i++) {
        /* the codes are the same in all dialects, so each gets its share of the schemes */
        static const char *const names[] = {"gptq", "gptq_v2", "compressed-tensors", "swage"};
        const sw_dialect *d = sw_dialect_find(names[i % 4]);
        sw_qspec spec = spec_of(widths[i / 2 % 4], i / 8 % 2, groups[i / 16]);
        sw_qtensor q;
        subject s;

        if (d->zero_min && !spec.is_symmetric) d = sw_dialect_find("gptq_v2");
        quantize(&q, i % 2, &spec);
        encode(&s, d, &q);
        expect(d, &q, i % 2 ? "gptq" : "rtn", verdict(&s), NULL);
        st_build_free(&s.built);
        sw_qtensor_free(&q);
    }
}

/* Where a dialect keeps what. */
typedef struct layout {
    const char *dialect, *codes, *scales;
    int64_t group_stride; /* bytes between the scales of neighbouring groups; G is 2 */
} layout;

static const layout layouts[] = {
    {"gptq", "p.qweight", "p.scales", N * 2},
    {"gptq_v2", "p.qweight", "p.scales", N * 2},
    {"compressed-tensors", "p.weight_packed", "p.weight_scale", 2},
    {"swage", "p.tiles", "p.tile_scales", 64 * 2},
};
#define N_LAYOUTS (int)(sizeof layouts / sizeof *layouts)

static size_t tensor_bytes(const st_build *b, const char *name)
{
    for (int i = 0; i < b->n; i++)
        if (!strcmp(b->tensors[i].name, name)) return b->tensors[i].view.size_bytes;
    return 0;
}

/* Every pair of groups trades its scales. */
static void trade_scales(subject *s, const layout *l)
{
    uint8_t *scales = st_build_data(&s->built, l->scales);
    int64_t n_bytes = (int64_t)tensor_bytes(&s->built, l->scales), step = l->group_stride;

    for (int64_t at = 0; at < n_bytes; at += 2 * step)
        for (int64_t i = 0; i < step; i++) {
            uint8_t kept = scales[at + i];
            scales[at + i] = scales[at + step + i];
            scales[at + step + i] = kept;
        }
}

static void swap_nibbles(subject *s, const layout *l)
{
    uint8_t *codes = st_build_data(&s->built, l->codes);
    size_t n_bytes = tensor_bytes(&s->built, l->codes);

    for (size_t i = 0; i < n_bytes; i++) codes[i] = (uint8_t)(codes[i] << 4 | codes[i] >> 4);
}

static void faults_in_stored_bytes_are_caught(void **state)
{
    (void)state;
    for (int i = 0; i < N_LAYOUTS * 2; i++) {
        const layout *l = &layouts[i / 2];
        const sw_dialect *d = sw_dialect_find(l->dialect);
        sw_qspec spec = spec_of(4, true, 128);
        sw_qtensor q;
        subject s;

        quantize(&q, i % 2, &spec);
        encode(&s, d, &q);
        trade_scales(&s, l);
        expect(d, &q, "scales off by one group", verdict(&s), "off by one group");
        trade_scales(&s, l);
        expect(d, &q, "repaired", verdict(&s), NULL);
        swap_nibbles(&s, l);
        expect(d, &q, "swapped nibbles", verdict(&s), "nibbles are swapped");
        st_build_free(&s.built);
        sw_qtensor_free(&q);
    }
}

static void scales_off_by_one_group_are_caught_at_every_width(void **state)
{
    (void)state;
    for (int i = 0; i < N_LAYOUTS * 2 * 4; i++) {
        const layout *l = &layouts[i / 8];
        const sw_dialect *d = sw_dialect_find(l->dialect);
        sw_qspec spec = spec_of(widths[i % 4], true, 128);
        sw_qtensor q;
        subject s;

        quantize(&q, i / 4 % 2, &spec);
        encode(&s, d, &q);
        trade_scales(&s, l);
        expect(d, &q, i / 4 % 2 ? "gptq" : "rtn", verdict(&s), "off by one group");
        st_build_free(&s.built);
        sw_qtensor_free(&q);
    }
}

static void zero_points_off_by_one_are_caught(void **state)
{
    (void)state;
    for (int i = 0; i < N_LAYOUTS * 2 * 4; i++) {
        const layout *l = &layouts[i / 8];
        const sw_dialect *d = sw_dialect_find(l->dialect);
        sw_qspec spec = spec_of(widths[i % 4], false, 64);
        sw_qtensor q;
        subject s;

        quantize(&q, i / 4 % 2, &spec);
        for (int64_t j = 0; j < N * q.n_groups; j++) { /* one higher, or lower at the top */
            if (q.zeros[j] < spec.num->code_max) q.zeros[j]++;
        }
        encode(&s, d, &q);
        expect(d, &q, "zero points", verdict(&s), "zero points are wrong");
        st_build_free(&s.built);
        sw_qtensor_free(&q);
    }
}

/* A reader that takes a file of one gptq version for the other is off by one everywhere. */
static void versions_of_gptq_are_not_taken_for_each_other(void **state)
{
    (void)state;
    for (int sym = 0; sym < 2; sym++) {
        const sw_dialect *d = sw_dialect_find("gptq_v2");
        sw_qspec spec = spec_of(4, sym, 128);
        sw_qtensor q;
        subject s;

        quantize(&q, false, &spec);
        encode(&s, d, &q);
        s.scheme.reader = &sw_spec_gptq;
        expect(d, &q, "version", verdict(&s), sym ? "want 8" : "zero point");
        st_build_free(&s.built);
        sw_qtensor_free(&q);
    }
}

static void a_transposed_weight_is_caught(void **state)
{
    float *turned = malloc(N * K * sizeof *turned);

    (void)state;
    assert_non_null(turned);
    for (int n = 0; n < N; n++)
        for (int k = 0; k < K; k++) turned[n * K + k] = weight[k * N + n];
    for (int i = 0; i < N_LAYOUTS * 2; i++) {
        const sw_dialect *d = sw_dialect_find(layouts[i / 2].dialect);
        sw_qspec spec = spec_of(4, true, 128);
        sw_qtensor q;
        subject s;

        solve(&q, i % 2, &spec, turned);
        encode(&s, d, &q);
        expect(d, &q, "transposed", verdict(&s), "when transposed");
        st_build_free(&s.built);
        sw_qtensor_free(&q);
    }
    free(turned);
}

/* One group of one row: a scale or a zero point that belongs to another. */
static void a_single_wrong_group_is_caught(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        const sw_dialect *d = sw_dialect_find("compressed-tensors");
        sw_qspec spec = spec_of(4, false, 128);
        sw_qtensor q;
        subject s;

        quantize(&q, i % 2, &spec);
        if (i / 2 == 0) q.scales[77 * 2 + 1] *= 1.5f;
        if (i / 2 == 1) q.scales[77 * 2 + 1] *= 0.6f;
        if (i / 2 == 2) q.zeros[77 * 2 + 1]++;
        if (i / 2 == 3) q.zeros[77 * 2 + 1] -= 2;
        for (int g = 0; g < 2; g++)
            q.scales[154 + g] = sw_num_round_to(q.scales[154 + g], spec.scale_dtype);
        encode(&s, d, &q);
        expect(d, &q, "one group", verdict(&s), "channel 77, group 1");
        st_build_free(&s.built);
        sw_qtensor_free(&q);
    }
}

/* In a plainly rounded weight even one pair of codes that trade places shows. */
static void a_single_swapped_nibble_is_caught_in_plain_rounding(void **state)
{
    int n_caught = 0, n_tried = 0;

    (void)state;
    for (int i = 0; i < N_LAYOUTS; i++) {
        const sw_dialect *d = sw_dialect_find(layouts[i].dialect);
        sw_qspec spec = spec_of(4, true, 128);
        sw_qtensor q;
        subject s;

        quantize(&q, false, &spec);
        encode(&s, d, &q);
        for (int at = 100; at < 30000; at += 3001) {
            uint8_t *byte = st_build_data(&s.built, layouts[i].codes) + at, kept = *byte;
            *byte = (uint8_t)(kept << 4 | kept >> 4);
            if (*byte != kept) {
                n_tried++;
                n_caught += *verdict(&s) != '\0';
            }
            *byte = kept;
        }
        st_build_free(&s.built);
        sw_qtensor_free(&q);
    }
    assert_in_range(n_tried, 20, 1000);
    assert_int_equal(n_caught, n_tried);
}

/* ---- parts of a weight ---------------------------------------------------------------------- */

/* The number formats, and how many codes in a row must be lost, and become zeros, to be found
 * wherever they lie: beside plain rounding, and beside GPTQ, which leaves more error itself. Half
 * of these are found wherever 16 places were tried. */
static const struct {
    const char *scheme, *dialect;
    int run[2];
} formats[] = {
    {"W2A16", "gptq_v2", {32, 128}}, {"W3A16", "gptq_v2", {16, 32}},
    {"W4A16", "compressed-tensors", {16, 16}}, {"W4A16_ASYM", "compressed-tensors", {16, 16}},
    {"W8A16", "compressed-tensors", {4, 4}}, {"FP8_DYNAMIC", "compressed-tensors", {4, 16}},
    {"FP8_BLOCK", "fp8", {4, 16}}, {"FP8_E5M2", "swage", {4, 16}},
    {"MXFP4A16", "compressed-tensors", {8, 32}},
    {"NVFP4A16", "compressed-tensors", {8, 32}}, {"MXFP8", "compressed-tensors", {4, 32}},
};
enum { N_FORMATS = sizeof formats / sizeof *formats };

static sw_qspec spec_of_format(int i)
{
    sw_qspec spec = sw_scheme_find(formats[i].scheme)->spec;

    spec.act = (sw_act){.scope = SW_ACT_NONE};
    return spec;
}

/* The code of a weight of zero. */
static uint8_t code_of_zero(const sw_qtensor *q, int64_t n, int64_t k)
{
    if (q->spec.num->kind == SW_NUM_FLOAT) return 0;
    if (!q->zeros) return (uint8_t)(1 << (q->spec.num->bits - 1));
    return q->zeros[n * q->n_groups + k / q->spec.group_elems];
}

static void turn_sign(sw_qtensor *q, int64_t n, int64_t k)
{
    uint8_t *code = &q->codes[n * K + k];
    int zero = code_of_zero(q, n, k), turned = 2 * zero - *code, top = (1 << q->spec.num->bits) - 1;

    if (q->spec.num->kind == SW_NUM_FLOAT) *code ^= (uint8_t)(1 << (q->spec.num->bits - 1));
    else *code = (uint8_t)(turned < 0 ? 0 : turned > top ? top : turned);
}

/* From element `at` on, row by row: zeros as bytes, or weights of zero. */
static void lose(sw_qtensor *q, int64_t at, int64_t n_codes, bool is_value)
{
    for (int64_t i = at; i < at + n_codes; i++)
        q->codes[i] = is_value ? code_of_zero(q, i / K, i % K) : 0;
}

typedef enum loss {
    ROWS_OF_ZERO_CODES, ROWS_OF_ZEROS, ONE_ROW, HOLE, SIGNS, RUN_OF_SIGNS, SWAPPED_BLOCKS, N_LOSSES
} loss;

static const char *const loss_names[N_LOSSES] = {
    "20 rows of codes 0", "20 rows of zeros", "one row of zeros", "a hole of 4 KB", "256 signs",
    "a run of 256 signs", "two blocks swapped",
};

static void apply_loss(sw_qtensor *q, loss what)
{
    int64_t hole = 4096 * 8 / q->spec.num->bits;
    test_rng rng = {3};

    if (what == ROWS_OF_ZERO_CODES || what == ROWS_OF_ZEROS)
        lose(q, 100 * K, 20 * K, what == ROWS_OF_ZEROS);
    if (what == ONE_ROW) lose(q, 77 * K, K, true);
    if (what == HOLE) lose(q, 50 * K + 37, hole, false);
    for (int i = 0; i < 256 && what == SIGNS; i++) {
        int64_t at = (int64_t)(test_u64(&rng) % (N * K));
        turn_sign(q, at / K, at % K);
    }
    for (int i = 0; i < 256 && what == RUN_OF_SIGNS; i++) turn_sign(q, 31, i);
    for (int i = 0; i < 512 && what == SWAPPED_BLOCKS; i++) {
        uint8_t kept = q->codes[10 * K + i];
        q->codes[10 * K + i] = q->codes[200 * K + i];
        q->codes[200 * K + i] = kept;
    }
}

static void check_format(int i, bool by_gptq, loss what, const char *want)
{
    const sw_dialect *d = sw_dialect_find(formats[i].dialect);
    sw_qspec spec = spec_of_format(i);
    sw_qtensor q;
    subject s;

    quantize(&q, by_gptq, &spec);
    if (what != N_LOSSES) apply_loss(&q, what);
    encode(&s, d, &q);
    if (want ? !strstr(verdict(&s), want) || !*verdict(&s) : *verdict(&s) != '\0')
        fail_msg("%s by %s, %s: have \"%s\"", formats[i].scheme, by_gptq ? "gptq" : "rtn",
                 what == N_LOSSES ? "sound" : loss_names[what], verdict(&s));
    st_build_free(&s.built);
    sw_qtensor_free(&q);
}

static void parts_that_are_lost_are_caught(void **state)
{
    (void)state;
    for (int i = 0; i < N_FORMATS; i++)
        for (int by_gptq = 0; by_gptq < 2; by_gptq++) {
            check_format(i, by_gptq, N_LOSSES, NULL);
            for (int what = i % 2; what < N_LOSSES; what += 2) {
                /* scattered signs of 2 bits are what GPTQ itself may do */
                if (by_gptq && what == SIGNS && spec_of_format(i).num->bits == 2) continue;
                check_format(i, by_gptq, (loss)what, "");
            }
        }
}

/* One weight decoded, judged with a run of values lost. */
static bool is_run_found(sw_spec_weight *w, const sw_qtensor *q, int64_t at, int n_codes)
{
    sw_report_tensor figures = {.bits = w->bits};
    char why[SW_PLAUSIBLE_TEXT_BYTES];
    uint8_t codes[K];
    float values[K];
    sw_err err = {0};

    memcpy(codes, w->codes + at, (size_t)n_codes);
    memcpy(values, w->values + at, (size_t)n_codes * sizeof *values);
    for (int i = 0; i < n_codes; i++) {
        w->codes[at + i] = code_of_zero(q, (at + i) / K, (at + i) % K);
        w->values[at + i] = 0;
    }
    assert_int_equal(sw_plausible_check(&figures, why, w, weight, &err), SW_OK);
    memcpy(w->codes + at, codes, (size_t)n_codes);
    memcpy(w->values + at, values, (size_t)n_codes * sizeof *values);
    return *why != '\0';
}

static void short_runs_are_caught(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * N_FORMATS; i++) {
        sw_qspec spec = spec_of_format(i / 2);
        sw_spec_weight w = {0};
        sw_err err = {0};
        sw_qtensor q;
        subject s;

        quantize(&q, i % 2, &spec);
        encode(&s, sw_dialect_find(formats[i / 2].dialect), &q);
        assert_int_equal(sw_spec_decode(&w, &s.scheme, st_build_open(&s.built), "p", N, K, &err),
                         SW_OK);
        assert_false(is_run_found(&w, &q, 0, 0));
        for (int j = 0; j < 4; j++)
            if (!is_run_found(&w, &q, (60 * j + 3) * K + 32 * j, formats[i / 2].run[i % 2]))
                fail_msg("%s by %s: %d codes lost in channel %d", formats[i / 2].scheme,
                         i % 2 ? "gptq" : "rtn", formats[i / 2].run[i % 2], 60 * j + 3);
        sw_spec_weight_free(&w);
        st_build_free(&s.built);
        sw_qtensor_free(&q);
    }
}

static void no_original_means_scales_only(void **state)
{
    const sw_dialect *d = sw_dialect_find("swage");
    sw_report_tensor t = {.bits = 4};
    char why[SW_PLAUSIBLE_TEXT_BYTES];
    sw_qspec spec = spec_of(4, true, 128);
    sw_spec_weight w = {0};
    sw_qtensor q;
    subject s;
    sw_err err = {0};

    (void)state;
    quantize(&q, false, &spec);
    encode(&s, d, &q);
    assert_int_equal(sw_spec_decode(&w, &s.scheme, st_build_open(&s.built), "p", N, K, &err),
                     SW_OK);
    assert_int_equal(sw_plausible_check(&t, why, &w, NULL, &err), SW_OK);
    assert_string_equal(why, "");
    assert_true(t.scale_min > 0 && t.scale_max > t.scale_min && t.weight_err < 0);
    sw_spec_weight_free(&w);
    st_build_free(&s.built);
    sw_qtensor_free(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_weights_pass),
        cmocka_unit_test(faults_in_stored_bytes_are_caught),
        cmocka_unit_test(scales_off_by_one_group_are_caught_at_every_width),
        cmocka_unit_test(zero_points_off_by_one_are_caught),
        cmocka_unit_test(versions_of_gptq_are_not_taken_for_each_other),
        cmocka_unit_test(a_transposed_weight_is_caught),
        cmocka_unit_test(a_single_wrong_group_is_caught),
        cmocka_unit_test(a_single_swapped_nibble_is_caught_in_plain_rounding),
        cmocka_unit_test(parts_that_are_lost_are_caught),
        cmocka_unit_test(short_runs_are_caught),
        cmocka_unit_test(no_original_means_scales_only),
    };
    return cmocka_run_group_tests(tests, make_inputs, free_inputs);
}
