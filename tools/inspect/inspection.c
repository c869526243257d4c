/* inspection.c - see inspection.h. */
#include "tools/inspect/inspection.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/parallel.h"
#include "formats/checkpoint/model_path.h"
#include "formats/checkpoint/model_text.h"
#include "formats/gguf/gguf_model.h"
#include "formats/io/file_content.h"
#include "formats/model/stored.h"
#include "tools/cli/values.h"

/* Keep a failure as a problem and go on. */
static void add_problem(sw_inspection *in, const sw_err *problem)
{
    if (problem->code == SW_OK) return;
    if (in->n_problems < SW_PROBLEMS_MAX) in->problems[in->n_problems] = *problem;
    in->n_problems++;
}

static void add_total(sw_dtype_total *of, sw_dtype_total *all, int64_t n_elems, uint64_t n_bytes)
{
    sw_dtype_total *both[] = {of, all};

    for (int i = 0; i < 2; i++) {
        both[i]->n_tensors++;
        both[i]->n_elems += n_elems;
        both[i]->n_bytes += n_bytes;
    }
}

/* A GGUF counts as it is stored; what its tensors are made into when they are read says nothing
 * about the file. */
static sw_code total_gguf(sw_inspection *in, sw_err *err)
{
    sw_gguf *g = NULL;
    sw_code rc = sw_gguf_open(&g, in->ckpt.dir, err);

    for (int64_t i = 0; rc == SW_OK && i < sw_gguf_count(g); i++) {
        const sw_gguf_tensor *t = sw_gguf_at(g, i);
        const sw_block_size *size = &sw_block_sizes[t->type];

        add_total(&in->by_block[t->type], &in->total,
                  (int64_t)(t->size_bytes / (uint64_t)size->bytes) * size->elems, t->size_bytes);
    }
    sw_gguf_close(g);
    return rc;
}

static sw_code total_up(sw_inspection *in, sw_err *err)
{
    if (in->is_open && in->ckpt.is_file) return total_gguf(in, err);
    for (int64_t i = 0; i < sw_st_count(in->st); i++) {
        const sw_cview *view = &sw_st_at(in->st, i)->view;

        add_total(&in->by_dtype[view->dtype], &in->total, sw_view_elems(view), view->size_bytes);
    }
    return SW_OK;
}

static void read_model(sw_inspection *in, const char *config_path)
{
    const cJSON *quant = sw_json_member(in->config, "quantization_config");
    sw_err problem = {0};

    in->has_model = sw_model_read(&in->model, in->config, &problem) == SW_OK &&
                    sw_rope_check_once(&in->model, &problem) == SW_OK;
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

static void check_ends(sw_inspection *in)
{
    if (!in->has_model) return;
    check_table(in, sw_model_end(&in->model, SW_END_EMBED), in->model.vocab, in->model.hidden);
    if (!in->model.is_tied && !in->is_open) /* else it is looked at among the linears */
        check_table(in, sw_model_end(&in->model, SW_END_HEAD), in->model.vocab, in->model.hidden);
    if (in->model.n_position_rows)
        check_table(in, sw_model_end(&in->model, SW_END_POSITIONS), in->model.n_position_rows,
                    in->model.hidden);
}

static void report_problem(void *self, const sw_err *problem) { add_problem(self, problem); }

static void add_note(sw_inspection *in, const char *fmt, ...) SW_PRINTF(2, 3);
static void add_note(sw_inspection *in, const char *fmt, ...)
{
    va_list args;

    if (in->n_notes == SW_NOTES_MAX) return;
    va_start(args, fmt);
    (void)vsnprintf(in->notes[in->n_notes++], SW_NOTE_BYTES, fmt, args);
    va_end(args);
}

/* A head that repeats the embedding it is tied to. One that differs breaks a rule of loaders. */
static void check_tie(sw_inspection *in)
{
    const sw_model *m = &in->model;
    char head_name[320], embed_name[320];
    const sw_st_tensor *head, *embed;

    (void)snprintf(head_name, sizeof head_name, "%s.weight", sw_model_end(m, SW_END_HEAD));
    (void)snprintf(embed_name, sizeof embed_name, "%s.weight",
                   sw_model_end(m, SW_END_EMBED));
    head = sw_st_find(in->st, head_name);
    embed = sw_st_find(in->st, embed_name);
    if (!head || !embed || head->maker || embed->maker ||
        head->view.dtype != embed->view.dtype ||
        head->view.size_bytes != embed->view.size_bytes ||
        memcmp(head->view.data, embed->view.data, head->view.size_bytes) != 0)
        return;
    if (m->is_tied)
        add_note(in, "%s is a copy of %s, and the config ties them: %.1f MB could be saved",
                 head_name, embed_name, (double)head->view.size_bytes / 1e6);
    else
        add_note(in, "%s is %s byte for byte, and the config does not tie them", head_name,
                 embed_name);
}

/* Ids that every reader but this program takes for others. */
static void check_tokens(sw_inspection *in)
{
    for (int64_t i = 0; i < in->loaders.n; i++) {
        const sw_load_finding *f = &in->loaders.at[i];
        sw_err problem = {0};

        if (strcmp(f->rule->id, "added-ids")) continue;
        (void)SW_FAIL(&problem, SW_E_FORMAT, "added token \"%.60s\": %s; %lld tokens in all",
                      f->subject, f->detail, (long long)f->n_subjects);
        add_problem(in, &problem);
    }
}

/* A family without a row. */
static void note_found(sw_inspection *in)
{
    const sw_found *f = in->model.found;

    add_note(in, "model_type is not known: %lld linears were told by their names and shapes, %lld "
             "matrices of layers are routers, gates and the like; quantize --method rtn takes the "
             "former, and nothing can be calibrated or run without --arch-like FAMILY",
             (long long)f->n, (long long)f->n_kept);
    for (int64_t i = 0; i < f->n_unclear && i < 2; i++)
        add_note(in, "%s: %s (%lld such tensors); quantize wants --ignore or --arch-like for it",
                 f->unclear[i].name, f->unclear[i].why, (long long)f->n_unclear);
}

static sw_code check_opened(sw_inspection *in, sw_err *err)
{
    const char *unknown = NULL;
    int64_t n_unknown = 0;
    sw_code rc;

    rc = sw_inspect_linears(in->groups, &in->n_groups, &in->n_quantized, &in->ckpt, report_problem,
                            in, err);
    if (rc != SW_OK || (rc = sw_inspect_unknown(&n_unknown, &unknown, &in->ckpt, err)) != SW_OK ||
        (rc = sw_loaders_check(&in->loaders, &in->ckpt, err)) != SW_OK)
        return rc;
    if (in->model.found) note_found(in);
    else if (n_unknown)
        add_note(in, "%lld tensors are not part of a %s, the first is %s", (long long)n_unknown,
                 in->model.arch->name, unknown);
    check_tie(in);
    check_tokens(in);
    return SW_OK;
}

/* The version that the config names, of the format or of the program that wrote it. */
static void find_version(sw_inspection *in)
{
    static const char *const keys[] = {"version", "checkpoint_format", "layout_version", NULL};
    const cJSON *quant = sw_json_member(in->config, "quantization_config");
    const cJSON *producer = sw_json_member(sw_json_member(quant, "producer"), "version");
    const cJSON *member = cJSON_IsString(producer) ? producer : NULL;

    for (int i = 0; keys[i] && !member; i++) {
        member = sw_json_member(quant, keys[i]);
        if (!cJSON_IsString(member)) member = NULL;
    }
    if (member && in->dialect && strcmp(member->valuestring, in->dialect->name) != 0)
        (void)snprintf(in->version, sizeof in->version, "%.60s", member->valuestring);
}

static void check_tokenizer(sw_inspection *in)
{
    sw_tokenizer *tok = NULL;
    sw_err problem = {0};

    if (sw_model_tokenizer(&tok, in->path, &problem) != SW_OK) {
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
        sw_progress_item(progress, sw_st_at(in->st, i)->name);
        if ((rc = sw_progress_check(progress, err)) != SW_OK) return rc;
        rc = sw_values_check(sw_st_at(in->st, i), sw_cpu_count(), &problem);
        if (rc != SW_OK && rc != SW_E_FORMAT) return SW_FAIL(err, rc, "%s", problem.text);
        add_problem(in, &problem);
    }
    return SW_OK;
}

/* All of a directory at once; *why says what is against it. */
static sw_code open_whole(sw_inspection *in, bool with_values, sw_err *why)
{
    sw_code rc = with_values ? sw_checkpoint_open(&in->ckpt, in->path, why)
                             : sw_checkpoint_open_headers(&in->ckpt, in->path, why);

    if (rc != SW_OK) return rc;
    in->is_open = in->has_model = true;
    in->st = in->ckpt.st;
    in->config = in->ckpt.config;
    in->model = in->ckpt.model;
    in->dialect = in->ckpt.dialect;
    in->qconfig = in->ckpt.qconfig;
    return SW_OK;
}

/* Its parts one by one, as far as they go. */
static sw_code open_parts(sw_inspection *in, bool is_dir, bool with_values, const sw_err *why,
                          sw_err *err)
{
    char config_path[SW_PATH_BYTES];
    sw_code rc;

    if (is_dir && sw_gguf_locate(config_path, in->path))
        return SW_FAIL(err, why->code, "%s", why->text);
    if (is_dir && (rc = sw_model_path_check(in->path, err)) != SW_OK) return rc;
    rc = with_values ? sw_st_open(&in->st, in->path, err)
                     : sw_st_open_headers(&in->st, in->path, err);
    if (rc != SW_OK || !is_dir) return rc;
    if ((rc = sw_path_join_inside(config_path, in->path, "config.json", err)) != SW_OK ||
        (rc = sw_json_read(&in->config, config_path, &sw_json_caps_config, err)) != SW_OK)
        return rc;
    read_model(in, config_path);
    if (!in->n_problems) add_problem(in, why);
    return SW_OK;
}

sw_code sw_inspection_open(sw_inspection *out, const char *path, bool with_values,
                           const sw_progress *progress, sw_err *err)
{
    bool is_dir = sw_path_is_dir(path);
    sw_err why = {0};
    sw_code rc;

    memset(out, 0, sizeof *out);
    out->path = path;
    if (sw_gguf_is(path)) { /* it is opened or it is not */
        if ((rc = open_whole(out, with_values, err)) != SW_OK) goto done;
    }
    rc = is_dir ? open_whole(out, with_values, &why) : SW_OK;
    if (rc == SW_E_NOMEM) {
        rc = SW_FAIL(err, rc, "%s", why.text);
        goto done;
    }
    if (!out->is_open && (rc = open_parts(out, is_dir, with_values, &why, err)) != SW_OK) goto done;
    if ((rc = total_up(out, err)) != SW_OK) goto done;
    check_ends(out);
    find_version(out);
    if (out->is_open && (rc = check_opened(out, err)) != SW_OK) goto done;
    if (with_values && (rc = check_values(out, progress, err)) != SW_OK) goto done;
    if (out->config) check_tokenizer(out);
done:
    if (rc != SW_OK) sw_inspection_close(out);
    return rc;
}

void sw_inspection_close(sw_inspection *in)
{
    sw_loaders_free(&in->loaders);
    if (in->is_open) {
        sw_checkpoint_close(&in->ckpt);
    } else {
        sw_st_close(in->st);
        cJSON_Delete(in->config);
    }
    sw_arena_free(&in->arena);
    memset(in, 0, sizeof *in);
}
