/* cmd_inspect.c - `swage inspect`: what a checkpoint holds and what is wrong with it. */
#include <stdio.h>
#include <unistd.h>

#include "formats/gguf/gguf_model.h"
#include "tools/cli/cmd.h"
#include "tools/cli/family.h"
#include "tools/inspect/inspection.h"
#include "tools/inspect/tensor_look.h"
#include "tools/recipe/presets.h"
#include "tools/terminal/table.h"

typedef struct inspect_options {
    sw_cmd_common common;
    int tensors, values;
    const char *tensor;
} inspect_options;

static const sw_opt options[] = {
    {.name = "tensors", .group = SW_OPT_COMMON, .kind = SW_OPT_FLAG,
     .offset = offsetof(inspect_options, tensors), .set_to = 1,
     .help = "list every tensor with its dtype and shape"},
    {.name = "values", .group = SW_OPT_COMMON, .kind = SW_OPT_FLAG,
     .offset = offsetof(inspect_options, values), .set_to = 1,
     .help = "read every float weight and report values that are not finite"},
    {.name = "tensor", .group = SW_OPT_COMMON, .kind = SW_OPT_TEXT,
     .offset = offsetof(inspect_options, tensor), .arg = "NAME",
     .help = "show one tensor or one quantized linear instead: figures and histograms"},
    SW_CMD_MODEL_ROW,
    SW_CMD_COMMON_ROWS,
    {0},
};

static bool is_gguf(const sw_inspection *in) { return in->is_open && in->ckpt.is_file; }

static double bits_a_weight(const sw_dtype_total *t)
{
    return t->n_elems ? 8.0 * (double)t->n_bytes / (double)t->n_elems : 0;
}

/* The type of most weights of a GGUF. */
static const char *main_type(const sw_inspection *in)
{
    int most = 0;

    for (int t = 0; t < SW_BLOCK_TYPE_COUNT; t++)
        if (in->by_block[t].n_elems > in->by_block[most].n_elems) most = t;
    return sw_block_sizes[most].name;
}

/* What `quantize --recipe` is recommended for the family: by the model_type of the file, of which
 * several may be read as one family, else by that of the family. NULL: it is quantized already. */
static const sw_preset *recommended(const sw_inspection *in)
{
    const sw_preset *preset;

    if (!in->has_model || in->model.found || in->dialect || is_gguf(in)) return NULL;
    if ((preset = sw_preset_for(sw_family_type(in->config))) != NULL) return preset;
    return sw_preset_for(in->model.arch->name);
}

static void print_model(const sw_inspection *in)
{
    const sw_preset *preset = recommended(in);
    const sw_model *m = &in->model;
    char family[SW_FAMILY_TEXT_BYTES];

    if (in->has_model) {
        (void)printf("model      %s%s%s%s, %lld layers, hidden %lld, %lld heads (%lld key/value), "
                     "vocabulary %lld, context %lld\n", sw_family_text(family, m, in->config),
                     *m->arch->hf_class ? " (" : "", m->arch->hf_class,
                     *m->arch->hf_class ? ")" : "", (long long)m->n_layers,
                     (long long)m->hidden, (long long)m->n_heads, (long long)m->n_kv_heads,
                     (long long)m->vocab, (long long)m->max_positions);
        if (m->n_experts && !m->found)
            (void)printf("experts    %lld, %lld used per token\n", (long long)m->n_experts,
                         (long long)m->n_experts_used);
    }
    if (is_gguf(in))
        (void)printf("format     gguf: %s (most), %.3f bits a weight in all, of a model in %s\n",
                     main_type(in), bits_a_weight(&in->total), sw_dtype_name(in->model.dtype));
    else if (in->dialect)
        (void)printf("format     %s%s%s: %s\n", in->dialect->name, in->version[0] ? " " : "",
                     in->version, in->dialect->summary);
    else if (in->config)
        (void)printf("format     %s\n", sw_json_member(in->config, "quantization_config")
                                            ? "quantized, not readable here"
                                            : "dense");
    if (in->tokenizer_vocab)
        (void)printf("tokenizer  %lld tokens\n", (long long)in->tokenizer_vocab);
    if (preset)
        (void)printf("recipe     %s: swage quantize %s --recipe %s -o OUT  # `swage list recipes` "
                     "says why\n", preset->name, in->path, preset->name);
}

static void print_total(const char *name, const sw_dtype_total *t, bool with_bits)
{
    char bytes[16];

    sw_term_bytes(bytes, (double)t->n_bytes);
    (void)printf("%-9s %9lld %15lld %10s", name, (long long)t->n_tensors, (long long)t->n_elems,
                 bytes);
    if (with_bits) (void)printf(" %8.3f", bits_a_weight(t));
    (void)puts("");
}

static void print_totals(const sw_inspection *in)
{
    const bool with_bits = is_gguf(in);

    (void)printf("files      %d\n\n%-9s %9s %15s %10s%s\n", (int)sw_st_n_files(in->st),
                 with_bits ? "type" : "dtype", "tensors", "elements", "bytes",
                 with_bits ? "     bits" : "");
    for (int d = 0; d < SW_DTYPE_COUNT; d++)
        if (in->by_dtype[d].n_tensors)
            print_total(sw_dtype_name((sw_dtype)d), &in->by_dtype[d], with_bits);
    for (int t = 0; t < SW_BLOCK_TYPE_COUNT; t++)
        if (in->by_block[t].n_tensors)
            print_total(sw_block_sizes[t].name, &in->by_block[t], with_bits);
    print_total("total", &in->total, with_bits);
}

static bool tensor_row(const void *self, int64_t i, sw_cells out)
{
    const sw_inspection *in = self;
    const sw_st_tensor *t = i < sw_st_count(in->st) ? sw_st_at(in->st, i) : NULL;
    sw_block_type type;
    char text[96];

    if (!t) return false;
    sw_view_describe(text, sizeof text, &t->view);
    (void)snprintf(out[0], SW_CELL_BYTES, "%s", t->name);
    (void)snprintf(out[1], SW_CELL_BYTES, "%s%s%s", text,
                   is_gguf(in) && sw_gguf_decoded_type(&type, t) ? ", of " : "",
                   is_gguf(in) && sw_gguf_decoded_type(&type, t) ? sw_block_sizes[type].name : "");
    return true;
}

static void print_tensors(const sw_inspection *in)
{
    const sw_table table = {.kinds = {SW_CELL_NAME, SW_CELL_FIXED}, .n_columns = 2,
                            .has_no_heading = true, .self = in, .row = tensor_row};

    (void)puts("");
    sw_table_print(stdout, &table, sw_terminal_columns(STDOUT_FILENO));
}

static bool group_row(const void *self, int64_t i, sw_cells out)
{
    const sw_inspection *in = self;
    const sw_scheme_group *g = &in->groups[i];
    char text[160];

    if (i >= in->n_groups) return false;
    (void)snprintf(out[0], SW_CELL_BYTES, "%lld", (long long)g->n_linears);
    (void)snprintf(out[1], SW_CELL_BYTES, "%.3f", 8.0 * (double)g->n_bytes / (double)g->n_weights);
    sw_term_bytes(out[2], (double)g->n_bytes);
    (void)snprintf(out[3], SW_CELL_BYTES, "%s: %s", sw_group_text(text, g), g->leaves);
    return true;
}

static void print_groups(const sw_inspection *in)
{
    const sw_table table = {.headings = {"linears", "bits", "bytes", "scheme"},
                            .kinds = {SW_CELL_NUMBER, SW_CELL_NUMBER, SW_CELL_NUMBER,
                                      SW_CELL_TEXT},
                            .n_columns = 4, .self = in, .row = group_row};

    if (!in->n_groups) return;
    (void)puts("");
    sw_table_print(stdout, &table, sw_terminal_columns(STDOUT_FILENO));
}

static void print_faults(const sw_inspection *in)
{
    char text[SW_LOAD_TEXT_BYTES];

    if (in->loaders.n) (void)puts("\nloaders");
    for (int64_t i = 0; i < in->loaders.n; i++)
        (void)printf("  %s\n", sw_load_text(text, &in->loaders.at[i]));
    if (in->n_notes) (void)puts("\nnotes");
    for (int i = 0; i < in->n_notes; i++) (void)printf("  %s\n", in->notes[i]);
    (void)printf("\nproblems%s\n", in->n_problems ? "" : "   none");
    for (int64_t i = 0; i < in->n_problems && i < SW_PROBLEMS_MAX; i++)
        (void)printf("  %s\n", in->problems[i].text);
}

static void print_text(const sw_inspection *in, bool with_tensors)
{
    (void)printf("path       %s\n", in->path);
    print_model(in);
    print_totals(in);
    print_groups(in);
    if (with_tensors) print_tensors(in);
    print_faults(in);
}

static bool add_number(cJSON *object, const char *key, int64_t v)
{
    return cJSON_AddNumberToObject(object, key, (double)v) != NULL;
}

static bool add_total(cJSON *object, const char *name, const sw_dtype_total *t)
{
    cJSON *row = cJSON_AddObjectToObject(object, name);

    return row && add_number(row, "tensors", t->n_tensors) &&
           add_number(row, "elements", t->n_elems) && add_number(row, "bytes", (int64_t)t->n_bytes);
}

static bool add_model(cJSON *object, const sw_inspection *in)
{
    const sw_preset *preset = recommended(in);
    const sw_model *m = &in->model;
    cJSON *row;

    if (!in->has_model) return true;
    row = cJSON_AddObjectToObject(object, "model");
    return row && cJSON_AddStringToObject(row, "architecture", m->arch->name) &&
           add_number(row, "layers", m->n_layers) && add_number(row, "hidden", m->hidden) &&
           add_number(row, "heads", m->n_heads) && add_number(row, "kv_heads", m->n_kv_heads) &&
           add_number(row, "vocab", m->vocab) && add_number(row, "context", m->max_positions) &&
           add_number(row, "experts", m->n_experts) &&
           (!m->is_like || cJSON_AddStringToObject(row, "arch_like", m->arch->name)) &&
           (!m->found || cJSON_AddBoolToObject(row, "weights_alone", true)) &&
           (!preset || cJSON_AddStringToObject(row, "recipe", preset->name)) &&
           cJSON_AddBoolToObject(row, "tied_embeddings", m->is_tied);
}

static bool add_group(cJSON *list, const sw_scheme_group *g)
{
    cJSON *row = cJSON_CreateObject();
    char text[160];

    return row && cJSON_AddItemToArray(list, row) &&
           cJSON_AddStringToObject(row, "scheme", sw_group_text(text, g)) &&
           add_number(row, "linears", g->n_linears) && add_number(row, "weights", g->n_weights) &&
           add_number(row, "bytes", (int64_t)g->n_bytes) &&
           cJSON_AddStringToObject(row, "of", g->leaves);
}

static bool add_format(cJSON *object, const sw_inspection *in)
{
    const sw_qspec *spec = &in->qconfig.spec;
    cJSON *row, *list = cJSON_AddArrayToObject(object, "schemes");

    for (int64_t i = 0; list && i < in->n_groups; i++)
        if (!add_group(list, &in->groups[i])) return false;
    if (!list || !in->dialect) return list != NULL;
    row = cJSON_AddObjectToObject(object, "quantized");
    return row && cJSON_AddStringToObject(row, "format", in->dialect->name) &&
           (!in->version[0] || cJSON_AddStringToObject(row, "version", in->version)) &&
           add_number(row, "bits", spec->num->bits) &&
           add_number(row, "group", spec->group_elems) &&
           cJSON_AddBoolToObject(row, "symmetric", spec->is_symmetric) &&
           add_number(row, "linears", in->n_quantized);
}

static bool add_tensors(cJSON *object, const sw_inspection *in)
{
    cJSON *list = cJSON_AddArrayToObject(object, "tensors");

    for (int64_t i = 0; list && i < sw_st_count(in->st); i++) {
        const sw_st_tensor *t = sw_st_at(in->st, i);
        cJSON *row = cJSON_CreateObject();
        sw_block_type type;
        cJSON *shape;
        if (!row || !cJSON_AddItemToArray(list, row)) return false;
        if (!cJSON_AddStringToObject(row, "name", t->name) ||
            !cJSON_AddStringToObject(row, "dtype", sw_dtype_name(t->view.dtype)) ||
            !add_number(row, "bytes", (int64_t)(is_gguf(in) ? sw_gguf_stored_bytes(t)
                                                            : t->view.size_bytes)) ||
            (is_gguf(in) && sw_gguf_decoded_type(&type, t) &&
             !cJSON_AddStringToObject(row, "stored", sw_block_sizes[type].name)))
            return false;
        shape = cJSON_AddArrayToObject(row, "shape");
        for (int d = 0; shape && d < t->view.n_dims; d++)
            if (!cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)t->view.shape[d])))
                return false;
        if (!shape) return false;
    }
    return list != NULL;
}

static bool add_problems(cJSON *object, const sw_inspection *in)
{
    cJSON *list = cJSON_AddArrayToObject(object, "problems");

    for (int64_t i = 0; list && i < in->n_problems && i < SW_PROBLEMS_MAX; i++) {
        cJSON *row = cJSON_CreateObject();
        if (!row || !cJSON_AddItemToArray(list, row) ||
            !cJSON_AddStringToObject(row, "code", sw_code_name(in->problems[i].code)) ||
            !cJSON_AddStringToObject(row, "message", in->problems[i].text))
            return false;
    }
    return list != NULL;
}

static bool add_notes(cJSON *object, const sw_inspection *in)
{
    cJSON *list = cJSON_AddArrayToObject(object, "notes");

    for (int i = 0; list && i < in->n_notes; i++) {
        cJSON *note = cJSON_CreateString(in->notes[i]);
        if (note && cJSON_AddItemToArray(list, note)) continue;
        cJSON_Delete(note);
        return false;
    }
    return list != NULL;
}

static sw_code print_json(sw_run *run, const sw_inspection *in, bool with_tensors, sw_err *err)
{
    cJSON *object = NULL, *dtypes;
    sw_code rc = sw_cmd_json_new(&object, "inspect", err);
    bool ok;

    if (rc != SW_OK) return rc;
    ok = cJSON_AddStringToObject(object, "path", in->path) && add_model(object, in) &&
         add_format(object, in) && add_number(object, "tokenizer_vocab", in->tokenizer_vocab) &&
         add_number(object, "files", sw_st_n_files(in->st)) &&
         add_total(object, "total", &in->total) &&
         (dtypes = cJSON_AddObjectToObject(object, "dtypes")) != NULL;
    for (int d = 0; ok && d < SW_DTYPE_COUNT; d++)
        if (in->by_dtype[d].n_tensors)
            ok = add_total(dtypes, sw_dtype_name((sw_dtype)d), &in->by_dtype[d]);
    for (int t = 0; ok && t < SW_BLOCK_TYPE_COUNT; t++)
        if (in->by_block[t].n_tensors)
            ok = add_total(dtypes, sw_block_sizes[t].name, &in->by_block[t]);
    if (ok && is_gguf(in))
        ok = cJSON_AddNumberToObject(object, "bits_per_weight", bits_a_weight(&in->total)) &&
             cJSON_AddStringToObject(object, "main_type", main_type(in)) &&
             cJSON_AddStringToObject(object, "model_dtype", sw_dtype_name(in->model.dtype));
    ok = ok && (!with_tensors || add_tensors(object, in)) &&
         sw_loaders_json(object, &in->loaders) && add_notes(object, in) &&
         add_problems(object, in);
    rc = ok ? sw_cmd_json_print(run, object, err) : sw_cmd_json_added(NULL, err);
    cJSON_Delete(object);
    return rc;
}

/* One tensor, in a checkpoint that need not be whole. */
static sw_code look_at_tensor(sw_run *run, const sw_inspection *in, sw_err *err)
{
    const inspect_options *o = run->options;
    sw_tensor_look *look = NULL;
    cJSON *object = NULL;
    sw_code rc = SW_ARENA_TAKE(&look, run->arena, 1, err);

    if (rc != SW_OK ||
        (rc = sw_tensor_look_at(look, in->st, in->is_open && in->dialect ? &in->ckpt : NULL,
                                o->tensor, err)) != SW_OK)
        return rc;
    if (!o->common.json) {
        sw_tensor_look_print(look);
        return SW_OK;
    }
    if ((rc = sw_cmd_json_new(&object, "inspect", err)) != SW_OK) return rc;
    rc = sw_tensor_look_json(object, look) ? sw_cmd_json_print(run, object, err)
                                           : sw_cmd_json_added(NULL, err);
    cJSON_Delete(object);
    return rc;
}

static sw_code run_inspect(sw_run *run, sw_err *err)
{
    const inspect_options *o = run->options;
    sw_inspection *in = NULL;
    sw_code rc = SW_ARENA_TAKE(&in, run->arena, 1, err);

    if (rc != SW_OK) return rc;
    rc = sw_inspection_open(in, run->args[0], o->values != 0, &run->term->progress, err);
    if (rc != SW_OK) return rc;
    sw_term_clear(run->term);
    if (o->tensor) {
        rc = look_at_tensor(run, in, err);
        sw_inspection_close(in);
        return rc;
    }
    if (o->common.json)
        rc = print_json(run, in, o->tensors != 0, err);
    else
        print_text(in, o->tensors != 0);
    if (rc == SW_OK && in->n_problems)
        rc = SW_FAIL(err, in->problems[0].code, "%lld problem%s; the first: %s",
                     (long long)in->n_problems, in->n_problems > 1 ? "s" : "",
                     in->problems[0].text);
    sw_inspection_close(in);
    return rc;
}

static const char *const examples[] = {
    "swage inspect calib_data/tiny-llama",
    "swage inspect calib_data/tiny-llama --tensors --values",
    "swage inspect build/demo/gptq --tensor model.layers.0.mlp.down_proj",
    "swage inspect MODEL --arch-like llama",
    "swage inspect calib_data/tiny-llama/model.safetensors --json", NULL};

const sw_cmd sw_cmd_inspect = {
    .name = "inspect",
    .args = "PATH",
    .summary = "show what a checkpoint holds: tensors, format, sizes, problems",
    .more = "PATH is a model directory or one file: GGUF, safetensors (also compressed as .zst)\n"
            "or a file of torch.save. Sizes of a GGUF are those of its stored blocks.\n"
            "inspect reports all problems before it exits; the exit code is that of the first\n"
            "problem, or 0. Notes and what engines would refuse or misread do not change the\n"
            "exit code.\n",
    .options = options,
    .options_bytes = sizeof(inspect_options),
    .takes_any_family = true,
    .min_args = 1,
    .max_args = 1,
    .is_long = true,
    .examples = examples,
    .run = run_inspect,
};
