/* quantized_dir.c - see quantized_dir.h. */
#include "tests/support/cases/quantized_dir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "formats/checkpoint/checkpoint.h"
#include "quant/run/pipeline.h"
#include "quant/run/scheme.h"
#include "tests/support/toys/random.h"

#define LINEARS_MAX 512
enum { SEQS = 24, SEQ_LEN = 96 };

/* What the sink writes to. */
typedef struct outlet {
    sw_ckpt_writer *writer;
    cJSON *manifest, *transforms;
} outlet;

static sw_code put(void *self, const sw_linear_ref *ref, const char *path, const sw_qtensor *q,
                   const sw_solve_report *report, sw_err *err)
{
    (void)ref;
    (void)report;
    return sw_ckpt_writer_put(((outlet *)self)->writer, path, q, err);
}

static sw_code change(void *self, const char *name, const float *values, int64_t n, sw_err *err)
{
    return sw_ckpt_writer_change(((outlet *)self)->writer, name, values, n, err);
}

static sw_code transformed(void *self, const sw_transform_report *report, sw_err *err)
{
    outlet *o = self;
    cJSON *row = cJSON_CreateObject();

    (void)err;
    if (!o->transforms) o->transforms = cJSON_AddArrayToObject(o->manifest, "transforms");
    assert_non_null(cJSON_AddStringToObject(row, "folded_into", report->producer));
    assert_non_null(cJSON_AddBoolToObject(row, "accepted", report->is_accepted));
    assert_true(cJSON_AddItemToArray(o->transforms, row));
    return SW_OK;
}

static bool is_selected(void *self, const sw_linear_ref *ref, const char *path)
{
    (void)self;
    (void)path;
    return ref->slot != SW_SLOT_HEAD;
}

static int64_t list_linears(sw_ckpt_linear *out, char (*paths)[256], const sw_model *m)
{
    sw_linear_ref refs[LINEARS_MAX];
    int64_t n = 0;

    for (int64_t l = 0; l < m->n_layers; l++) {
        int64_t in_block = sw_model_linears(m, l, refs, LINEARS_MAX);

        assert_in_range(n + in_block, 1, LINEARS_MAX);
        for (int64_t i = 0; i < in_block; i++) {
            assert_true(sw_model_slot_path(paths[n], m, l, refs[i].slot, refs[i].expert));
            out[n] = (sw_ckpt_linear){paths[n], refs[i].n_out, refs[i].k_in, NULL};
            n++;
        }
    }
    return n;
}

static sw_calib random_calib(uint32_t ids[SEQS * SEQ_LEN], int64_t vocab)
{
    test_rng rng = {23};

    for (int i = 0; i < SEQS * SEQ_LEN; i++)
        ids[i] = (uint32_t)((double)vocab * test_uniform(&rng));
    return (sw_calib){ids, SEQS, SEQ_LEN};
}

void quantized_dir_make(const char *out_dir, const char *source_dir, const char *dialect, int bits,
                        bool is_symmetric, int64_t group_elems)
{
    quantized_dir_by(out_dir, source_dir, dialect, bits, is_symmetric, group_elems,
                     sw_algo_find("rtn"), NULL);
}

void quantized_dir_calibrate(const char *out_dir, const char *source_dir, const char *dialect,
                             int bits, bool is_symmetric, int64_t group_elems,
                             const sw_calib *calib)
{
    quantized_dir_by(out_dir, source_dir, dialect, bits, is_symmetric, group_elems,
                     sw_algo_find(calib ? "gptq" : "rtn"), calib);
}

static void write_dir(const char *out_dir, const char *source_dir, const char *dialect,
                      const sw_qspec *spec, const sw_algo *algo, const sw_calib *calib)
{
    const sw_dialect *d = sw_dialect_find(dialect);
    sw_checkpoint *source = calloc(1, sizeof *source);
    sw_ckpt_linear *linears = calloc(LINEARS_MAX, sizeof *linears);
    char (*paths)[256] = calloc(LINEARS_MAX, sizeof *paths);
    sw_quant_options options = sw_quant_defaults();
    static uint32_t ids[SEQS * SEQ_LEN];
    outlet o = {.manifest = cJSON_CreateObject()};
    sw_quant_sink sink = {.self = &o, .put = put, .is_selected = is_selected, .change = change,
                          .transformed = transformed};
    sw_calib drawn;
    sw_qconfig config = {.damp = 0};
    sw_err err = {0};
    int64_t n;

    assert_true(d && source && linears && paths);
    if (sw_checkpoint_open(source, source_dir, &err) != SW_OK) fail_msg("%s", err.text);
    drawn = random_calib(ids, source->model.vocab);
    options.algo = algo;
    options.spec = *spec;
    options.spec.zero_min = d->zero_min;
    if (!spec->is_pow2_scale && !spec->has_global)
        options.spec.scale_dtype = d->scale_dtype(source->model.dtype);
    if (!calib) options.cap = (sw_strengths){0, 0}; /* random tokens would teach it noise */
    if (!calib && algo->needs_statistics) calib = &drawn;
    options.n_threads = 2;
    config.spec = options.spec;
    n = list_linears(linears, paths, &source->model);
    if (sw_ckpt_writer_new(&o.writer, source, out_dir, false, d, &config, linears, n, 0,
                           &err) != SW_OK)
        fail_msg("%s", err.text);
    if (sw_quant_run(&source->model, source->st, calib, &options, &sink, NULL, &err) != SW_OK ||
        sw_ckpt_writer_commit(o.writer, o.manifest, &err) != SW_OK)
        fail_msg("%s", err.text);
    sw_ckpt_writer_free(o.writer);
    cJSON_Delete(o.manifest);
    sw_checkpoint_close(source);
    free(source);
    free(linears);
    free(paths);
}

void quantized_dir_by(const char *out_dir, const char *source_dir, const char *dialect, int bits,
                      bool is_symmetric, int64_t group_elems, const sw_algo *algo,
                      const sw_calib *calib)
{
    const sw_qspec spec = {.num = sw_num_by_bits(bits), .is_symmetric = is_symmetric,
                           .group_elems = group_elems};

    write_dir(out_dir, source_dir, dialect, &spec, algo, calib);
}

void quantized_dir_of_scheme(const char *out_dir, const char *source_dir, const char *dialect,
                             const char *scheme)
{
    write_dir(out_dir, source_dir, dialect, &sw_scheme_find(scheme)->spec, sw_algo_find("rtn"),
              NULL);
}
