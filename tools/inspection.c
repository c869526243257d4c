/* inspection.c - see inspection.h. */
#include "tools/inspection.h"

#include <stdio.h>
#include <string.h>

#include "formats/model/stored.h"
#include "formats/text/tokenizer.h"
#include "tools/values.h"

/* Keep a failure as a problem and go on. */
static void add_problem(sw_inspection *in, const sw_err *problem)
{
    if (problem->code == SW_OK) return;
    if (in->n_problems < SW_PROBLEMS_MAX) in->problems[in->n_problems] = *problem;
    in->n_problems++;
}

static void total_up(sw_inspection *in)
{
    for (int64_t i = 0; i < sw_st_count(in->st); i++) {
        const sw_cview *view = &sw_st_at(in->st, i)->view;
        sw_dtype_total *of = &in->by_dtype[view->dtype];
        of->n_tensors++;
        of->n_elems += sw_view_elems(view);
        of->n_bytes += view->size_bytes;
    }
    for (int d = 0; d < SW_DTYPE_COUNT; d++) {
        in->total.n_tensors += in->by_dtype[d].n_tensors;
        in->total.n_elems += in->by_dtype[d].n_elems;
        in->total.n_bytes += in->by_dtype[d].n_bytes;
    }
}

static void read_model(sw_inspection *in, const char *config_path)
{
    const cJSON *quant = sw_json_member(in->config, "quantization_config");
    sw_err problem = {0};

    in->has_model = sw_model_read(&in->model, in->config, &problem) == SW_OK;
    if (in->has_model) sw_model_fit_names(&in->model, in->st);
    sw_err_prefix(&problem, "%s", config_path);
    add_problem(in, &problem);
    if (!quant) return;
    memset(&problem, 0, sizeof problem);
    in->dialect = sw_dialect_detect(quant);
    if (!in->dialect)
        (void)SW_FAIL(&problem, SW_E_UNSUPPORTED,
                      "quantization_config is of no format that this build reads "
                      "(swage list formats)");
    else if (in->dialect->read_config(&in->qconfig, quant, &in->arena, &problem) != SW_OK)
        in->dialect = NULL;
    sw_err_prefix(&problem, "%s", config_path);
    add_problem(in, &problem);
}

static void check_table(sw_inspection *in, const char *path, int64_t rows, int64_t columns)
{
    const int64_t shape[] = {rows, columns};
    const sw_st_tensor *t;
    sw_err problem = {0};
    char name[320];

    (void)snprintf(name, sizeof name, "%s.weight", path);
    (void)!sw_stored_tensor(&t, in->st, name, 2, shape, &problem); /* the code stays in problem */
    add_problem(in, &problem);
}

static bool is_quantized(const sw_inspection *in, const char *path)
{
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    char name[320];

    if (!in->dialect) return false;
    /* the first declared tensor is the codes in every dialect */
    if (in->dialect->declare(parts, &in->qconfig.spec, 64, 64) < 1) return false;
    (void)snprintf(name, sizeof name, "%s.%s", path, parts[0].suffix);
    return sw_st_find(in->st, name) != NULL;
}

static sw_code check_layer(sw_inspection *in, int64_t layer, sw_err *err)
{
    sw_arena_mark mark = sw_arena_save(&in->arena);
    int64_t n = sw_model_linears(&in->model, layer, NULL, 0);
    sw_linear_ref *refs;
    sw_code rc = SW_ARENA_TAKE(&refs, &in->arena, n, err);

    if (rc != SW_OK) return rc;
    (void)sw_model_linears(&in->model, layer, refs, n);
    for (int64_t i = 0; i < n; i++) {
        sw_err problem = {0};
        sw_stored stored;
        char path[256];
        if (!sw_model_slot_path(path, &in->model, layer, refs[i].slot, refs[i].expert)) continue;
        if (is_quantized(in, path)) {
            in->n_quantized++;
            continue;
        }
        (void)!sw_stored_weight(&stored, &in->model, in->st, layer, refs[i].slot, refs[i].expert,
                                &problem);
        add_problem(in, &problem);
    }
    sw_arena_reset(&in->arena, mark);
    return SW_OK;
}

static sw_code check_model(sw_inspection *in, sw_err *err)
{
    const sw_arch_ends *ends;
    sw_code rc = SW_OK;

    if (!in->has_model) return SW_OK;
    ends = &in->model.arch->ends;
    check_table(in, sw_model_end(&in->model, ends->embed), in->model.vocab, in->model.hidden);
    if (!in->model.is_tied) check_table(in, ends->head, in->model.vocab, in->model.hidden);
    if (in->model.n_position_rows)
        check_table(in, sw_model_end(&in->model, ends->positions), in->model.n_position_rows,
                    in->model.hidden);
    for (int64_t layer = 0; layer < in->model.n_layers && rc == SW_OK; layer++)
        rc = check_layer(in, layer, err);
    return rc;
}

static void check_tokenizer(sw_inspection *in)
{
    char path[SW_PATH_BYTES];
    sw_tokenizer *tok = NULL;
    sw_err problem = {0};

    if (sw_path_join(path, in->path, "tokenizer.json", &problem) != SW_OK ||
        sw_tokenizer_open(&tok, path, &problem) != SW_OK) {
        add_problem(in, &problem);
        return;
    }
    in->tokenizer_vocab = sw_tokenizer_vocab(tok);
    if (in->has_model && in->tokenizer_vocab > in->model.vocab)
        (void)SW_FAIL(&problem, SW_E_FORMAT,
                      "tokenizer.json has %lld tokens, the embedding has %lld rows",
                      (long long)in->tokenizer_vocab, (long long)in->model.vocab);
    add_problem(in, &problem);
    sw_tokenizer_free(tok);
}

static sw_code check_values(sw_inspection *in, const sw_progress *progress, sw_err *err)
{
    int64_t n = sw_st_count(in->st);

    for (int64_t i = 0; i < n; i++) {
        sw_err problem = {0};
        sw_code rc;
        sw_progress_step(progress, "values", i, n);
        if ((rc = sw_progress_check(progress, err)) != SW_OK) return rc;
        rc = sw_values_check(sw_st_at(in->st, i), &problem);
        if (rc != SW_OK && rc != SW_E_FORMAT) return SW_FAIL(err, rc, "%s", problem.text);
        add_problem(in, &problem);
    }
    return SW_OK;
}

sw_code sw_inspection_open(sw_inspection *out, const char *path, bool with_values,
                           const sw_progress *progress, sw_err *err)
{
    char config_path[SW_PATH_BYTES];
    sw_code rc;

    memset(out, 0, sizeof *out);
    out->path = path;
    if ((rc = sw_st_open(&out->st, path, err)) != SW_OK) goto done;
    total_up(out);
    if (sw_path_is_dir(path)) {
        if ((rc = sw_path_join(config_path, path, "config.json", err)) != SW_OK) goto done;
        rc = sw_json_read(&out->config, config_path, &sw_json_caps_config, err);
        if (rc != SW_OK) goto done;
        read_model(out, config_path);
        if ((rc = check_model(out, err)) != SW_OK) goto done;
    }
    if (with_values && (rc = check_values(out, progress, err)) != SW_OK) goto done;
    if (out->config) check_tokenizer(out);
done:
    if (rc != SW_OK) sw_inspection_close(out);
    return rc;
}

void sw_inspection_close(sw_inspection *in)
{
    sw_st_close(in->st);
    cJSON_Delete(in->config);
    sw_arena_free(&in->arena);
    memset(in, 0, sizeof *in);
}
