/* test_dialect_mxfp4.c - quant_method "mxfp4": the worked block of its description, experts that
 * lie by turns in one tensor, a whole checkpoint of them, what is refused, and planted faults. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/size.h"
#include "formats/checkpoint/expert_stack.h"
#include "formats/io/file_content.h"
#include "formats/num/pow2.h"
#include "formats/num/small.h"
#include "kernels/engine/lm_open.h"
#include "quant/run/scheme.h"
#include "tests/support/cases/ckpt_case.h"
#include "tests/support/toys/open_model.h"
#include "tests/support/toys/qtensor_gen.h"
#include "tools/convert/convert_job.h"
#include "verify/base/subject.h"

#define FLOATS_MX 5 /* sw_gen_float_spec: e2m1 in groups of 32 */
#define MODULE "model.layers.0.mlp.experts."

static const sw_dialect *mxfp4(void) { return sw_dialect_find("mxfp4"); }

static void must(sw_code rc, const sw_err *err)
{
    if (rc != SW_OK) fail_msg("%s", err->text);
}

/* x_i = (-1)^i (i % 8) 0.35, largest 2.45: 90 c3 e5 e6 over and over, under 0x7e. */
static void the_worked_block(void **state)
{
    static const uint8_t want[4] = {0x90, 0xc3, 0xe5, 0xe6};
    uint8_t blocks[16] = {0}, scales[1] = {0};
    void *parts[SW_DIALECT_TENSORS_MAX] = {blocks, scales};
    sw_qspec spec = sw_scheme_spec(sw_scheme_find("MXFP4A16"));
    sw_qtensor q, back;
    sw_err err = {0};

    (void)state;
    must(sw_qtensor_alloc(&q, &spec, 1, 32, &err), &err);
    q.scales[0] = sw_pow2_scale(2.45f, q.spec.num);
    for (int i = 0; i < 32; i++)
        q.codes[i] = sw_e2m1_encode((i % 2 ? -1.0f : 1.0f) * (float)(i % 8) * 0.35f / q.scales[0]);
    must(mxfp4()->encode(parts, &q, &err), &err);
    assert_int_equal(scales[0], 0x7e);
    for (int i = 0; i < 16; i++) assert_int_equal(blocks[i], want[i % 4]);
    must(sw_qtensor_alloc(&back, &spec, 1, 32, &err), &err);
    must(mxfp4()->decode(&back, (const void *const *)parts, &err), &err);
    sw_gen_assert_same(&back, &q);
    sw_qtensor_free(&q);
    sw_qtensor_free(&back);
}

static void paths_say_where_rows_lie(void **state)
{
    static const struct { const char *path; const char *name; int64_t expert, turns, turn; }
    rows[] = {
        {MODULE "3.gate_proj", MODULE "gate_up_proj_blocks", 3, 2, 0},
        {MODULE "3.up_proj", MODULE "gate_up_proj_blocks", 3, 2, 1},
        {MODULE "127.down_proj", MODULE "down_proj_blocks", 127, 1, 0},
        {"model.layers.0.self_attn.q_proj", NULL, 0, 0, 0},
        {MODULE "x.up_proj", NULL, 0, 0, 0},
        {MODULE "1234567.up_proj", NULL, 0, 0, 0},
        {MODULE "1.w1", NULL, 0, 0, 0},
        {MODULE "1.up_proj.x", NULL, 0, 0, 0},
        {MODULE, NULL, 0, 0, 0}};
    const sw_part part = {.suffix = "x", .dtype = SW_DTYPE_U8, .n_dims = 2, .shape = {2, 3}};
    char stack[36], one[6];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sw_stack_place place;
        bool is_found = sw_stack_find(&place, rows[i].path, "blocks");
        assert_int_equal(is_found, rows[i].name != NULL);
        if (!is_found) continue;
        assert_string_equal(place.name, rows[i].name);
        assert_int_equal(place.expert, rows[i].expert);
        assert_int_equal(place.turns, rows[i].turns);
        assert_int_equal(place.turn, rows[i].turn);
    }
    /* three experts of two channels by turns, three bytes a row; row r is r, r, r */
    for (int i = 0; i < 36; i++) stack[i] = (char)(i / 3);
    sw_stack_place up = {.expert = 1, .turns = 2, .turn = 1};
    assert_int_equal(sw_stack_part(&part, &up, 3).shape[1], 4);
    sw_stack_gather(one, stack, &part, &up);
    assert_memory_equal(one, "\5\5\5\7\7\7", 6);
    memset(one, 9, sizeof one);
    sw_stack_scatter(stack, one, &part, &up);
    for (int i = 0; i < 36; i++)
        assert_int_equal(stack[i], i / 3 == 5 || i / 3 == 7 ? 9 : i / 3);
}

/* The gpt_oss model of ckpt_source with experts as the publisher has them. */
typedef struct published {
    scratch s;
    ckpt_case c;
    bool is_wanted[CKPT_LINEARS_MAX]; /* an expert */
} published;

static void put_stack(sw_st_writer *w, const ckpt_case *c, int64_t at, int which, bool is_declared)
{
    const sw_qtensor *q = &c->q[at];
    const int64_t n_experts = c->source.model.n_experts;
    sw_part parts[SW_DIALECT_TENSORS_MAX], whole;
    sw_stack_place place;
    char *stack = NULL;
    uint64_t n_bytes = 0;
    sw_err err = {0};

    (void)mxfp4()->declare(parts, &q->spec, q->n_out, q->k_in);
    assert_true(sw_stack_find(&place, c->paths[at], parts[which].suffix));
    if (place.expert || place.turn) return;
    whole = sw_stack_part(&parts[which], &place, n_experts);
    if (!is_declared) {
        must(sw_st_writer_declare(w, place.name, whole.dtype, whole.n_dims, whole.shape, &err),
             &err);
        return;
    }
    must(sw_shape_bytes(&n_bytes, whole.dtype, whole.n_dims, whole.shape, &err), &err);
    stack = calloc(1, n_bytes);
    for (int64_t i = 0; i < c->n; i++) {
        sw_stack_place one;
        void *data[SW_DIALECT_TENSORS_MAX] = {NULL};
        if (!sw_stack_find(&one, c->paths[i], parts[which].suffix) ||
            strcmp(one.name, place.name) != 0)
            continue;
        for (int p = 0; p < 2; p++) data[p] = calloc(1, (size_t)(q->n_out * q->k_in));
        must(mxfp4()->encode(data, &c->q[i], &err), &err);
        sw_stack_scatter(stack, data[which], &parts[which], &one);
        for (int p = 0; p < 2; p++) free(data[p]);
    }
    must(sw_st_writer_put(w, place.name, stack, n_bytes, &err), &err);
    free(stack);
}

static bool is_stacked_source(const char *name)
{
    return strstr(name, ".experts.") && !strstr(name, "_bias");
}

static void write_published(published *p, const char *dir)
{
    const sw_st *st = p->c.source.st;
    sw_st_writer *w = NULL;
    sw_err err = {0};

    must(sw_st_writer_new(&w, dir, 0, &err), &err);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < sw_st_count(st); i++) {
            const sw_st_tensor *t = sw_st_at(st, i);
            if (is_stacked_source(t->name)) continue;
            must(pass ? sw_st_writer_put(w, t->name, t->view.data, t->view.size_bytes, &err)
                      : sw_st_writer_declare(w, t->name, t->view.dtype, t->view.n_dims,
                                             t->view.shape, &err),
                 &err);
        }
        for (int64_t i = 0; i < p->c.n; i++)
            for (int which = 0; which < 2 && p->is_wanted[i]; which++)
                put_stack(w, &p->c, i, which, pass == 1);
        if (!pass) must(sw_st_writer_begin(w, &err), &err);
    }
    must(sw_st_writer_commit(w, &err), &err);
    sw_st_writer_free(w);
}

static void write_config(published *p, const char *path)
{
    cJSON *root = NULL, *quant = NULL;
    sw_qconfig config = {.spec = *sw_gen_float_spec(FLOATS_MX)};
    char *text;
    sw_err err = {0};

    must(sw_json_read(&root, scratch_path(&p->s, "source/config.json"), &sw_json_caps_config, &err),
         &err);
    must(mxfp4()->write_config(&quant, &config, &err), &err);
    cJSON_AddItemToObject(root, "quantization_config", quant);
    text = cJSON_Print(root);
    must(sw_file_put(path, text, strlen(text), &err), &err);
    cJSON_free(text);
    cJSON_Delete(root);
}

/* Experts alone are quantized; ckpt_case is cut down to them. */
static void make_published(published *p)
{
    int64_t n = 0;

    memset(p, 0, sizeof *p);
    scratch_open(&p->s);
    ckpt_source(&p->s, "gpt_oss");
    ckpt_open(&p->c, &p->s, sw_dialect_find("swage"), 4, true, 32);
    p->c.config.spec = *sw_gen_float_spec(FLOATS_MX);
    for (int64_t i = 0; i < p->c.n; i++) {
        int64_t n_out = p->c.q[i].n_out, k_in = p->c.q[i].k_in;
        sw_qtensor_free(&p->c.q[i]);
        if (!strstr(p->c.paths[i], ".experts.")) continue;
        memmove(p->c.paths[n], p->c.paths[i], sizeof p->c.paths[n]);
        p->c.linears[n] = p->c.linears[i];
        p->c.linears[n].module_path = p->c.paths[n];
        sw_gen_float_qtensor(&p->c.q[n], FLOATS_MX, n_out, k_in, (uint64_t)i);
        p->is_wanted[n++] = true;
    }
    for (int64_t i = n; i < p->c.n; i++) memset(&p->c.q[i], 0, sizeof p->c.q[i]);
    p->c.n = n;
    write_published(p, scratch_path(&p->s, "."));
    write_config(p, scratch_path(&p->s, "config.json"));
}

static void free_published(published *p)
{
    ckpt_close(&p->c);
    scratch_close(&p->s);
}

static float *logits_of(const char *dir, int64_t *n_logits)
{
    enum { SEQ_LEN = 20 };
    sw_lm_options options = {.n_threads = 1};
    uint32_t ids[SEQ_LEN];
    sw_checkpoint ckpt;
    open_model m = {0};
    sw_err err = {0};

    must(sw_checkpoint_open(&ckpt, dir, &err), &err);
    must(sw_lm_open(&m.lm, &ckpt, &options, &err), &err);
    m.model = ckpt.model;
    m.st = ckpt.st;
    for (int i = 0; i < SEQ_LEN; i++) ids[i] = (uint32_t)((i * 37 + 11) % ckpt.model.vocab);
    float *logits = model_logits(&m, 1, ids, 1, SEQ_LEN);
    *n_logits = SEQ_LEN * ckpt.model.vocab;
    sw_lm_free(&m.lm);
    sw_checkpoint_close(&ckpt);
    return logits;
}

/* Both decoders give what was put in, and the model runs as the same weights in tiles do. */
static void a_published_checkpoint_is_read(void **state)
{
    published p;
    sw_checkpoint ckpt;
    sw_subject judged;
    int64_t n_a, n_b;
    float *a, *b;
    sw_err err = {0};

    (void)state;
    make_published(&p);
    must(sw_checkpoint_open(&ckpt, p.s.dir, &err), &err);
    assert_ptr_equal(ckpt.dialect, mxfp4());
    must(sw_subject_open(&judged, p.s.dir, true, &err), &err);
    for (int64_t i = 0; i < p.c.n; i++) {
        const sw_qtensor *want = &p.c.q[i];
        sw_spec_weight w = {0};
        sw_qtensor q;
        assert_true(sw_checkpoint_is_quantized(&ckpt, p.c.paths[i]));
        assert_true(sw_spec_is_quantized(&judged.scheme, judged.st, p.c.paths[i]));
        must(sw_checkpoint_qtensor(&q, &ckpt, p.c.paths[i], want->n_out, want->k_in, &err), &err);
        sw_gen_assert_same(&q, want);
        must(sw_spec_decode(&w, &judged.scheme, judged.st, p.c.paths[i], want->n_out, want->k_in,
                            &err), &err);
        assert_memory_equal(w.codes, want->codes, (size_t)(want->n_out * want->k_in));
        assert_memory_equal(w.scales, want->scales, (size_t)(want->n_out * want->n_groups) * 4);
        sw_spec_weight_free(&w);
        sw_qtensor_free(&q);
    }
    assert_false(sw_checkpoint_is_quantized(&ckpt, "model.layers.0.self_attn.q_proj"));
    assert_false(sw_spec_is_quantized(&judged.scheme, judged.st,
                                      "model.layers.0.self_attn.q_proj"));
    sw_subject_close(&judged);
    sw_checkpoint_close(&ckpt);
    must(ckpt_write(&p.c, &p.s, "tiles", sw_dialect_find("swage"), false, 0, false, &err), &err);
    a = logits_of(p.s.dir, &n_a);
    b = logits_of(scratch_path(&p.s, "tiles"), &n_b);
    assert_int_equal(n_a, n_b);
    assert_memory_equal(a, b, (size_t)n_a * sizeof *a);
    sw_mem_put(a);
    sw_mem_put(b);
    free_published(&p);
}

/* Experts come out as modules of their own, bias and all, and compute the same. */
static void it_converts_exactly(void **state)
{
    sw_convert_options o = {.target = sw_dialect_find("compressed-tensors"), .n_threads = 1};
    sw_convert_job *job = NULL;
    published p;
    scratch out;
    sw_checkpoint ckpt;
    int64_t n_a, n_b;
    float *a, *b;
    sw_err err = {0};

    (void)state;
    make_published(&p);
    scratch_open(&out);
    o.source_dir = p.s.dir;
    o.out_dir = scratch_path(&out, "ct");
    must(SW_MEM_GET(&job, 1, "job", &err), &err);
    must(sw_convert_plan(job, &o, NULL, &err), &err);
    assert_int_equal(job->n_of[SW_FATE_EXACT], p.c.n);
    must(sw_convert_run(job, &err), &err);
    must(sw_checkpoint_open(&ckpt, o.out_dir, &err), &err);
    for (int64_t i = 0; i < sw_st_count(ckpt.st); i++)
        assert_null(strstr(sw_st_at(ckpt.st, i)->name, "_blocks"));
    sw_checkpoint_close(&ckpt);
    a = logits_of(p.s.dir, &n_a);
    b = logits_of(o.out_dir, &n_b);
    assert_int_equal(n_a, n_b);
    assert_memory_equal(a, b, (size_t)n_a * sizeof *a);
    sw_mem_put(a);
    sw_mem_put(b);
    sw_convert_free(job);
    sw_mem_put(job);
    scratch_close(&out);
    free_published(&p);
}

/* The writer gathers experts, whatever order they come in, into just those tensors. */
static void a_written_checkpoint_is_the_published_one(void **state)
{
    published p;
    sw_st *want = NULL, *have = NULL;
    sw_err err = {0};

    (void)state;
    make_published(&p);
    must(sw_st_open(&want, p.s.dir, &err), &err);
    for (int reverse = 0; reverse < 2; reverse++) {
        must(ckpt_write(&p.c, &p.s, "mx", mxfp4(), reverse, 0, reverse, &err), &err);
        must(sw_st_open(&have, scratch_path(&p.s, "mx"), &err), &err);
        assert_int_equal(sw_st_count(have), sw_st_count(want));
        for (int64_t i = 0; i < sw_st_count(want); i++) {
            const sw_cview *a = &sw_st_at(have, i)->view, *b = &sw_st_at(want, i)->view;
            assert_string_equal(sw_st_at(have, i)->name, sw_st_at(want, i)->name);
            assert_int_equal(a->n_dims, b->n_dims);
            assert_memory_equal(a->shape, b->shape, (size_t)b->n_dims * sizeof *b->shape);
            assert_memory_equal(a->data, b->data, b->size_bytes);
        }
        sw_st_close(have);
        have = NULL;
    }
    sw_st_close(want);
    free_published(&p);
}

static void what_has_no_place_is_refused_before_the_work(void **state)
{
    published p;
    sw_ckpt_linear attention = {"model.layers.0.self_attn.q_proj", 128, 128, NULL};
    sw_err err = {0};
    int64_t n;

    (void)state;
    make_published(&p);
    n = p.c.n;
    p.c.n = n - 1;
    assert_int_equal(ckpt_write(&p.c, &p.s, "mx", mxfp4(), false, 0, false, &err), SW_E_USAGE);
    if (!strstr(err.text, "quantize all or none")) fail_msg("%s", err.text);
    p.c.n = n;
    p.c.linears[n - 1] = attention;
    memset(&err, 0, sizeof err);
    assert_int_equal(ckpt_write(&p.c, &p.s, "mx", mxfp4(), false, 0, false, &err),
                     SW_E_UNSUPPORTED);
    if (!strstr(err.text, "holds experts alone")) fail_msg("%s", err.text);
    assert_false(scratch_has(&p.s, "partial"));
    free_published(&p);
}

/* From a checkpoint whose experts have tensors and biases of their own, back to what it came of. */
static void experts_that_lay_apart_come_together(void **state)
{
    static const char *const dialects[] = {"compressed-tensors", "swage"};

    (void)state;
    for (int d = 0; d < 2; d++) {
        published p;
        sw_checkpoint apart;
        sw_ckpt_writer *w = NULL;
        sw_st *want = NULL, *have = NULL;
        cJSON *manifest = cJSON_CreateObject();
        sw_err err = {0};

        make_published(&p);
        must(ckpt_write(&p.c, &p.s, "apart", sw_dialect_find(dialects[d]), false, 0, false, &err),
             &err);
        must(sw_checkpoint_open(&apart, scratch_path(&p.s, "apart"), &err), &err);
        assert_non_null(sw_st_find(apart.st, MODULE "3.up_proj.bias"));
        must(sw_ckpt_writer_new(&w, &apart, scratch_path(&p.s, "mx"), false, mxfp4(), &p.c.config,
                                p.c.linears, p.c.n, 0, &err), &err);
        for (int64_t i = 0; i < p.c.n; i++)
            must(sw_ckpt_writer_put(w, p.c.paths[i], &p.c.q[i], &err), &err);
        must(sw_ckpt_writer_commit(w, manifest, &err), &err);
        sw_ckpt_writer_free(w);
        must(sw_st_open(&want, p.s.dir, &err), &err);
        must(sw_st_open(&have, scratch_path(&p.s, "mx"), &err), &err);
        assert_int_equal(sw_st_count(have), sw_st_count(want));
        for (int64_t i = 0; i < sw_st_count(want); i++) {
            assert_string_equal(sw_st_at(have, i)->name, sw_st_at(want, i)->name);
            assert_memory_equal(sw_st_at(have, i)->view.data, sw_st_at(want, i)->view.data,
                                sw_st_at(want, i)->view.size_bytes);
        }
        sw_st_close(want);
        sw_st_close(have);
        sw_checkpoint_close(&apart);
        cJSON_Delete(manifest);
        free_published(&p);
    }
}

static sw_ckpt_writer *open_kept(published *p, const cJSON *key)
{
    const sw_ckpt_keep keep = {.key = key};
    sw_ckpt_writer *w = NULL;
    sw_err err = {0};

    must(sw_ckpt_writer_new_kept(&w, &p->c.source, scratch_path(&p->s, "kept"), false, mxfp4(),
                                 &p->c.config, p->c.linears, p->c.n, 0, &keep, &err), &err);
    return w;
}

/* A run that stops after a block: the next finds its experts in the tensors of all. */
static void an_unfinished_run_is_taken_up(void **state)
{
    cJSON *key = cJSON_CreateObject(), *figures = cJSON_CreateObject(), *manifest;
    sw_ckpt_writer *w;
    sw_st *whole = NULL, *kept = NULL;
    published p;
    sw_qtensor q;
    sw_err err = {0};

    (void)state;
    make_published(&p);
    w = open_kept(&p, key);
    for (int64_t i = 0; i < p.c.n; i++)
        if (strstr(p.c.paths[i], "layers.0."))
            must(sw_ckpt_writer_put(w, p.c.paths[i], &p.c.q[i], &err), &err);
    cJSON_AddObjectToObject(figures, "rows");
    must(sw_ckpt_writer_end_block(w, figures, &err), &err);
    assert_non_null(sw_ckpt_writer_leave(w));
    sw_ckpt_writer_free(w);
    w = open_kept(&p, key);
    assert_int_equal(sw_ckpt_writer_n_done(w), 1);
    for (int64_t i = 0; i < p.c.n; i++) {
        if (!strstr(p.c.paths[i], "layers.0.")) {
            must(sw_ckpt_writer_put(w, p.c.paths[i], &p.c.q[i], &err), &err);
            continue;
        }
        must(sw_ckpt_writer_get(&q, w, p.c.paths[i], &err), &err);
        sw_gen_assert_same(&q, &p.c.q[i]);
        sw_qtensor_free(&q);
    }
    manifest = cJSON_CreateObject();
    must(sw_ckpt_writer_commit(w, manifest, &err), &err);
    sw_ckpt_writer_free(w);
    must(sw_st_open(&whole, p.s.dir, &err), &err);
    must(sw_st_open(&kept, scratch_path(&p.s, "kept"), &err), &err);
    for (int64_t i = 0; i < sw_st_count(whole); i++)
        assert_memory_equal(sw_st_at(kept, i)->view.data, sw_st_at(whole, i)->view.data,
                            sw_st_at(whole, i)->view.size_bytes);
    sw_st_close(whole);
    sw_st_close(kept);
    cJSON_Delete(key);
    cJSON_Delete(manifest);
    free_published(&p);
}

/* What is wrong with the file is said by both. */
static bool spoil_dtype(void *ctx, const char *name, sw_cview *view)
{
    if (strstr(name, ctx)) view->dtype = SW_DTYPE_I8;
    return true;
}

static bool spoil_missing(void *ctx, const char *name, sw_cview *view)
{
    (void)view;
    return !strstr(name, ctx);
}

static void spoilt_files_are_named(void **state)
{
    static char first[] = "layers.0.mlp.experts.down_proj_scales";
    static char blocks[] = "layers.0.mlp.experts.gate_up_proj_blocks";
    static const struct { ckpt_edit edit; char *what; const char *path, *says, *second; } rows[] = {
        {spoil_dtype, first, MODULE "0.down_proj", "down_proj_scales\" is I8 [4, 128, 8]",
         "scales is missing, or not U8"},
        {spoil_missing, first, MODULE "1.down_proj", "down_proj.scales\" is missing",
         "scales is missing, or not U8"},
        {spoil_dtype, blocks, MODULE "3.up_proj", "gate_up_proj_blocks\" is I8 [4, 512, 4, 16]",
         "blocks is missing, or not U8"}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        published p;
        sw_checkpoint ckpt;
        sw_subject judged;
        sw_spec_weight w = {0};
        sw_qtensor q;
        int64_t n = rows[i].what == blocks ? 256 : 128, k = rows[i].what == blocks ? 128 : 256;
        sw_err err = {0}, why = {0}, again = {0};

        make_published(&p);
        ckpt_rewrite(&p.s, ".", rows[i].edit, rows[i].what);
        must(sw_checkpoint_open(&ckpt, p.s.dir, &err), &err);
        must(sw_subject_open(&judged, p.s.dir, true, &err), &err);
        assert_int_equal(sw_checkpoint_qtensor(&q, &ckpt, rows[i].path, n, k, &why), SW_E_FORMAT);
        if (!strstr(why.text, rows[i].says)) fail_msg("\"%s\"", why.text);
        assert_int_equal(sw_spec_decode(&w, &judged.scheme, judged.st, rows[i].path, n, k, &again),
                         SW_E_FORMAT);
        if (!strstr(again.text, rows[i].second)) fail_msg("\"%s\"", again.text);
        memset(&why, 0, sizeof why);
        assert_int_equal(sw_checkpoint_qtensor(&q, &ckpt, MODULE "4.gate_proj", 256, 128, &why),
                         SW_E_FORMAT); /* there are four */
        sw_subject_close(&judged);
        sw_checkpoint_close(&ckpt);
        free_published(&p);
    }
}

static void other_schemes_are_refused(void **state)
{
    static const char *const schemes[] = {"MXFP4", "NVFP4A16", "MXFP8", "W4A16"};
    sw_qspec spec = *sw_gen_float_spec(FLOATS_MX);
    cJSON *object = cJSON_Parse("{\"quant_method\":\"mxfp4\",\"modules_to_not_convert\":[\"x\"]}");
    sw_qconfig back = {0};
    sw_arena arena = {0};
    sw_err err = {0};

    (void)state;
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        sw_qspec one = sw_scheme_spec(sw_scheme_find(schemes[i]));
        sw_err why = {0};
        assert_int_equal(mxfp4()->can_hold(&one, 64, 128, &why), SW_E_UNSUPPORTED);
        assert_non_null(strstr(why.text, "MXFP4A16"));
    }
    assert_int_equal(mxfp4()->can_hold(&spec, 64, 128, &err), SW_OK);
    assert_int_equal(mxfp4()->can_hold(&spec, 64, 48, &err), SW_E_UNSUPPORTED);
    assert_ptr_equal(sw_dialect_detect(object), mxfp4());
    must(mxfp4()->read_config(&back, object, &arena, &(sw_err){0}), &err);
    assert_true(sw_qspec_same(&back.spec, &spec));
    assert_string_equal(back.ignore[0], "x");
    sw_arena_free(&arena);
    cJSON_Delete(object);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_worked_block),
        cmocka_unit_test(paths_say_where_rows_lie),
        cmocka_unit_test(a_published_checkpoint_is_read),
        cmocka_unit_test(it_converts_exactly),
        cmocka_unit_test(a_written_checkpoint_is_the_published_one),
        cmocka_unit_test(what_has_no_place_is_refused_before_the_work),
        cmocka_unit_test(experts_that_lay_apart_come_together),
        cmocka_unit_test(an_unfinished_run_is_taken_up),
        cmocka_unit_test(spoilt_files_are_named),
        cmocka_unit_test(other_schemes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
