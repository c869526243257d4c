/* quantized_dir.c - see quantized_dir.h. */
#include "tests/support/quantized_dir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "formats/dialect/checkpoint.h"
#include "quant/pipeline.h"

#define LINEARS_MAX 512

static sw_code put(void *self, const sw_linear_ref *ref, const char *path, const sw_qtensor *q,
                   const sw_solve_report *report, sw_err *err)
{
    (void)ref;
    (void)report;
    return sw_ckpt_writer_put(self, path, q, err);
}

static bool is_selected(void *self, const sw_linear_ref *ref, const char *path)
{
    (void)self;
    (void)ref;
    (void)path;
    return true;
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

void quantized_dir_make(const char *out_dir, const char *source_dir, const char *dialect, int bits,
                        bool is_symmetric, int64_t group_elems)
{
    quantized_dir_calibrate(out_dir, source_dir, dialect, bits, is_symmetric, group_elems, NULL);
}

void quantized_dir_calibrate(const char *out_dir, const char *source_dir, const char *dialect,
                             int bits, bool is_symmetric, int64_t group_elems,
                             const sw_calib *calib)
{
    const sw_dialect *d = sw_dialect_find(dialect);
    sw_checkpoint *source = calloc(1, sizeof *source);
    sw_ckpt_linear *linears = calloc(LINEARS_MAX, sizeof *linears);
    char (*paths)[256] = calloc(LINEARS_MAX, sizeof *paths);
    sw_quant_options options = sw_quant_defaults();
    sw_quant_sink sink = {.self = NULL, .put = put, .is_selected = is_selected};
    sw_ckpt_writer *writer = NULL;
    sw_qconfig config = {.damp = 0};
    sw_err err = {0};
    int64_t n;

    assert_true(d && source && linears && paths);
    if (sw_checkpoint_open(source, source_dir, &err) != SW_OK) fail_msg("%s", err.text);
    options.algo = sw_algo_find(calib ? "gptq" : "rtn");
    options.spec = (sw_qspec){.num = sw_num_by_bits(bits), .is_symmetric = is_symmetric,
                              .group_elems = group_elems, .zero_min = d->zero_min,
                              .scale_dtype = d->scale_dtype(source->model.dtype)};
    options.n_threads = 2;
    config.spec = options.spec;
    n = list_linears(linears, paths, &source->model);
    if (sw_ckpt_writer_new(&writer, source, out_dir, false, d, &config, linears, n, 0,
                           &err) != SW_OK)
        fail_msg("%s", err.text);
    sink.self = writer;
    if (sw_quant_run(&source->model, source->st, calib, &options, &sink, NULL, &err) != SW_OK ||
        sw_ckpt_writer_commit(writer, NULL, &err) != SW_OK)
        fail_msg("%s", err.text);
    sw_ckpt_writer_free(writer);
    sw_checkpoint_close(source);
    free(source);
    free(linears);
    free(paths);
}
