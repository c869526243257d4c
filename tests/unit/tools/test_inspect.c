/* test_inspect.c - what `swage inspect` gathers: schemes by group, faults of storage, odd tensors,
 * ties, and histograms that hold every element once. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "tests/support/cases/ckpt_case.h"
#include "tests/support/toys/qtensor_gen.h"
#include "tools/inspect/inspection.h"
#include "tools/inspect/tensor_look.h"

static const sw_progress silent;

static void must(sw_code rc, const sw_err *err)
{
    if (rc != SW_OK) fail_msg("%s", err->text);
}

typedef struct made {
    scratch s;
    ckpt_case c;
    sw_inspection in;
} made;

static void make(made *m, const char *dialect, int bits, int64_t group)
{
    sw_err err = {0};

    scratch_open(&m->s);
    ckpt_source(&m->s, "llama");
    ckpt_open(&m->c, &m->s, sw_dialect_find(dialect), bits, false, group);
    must(ckpt_write(&m->c, &m->s, "out", sw_dialect_find(dialect), false, 0, false, &err), &err);
}

static void look(made *m)
{
    sw_err err = {0};

    must(sw_inspection_open(&m->in, scratch_path(&m->s, "out"), false, &silent, &err), &err);
}

static void unmake(made *m)
{
    sw_inspection_close(&m->in);
    ckpt_close(&m->c);
    scratch_close(&m->s);
}

/* The source's tokenizer.json is none, which is the one fault of all cases here. */
static void expect_problem(const made *m, const char *says)
{
    for (int64_t i = 0; i < m->in.n_problems; i++)
        if (strstr(m->in.problems[i].text, says)) return;
    fail_msg("no problem says \"%s\"; the first is \"%s\"", says, m->in.problems[0].text);
}

static void expect_note(const made *m, const char *says)
{
    for (int i = 0; i < m->in.n_notes; i++)
        if (strstr(m->in.notes[i], says)) return;
    fail_msg("no note says \"%s\"", says);
}

static void groups_tell_schemes_apart(void **state)
{
    made m;
    sw_qspec other;
    char text[160];
    sw_err err = {0};

    (void)state;
    scratch_open(&m.s);
    ckpt_source(&m.s, "llama");
    ckpt_open(&m.c, &m.s, sw_dialect_find("compressed-tensors"), 4, true, 32);
    other = m.c.config.spec;
    other.num = sw_num_by_bits(8);
    other.group_elems = 0;
    for (int64_t i = 0; i < m.c.n; i++)
        if (strstr(m.c.paths[i], "down_proj")) {
            int64_t n_out = m.c.q[i].n_out, k_in = m.c.q[i].k_in;
            sw_qtensor_free(&m.c.q[i]);
            sw_gen_qtensor(&m.c.q[i], 8, true, 0, other.scale_dtype, n_out, k_in, SW_GEN_RANDOM, 0,
                           1);
            m.c.linears[i].spec = &other;
        }
    must(ckpt_write(&m.c, &m.s, "out", sw_dialect_find("compressed-tensors"), false, 0, false,
                    &err), &err);
    look(&m);
    assert_true(m.in.is_open);
    assert_string_equal(m.in.version, "0.16.0");
    assert_int_equal(m.in.n_quantized, m.c.n);
    assert_int_equal(m.in.n_groups, 3);
    assert_string_equal(m.in.groups[0].leaves,
                        "q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj");
    assert_string_equal(m.in.groups[1].leaves, "down_proj");
    assert_string_equal(m.in.groups[2].leaves, "lm_head");
    assert_string_equal(sw_group_text(text, &m.in.groups[0]),
                        "int4, groups of 32, scales BF16, inputs 16 bit");
    assert_string_equal(sw_group_text(text, &m.in.groups[1]),
                        "int8, one scale a channel, scales BF16, inputs 16 bit");
    /* 4 bits and a scale of 16 for 32 weights, and I64 [2] for the shape */
    assert_int_equal(m.in.groups[0].n_bytes, m.in.groups[0].n_weights / 2 +
                                                 m.in.groups[0].n_weights / 32 * 2 +
                                                 m.in.groups[0].n_linears * 16);
    assert_int_equal(m.in.n_notes, 0);
    assert_int_equal(m.in.n_problems, 1); /* tokenizer */
    unmake(&m);
}

/* An element of the first tensor whose name ends so. */
typedef struct poke {
    const char *end;
    int64_t at;
    uint16_t bits;
    sw_dtype dtype; /* of the tensor from now on; SW_DTYPE_COUNT: as it is */
    bool is_gone;
} poke;

static bool do_poke(void *ctx, const char *name, sw_cview *view)
{
    static unsigned char copy[4096]; /* the view is of a mapped file */
    poke *p = ctx;
    size_t n = strlen(name), m = strlen(p->end);

    if (n < m || strcmp(name + n - m, p->end) != 0) return true;
    if (p->is_gone) return false;
    if (p->dtype != SW_DTYPE_COUNT) {
        view->dtype = p->dtype;
        return true;
    }
    assert_true(view->size_bytes <= sizeof copy);
    memcpy(copy, view->data, view->size_bytes);
    sw_store_le16(copy + 2 * p->at, p->bits);
    view->data = copy;
    return true;
}

static void faults_of_storage_are_named(void **state)
{
    static const struct { poke p; const char *says; } rows[] = {
        {{"layers.0.self_attn.k_proj.scales", 5, 0x7e00, SW_DTYPE_COUNT, false},
         "k_proj.scales: 1 of 256 scales are no numbers, the first is element 5"},
        {{"layers.1.mlp.up_proj.scales", 0, 0xfc00, SW_DTYPE_COUNT, false}, "1 of 1024 scales"},
        {{"layers.1.mlp.up_proj.scales", 9, 0x7c00, SW_DTYPE_COUNT, false}, "is element 9"},
        {{"layers.0.self_attn.q_proj.qzeros", 0, 0, SW_DTYPE_F32, false},
         "q_proj.qzeros is F32 [4, 16], the config makes it I32 [4, 16]"},
        {{"layers.0.self_attn.v_proj.qzeros", 0, 0, SW_DTYPE_COUNT, true},
         "tensor model.layers.0.self_attn.v_proj.qzeros is missing"}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        poke p = rows[i].p;
        made m;
        make(&m, "gptq_v2", 4, 32);
        ckpt_rewrite(&m.s, "out", do_poke, &p);
        look(&m);
        assert_int_equal(m.in.n_problems, 2);
        expect_problem(&m, rows[i].says);
        unmake(&m);
    }
}

/* Some writers turn the range of symmetric codes about by the sign of the scale. */
static void scales_below_zero_are_no_fault(void **state)
{
    poke p = {"layers.1.mlp.up_proj.scales", 0, 0xbc00, SW_DTYPE_COUNT, false};
    made m;

    (void)state;
    make(&m, "gptq_v2", 4, 32);
    ckpt_rewrite(&m.s, "out", do_poke, &p);
    look(&m);
    assert_int_equal(m.in.n_problems, 1); /* tokenizer */
    unmake(&m);
}

/* Tensors of nobody, and a head that is the embedding once more. */
static void odd_tensors_are_noted(void **state)
{
    static const int64_t shape[1] = {4};
    made m;
    sw_st *st = NULL;
    sw_st_writer *w = NULL;
    sw_err err = {0};

    (void)state;
    make(&m, "compressed-tensors", 4, 32);
    must(sw_st_open(&st, scratch_path(&m.s, "out"), &err), &err);
    must(sw_st_writer_new(&w, scratch_path(&m.s, "."), 0, &err), &err);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < sw_st_count(st); i++) {
            const sw_st_tensor *t = sw_st_at(st, i);
            const sw_cview *v = &t->view;
            if (!strcmp(t->name, "lm_head.weight")) v = &sw_st_find(st, "model.embed_tokens.weight")
                                                             ->view;
            must(pass ? sw_st_writer_put(w, t->name, v->data, v->size_bytes, &err)
                      : sw_st_writer_declare(w, t->name, v->dtype, v->n_dims, v->shape, &err),
                 &err);
        }
        must(pass ? sw_st_writer_put(w, "model.layers.9.extra.weight", "abcd", 4, &err)
                  : sw_st_writer_declare(w, "model.layers.9.extra.weight", SW_DTYPE_U8, 1, shape,
                                         &err), &err);
        if (!pass) must(sw_st_writer_begin(w, &err), &err);
    }
    must(sw_st_writer_commit(w, &err), &err);
    sw_st_writer_free(w);
    sw_st_close(st);
    assert_int_equal(rename(scratch_path(&m.s, "model.safetensors"),
                            scratch_path(&m.s, "out/model.safetensors")), 0);
    look(&m);
    expect_note(&m, "1 tensors belong to nothing that a llama has, first model.layers.9.extra");
    expect_note(&m, "lm_head.weight is model.embed_tokens.weight byte for byte");
    unmake(&m);
}

static int64_t sum_of(const sw_histogram *h)
{
    int64_t n = 0;

    for (int b = 0; b < h->n_bins; b++) n += h->n[b];
    return n;
}

static void a_linear_is_looked_at_closely(void **state)
{
    int64_t count[16] = {0};
    cJSON *object = cJSON_CreateObject();
    made m;
    sw_tensor_look l;
    const sw_qtensor *q;
    sw_err err = {0};

    (void)state;
    make(&m, "gptq_v2", 4, 32);
    look(&m);
    q = &m.c.q[0];
    must(sw_tensor_look_at(&l, m.in.st, &m.in.ckpt, m.c.paths[0], &err), &err);
    assert_null(l.tensor);
    for (int64_t i = 0; i < q->n_out * q->k_in; i++) count[q->codes[i]]++;
    assert_int_equal(l.codes.n_bins, 16);
    assert_memory_equal(l.codes.n, count, sizeof count);
    assert_int_equal(l.codes.n_zero, count[0]);
    assert_int_equal(sum_of(&l.scales), q->n_out * q->n_groups);
    assert_int_equal(sum_of(&l.zeros), q->n_out * q->n_groups);
    assert_int_equal(sum_of(&l.values), q->n_out * q->k_in);
    assert_true(sw_tensor_look_json(object, &l));
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(
                         cJSON_GetObjectItem(cJSON_GetObjectItem(object, "tensor"), "codes"),
                         "bins")), 16);
    cJSON_Delete(object);
    must(sw_tensor_look_at(&l, m.in.st, NULL, "model.norm.weight", &err), &err);
    assert_int_equal(sum_of(&l.values), l.values.n_total);
    assert_int_equal(l.values.n_total, 128);
    assert_null(l.codes.what);
    assert_int_equal(sw_tensor_look_at(&l, m.in.st, NULL, "model.norm.weigth", &err), SW_E_USAGE);
    assert_non_null(strstr(err.text, "did you mean model.norm.weight?"));
    unmake(&m);
}

/* Figures of a small tensor by hand: 0, 1, 2, 3, a NaN. */
static void figures_are_right(void **state)
{
    const float values[5] = {0, 3, 1, 2, (float)NAN};
    sw_st_writer *w = NULL;
    sw_st *st = NULL;
    sw_tensor_look l;
    int64_t shape[1] = {5};
    scratch s;
    sw_err err = {0};

    (void)state;
    scratch_open(&s);
    must(sw_st_writer_new(&w, s.dir, 0, &err), &err);
    must(sw_st_writer_declare(w, "t", SW_DTYPE_F32, 1, shape, &err), &err);
    must(sw_st_writer_begin(w, &err), &err);
    must(sw_st_writer_put(w, "t", values, sizeof values, &err), &err);
    must(sw_st_writer_commit(w, &err), &err);
    sw_st_writer_free(w);
    must(sw_st_open(&st, s.dir, &err), &err);
    must(sw_tensor_look_at(&l, st, NULL, "t", &err), &err);
    assert_int_equal(l.values.n_total, 5);
    assert_int_equal(l.values.n_bad, 1);
    assert_int_equal(l.values.n_zero, 1);
    assert_true(fabs(l.values.mean - 1.5) < 1e-12);
    assert_true(fabs(l.values.rms * l.values.rms - 3.5) < 1e-12);
    assert_int_equal(l.values.n[0], 1);
    assert_int_equal(l.values.n[SW_BINS - 1], 1);
    sw_st_close(st);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_tell_schemes_apart),
        cmocka_unit_test(faults_of_storage_are_named),
        cmocka_unit_test(scales_below_zero_are_no_fault),
        cmocka_unit_test(odd_tensors_are_noted),
        cmocka_unit_test(a_linear_is_looked_at_closely),
        cmocka_unit_test(figures_are_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
