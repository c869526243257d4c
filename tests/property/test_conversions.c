/* test_conversions.c - the matrix of conversions, made of the tables: for every pair of dialects
 * and every scheme that the first holds, exact, rounded again, or refused with a reason. Every
 * exact cell is proved by A -> logical -> B -> logical -> A, byte for byte. Prints the matrix. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/dialect/conversions.h"
#include "formats/num/half.h"
#include "quant/run/scheme.h"
#include "tests/support/toys/qtensor_gen.h"

#define DIALECTS_MAX 24
#define N_INTS (4 * 2 * 3 * 2 * 2)
#define N_SPECS (N_INTS + SW_GEN_FLOATS)

typedef struct variant {
    int64_t n_out, k_in;
    sw_gen_content content;
} variant;

/* Whole tiles, and ragged in both ways; every extreme content. */
static const variant variants[] = {
    {64, 128, SW_GEN_RANDOM}, {64, 128, SW_GEN_LOWEST}, {64, 128, SW_GEN_HIGHEST},
    {32, 384, SW_GEN_RANDOM}, {40, 256, SW_GEN_RANDOM}, {33, 100, SW_GEN_RANDOM},
    {64, 128, SW_GEN_SIGNED}, {33, 100, SW_GEN_SIGNED}, {128, 256, SW_GEN_SIGNED}};
#define N_VARIANTS ((int)(sizeof variants / sizeof *variants))

typedef struct cell {
    int n_exact, n_requantized, n_refused;
    char why[200]; /* of the first that is not exact */
} cell;

/* false: that spec does not exist for the shape. */
static bool generate(sw_qtensor *q, int which, const variant *v, int zero_min)
{
    static const int widths[] = {2, 3, 4, 8};
    static const int64_t groups[] = {32, 128, 0};
    int64_t group = groups[which / 8 % 3];
    sw_err err = {0};

    if (which >= N_INTS) {
        const sw_qspec *spec = sw_gen_float_spec(which - N_INTS);
        if (v->content != SW_GEN_RANDOM || (spec->group_elems && v->k_in % spec->group_elems))
            return false;
        sw_gen_float_qtensor(q, which - N_INTS, v->n_out, v->k_in, (uint64_t)which + 7);
        return true;
    }
    if (group && v->k_in % group) return false;
    if (which / 48 && (!group || v->k_in == group)) return false; /* nothing to scatter */
    sw_gen_qtensor(q, widths[which % 4], which / 4 % 2, group,
                   which / 24 % 2 ? SW_DTYPE_BF16 : SW_DTYPE_F16, v->n_out, v->k_in, v->content,
                   zero_min, (uint64_t)which + 1);
    if (which / 48 == 0) return true;
    q->spec.is_scattered = true;
    assert_int_equal(SW_MEM_GET(&q->g_idx, q->k_in, "g_idx", &err), SW_OK);
    for (int64_t k = 0; k < q->k_in; k++) q->g_idx[k] = (int32_t)((k * 7 + 1) % q->n_groups);
    return true;
}

typedef struct stored {
    void *data[SW_DIALECT_TENSORS_MAX];
    uint64_t bytes[SW_DIALECT_TENSORS_MAX];
    int n;
} stored;

static void store(stored *out, const sw_dialect *dialect, const sw_qtensor *q)
{
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    sw_err err = {0};

    memset(out, 0, sizeof *out);
    out->n = dialect->declare(parts, &q->spec, q->n_out, q->k_in);
    for (int i = 0; i < out->n; i++) {
        assert_int_equal(sw_shape_bytes(&out->bytes[i], parts[i].dtype, parts[i].n_dims,
                                        parts[i].shape, &err), SW_OK);
        assert_non_null(out->data[i] = calloc(1, out->bytes[i] + 1));
    }
    if (dialect->encode(out->data, q, &err) != SW_OK)
        fail_msg("%s holds it and does not encode it: %s", dialect->name, err.text);
}

static void drop(stored *s)
{
    for (int i = 0; i < s->n; i++) free(s->data[i]);
}

static void load(sw_qtensor *q, const sw_dialect *dialect, const stored *s, const sw_qspec *spec,
                 int64_t n_out, int64_t k_in)
{
    sw_err err = {0};

    assert_int_equal(sw_qtensor_alloc(q, spec, n_out, k_in, &err), SW_OK);
    if (dialect->decode(q, (const void *const *)s->data, &err) != SW_OK ||
        sw_qtensor_check(q, &err) != SW_OK)
        fail_msg("%s: %s", dialect->name, err.text);
}

/* The lattice's answer for a weight that is at hand. */
static sw_code ask(sw_qspec *to, const sw_qtensor *q, const sw_dialect *target, sw_err *err)
{
    bool is_conditional = false;
    int at = 0;
    sw_code rc =
        sw_conversion_next(to, &is_conditional, &at, &q->spec, target, q->n_out, q->k_in, err);

    while (rc == SW_OK && is_conditional) {
        sw_err none = {0};
        if ((rc = sw_conversion_check(q, target, to, err)) == SW_OK ||
            sw_conversion_next(to, &is_conditional, &at, &q->spec, target, q->n_out, q->k_in,
                               &none) != SW_OK)
            break;
        memset(err, 0, sizeof *err);
        rc = SW_OK;
    }
    return rc;
}

static void prove(const sw_dialect *a, const sw_dialect *b, const stored *from,
                  const sw_qtensor *q, const sw_qspec *to)
{
    sw_qtensor first, second;
    stored there, back;
    sw_qspec way_back;
    sw_err err = {0};

    load(&first, a, from, &q->spec, q->n_out, q->k_in);
    first.spec = *to;
    store(&there, b, &first);
    load(&second, b, &there, to, q->n_out, q->k_in);
    second.spec.zero_min = b->zero_min;
    if (ask(&way_back, &second, a, &err) != SW_OK)
        fail_msg("%s -> %s is exact, and not back: %s", a->name, b->name, err.text);
    if (sw_conversion_check(&second, a, &q->spec, &err) != SW_OK) fail_msg("%s", err.text);
    second.spec = q->spec;
    store(&back, a, &second);
    for (int i = 0; i < from->n; i++)
        if (memcmp(from->data[i], back.data[i], from->bytes[i]) != 0)
            fail_msg("%s -> %s -> %s changes tensor %d of %s weights", a->name, b->name, a->name,
                     i, q->spec.num->name);
    drop(&there);
    drop(&back);
    sw_qtensor_free(&first);
    sw_qtensor_free(&second);
}

static void judge(cell *c, const sw_dialect *a, const sw_dialect *b, const stored *from,
                  const sw_qtensor *q)
{
    sw_qspec candidates[64], to;
    sw_err why = {0}, err = {0};

    if (ask(&to, q, b, &why) == SW_OK) {
        prove(a, b, from, q, &to);
        c->n_exact++;
        return;
    }
    assert_int_equal(why.code, SW_E_UNSUPPORTED);
    assert_true(strlen(why.text) > 10);
    assert_in_range(sw_n_schemes, 1, 64);
    for (int i = 0; i < sw_n_schemes; i++) candidates[i] = sw_scheme_spec(&sw_schemes[i]);
    if (sw_conversion_nearest(&to, &q->spec, b, candidates, sw_n_schemes, q->n_out, q->k_in,
                              SW_DTYPE_BF16, &err) == SW_OK) {
        assert_int_equal(b->can_hold(&to, q->n_out, q->k_in, &err), SW_OK);
        assert_false(sw_act_needs_input_scale(&to.act));
        c->n_requantized++;
    } else {
        assert_int_equal(err.code, SW_E_UNSUPPORTED);
        c->n_refused++;
    }
    if (!c->why[0]) (void)snprintf(c->why, sizeof c->why, "%.*s", (int)sizeof c->why - 1, why.text);
}

/* Scales of six bits, whose products with zero points are F16 values too: what a dialect takes that
 * stores such products. false: some are beyond its range all the same. */
static bool shorten(sw_qtensor *q, const sw_dialect *a)
{
    sw_err ignored = {0};

    if (!a->check_values || q->spec.is_symmetric) return true;
    for (int64_t i = 0; i < q->n_out * q->n_groups; i++) {
        uint32_t bits = sw_f32_bits(q->scales[i]) & 0xfffc0000u;
        q->scales[i] = sw_num_round_to(sw_f32_from_bits(bits), q->spec.scale_dtype);
    }
    return a->check_values(q, &ignored) == SW_OK;
}

static void fill_row(cell *row, const sw_dialect *a)
{
    for (int i = 0; i < N_SPECS * N_VARIANTS; i++) {
        const variant *v = &variants[i % N_VARIANTS];
        sw_qtensor q;
        stored from;
        sw_err err = {0};
        if (!generate(&q, i / N_VARIANTS, v, a->zero_min)) continue;
        if (a->can_hold(&q.spec, v->n_out, v->k_in, &err) == SW_OK && shorten(&q, a)) {
            store(&from, a, &q);
            for (int b = 0; sw_conversion_dialects[b]; b++)
                judge(&row[b], a, sw_conversion_dialects[b], &from, &q);
            drop(&from);
        }
        sw_qtensor_free(&q);
    }
}

static void print_matrix(cell (*matrix)[DIALECTS_MAX])
{
    for (int a = 0; sw_conversion_dialects[a]; a++)
        for (int b = 0; sw_conversion_dialects[b]; b++) {
            const cell *c = &matrix[a][b];
            print_message("# %-18s -> %-18s %4d exact %4d requantized %4d refused%s%s\n",
                          sw_conversion_dialects[a]->name, sw_conversion_dialects[b]->name,
                          c->n_exact, c->n_requantized, c->n_refused, c->why[0] ? ": " : "",
                          c->why);
        }
}

static const cell *cell_of(cell (*matrix)[DIALECTS_MAX], const char *a, const char *b)
{
    int at[2] = {0, 0};

    for (int i = 0; i < 2; i++)
        while (strcmp(sw_conversion_dialects[at[i]]->name, i ? b : a) != 0) at[i]++;
    return &matrix[at[0]][at[1]];
}

static void every_exact_cell_is_proved(void **state)
{
    static cell matrix[DIALECTS_MAX][DIALECTS_MAX];
    static const char *const of_blocks[] = {"gptq", "gptq_v2", "awq", "awq_gemv", "marlin",
                                            "compressed-tensors", "swage"};
    const cell *c;

    (void)state;
    for (int a = 0; sw_conversion_dialects[a]; a++) {
        assert_in_range(a, 0, DIALECTS_MAX - 1);
        fill_row(matrix[a], sw_conversion_dialects[a]);
    }
    print_matrix(matrix);
    for (int a = 0; sw_conversion_dialects[a];
         a++) { /* whoever writes a weight takes it as it is */
        assert_true(matrix[a][a].n_exact > 0);
        assert_int_equal(matrix[a][a].n_requantized + matrix[a][a].n_refused, 0);
    }
    c = cell_of(matrix, "gptq", "gptq_v2");
    assert_int_equal(c->n_requantized + c->n_refused, 0);
    c = cell_of(matrix, "gptq", "compressed-tensors");
    assert_int_equal(c->n_requantized + c->n_refused, 0);
    assert_true(cell_of(matrix, "gptq_v2", "gptq")->n_requantized > 0); /* zero points of 0 */
    assert_true(cell_of(matrix, "gptq_v2", "gptq")->n_exact > 0);
    assert_int_equal(cell_of(matrix, "gptq", "fp8")->n_exact, 0);
    assert_non_null(strstr(cell_of(matrix, "gptq", "swage")->why, "act-order"));
    assert_true(cell_of(matrix, "awq", "marlin")->n_exact > 0);
    assert_true(cell_of(matrix, "mxfp4", "compressed-tensors")->n_exact > 0);
    for (size_t i = 0; i < sizeof of_blocks / sizeof *of_blocks; i++) {
        assert_true(cell_of(matrix, "gguf", of_blocks[i])->n_exact > 0);
        assert_true(cell_of(matrix, of_blocks[i], "gguf")->n_exact > 0);
    }
    c = cell_of(matrix, "gguf", "compressed-tensors");
    assert_int_equal(c->n_requantized + c->n_refused, 0);
    assert_non_null(strstr(cell_of(matrix, "gptq_v2", "gguf")->why, "groups of 32"));
}

#define INT(bits_, sym, group) .num = &sw_nums[SW_NUM_INT##bits_], .is_symmetric = sym, \
    .group_elems = group, .scale_dtype = SW_DTYPE_BF16
#define ACT(id) .act = {&sw_nums[SW_NUM_##id], SW_ACT_TOKEN, 0, SW_DTYPE_F32}

/* What a weight is rounded to when nothing holds it: as few steps away as there are. */
static void the_nearest_is_near(void **state)
{
    const struct { sw_qspec from; const char *target; sw_num_id num; bool sym; int64_t group; }
    rows[] = {
        {{INT(4, false, 128), .is_scattered = true}, "swage", SW_NUM_INT4, false, 128},
        {{INT(4, true, 128)}, "fp8", SW_NUM_E4M3, true, 128},
        {{INT(3, false, 64)}, "awq", SW_NUM_INT4, false, 64},
        {{INT(2, true, 32)}, "marlin", SW_NUM_INT4, true, 32},
        {{INT(8, true, 0), ACT(INT8)}, "gptq", SW_NUM_INT8, true, 0},
        {{INT(4, true, 16)}, "marlin", SW_NUM_INT4, true, 32},
        {{INT(4, true, 128)}, "modelopt", SW_NUM_INT4, true, 128},
        {*sw_gen_float_spec(3), "gptq_v2", SW_NUM_INT8, true, 128},
        {*sw_gen_float_spec(5), "gptq", SW_NUM_INT4, true, 32},
        {*sw_gen_float_spec(2), "compressed-tensors", SW_NUM_INT8, true, 0}, /* inputs stay */
    };
    sw_qspec candidates[64];

    (void)state;
    for (int i = 0; i < sw_n_schemes; i++) candidates[i] = sw_scheme_spec(&sw_schemes[i]);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sw_qspec to;
        sw_err err = {0};
        if (sw_conversion_nearest(&to, &rows[i].from, sw_dialect_find(rows[i].target), candidates,
                                  sw_n_schemes, 256, 512, SW_DTYPE_BF16, &err) != SW_OK)
            fail_msg("row %zu: %s", i, err.text);
        if (to.num != &sw_nums[rows[i].num] || to.is_symmetric != rows[i].sym ||
            to.group_elems != rows[i].group)
            fail_msg("row %zu: %s, groups of %lld, %s", i, to.num->name,
                     (long long)to.group_elems, to.is_symmetric ? "symmetric" : "with zero points");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_exact_cell_is_proved),
        cmocka_unit_test(the_nearest_is_near),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
