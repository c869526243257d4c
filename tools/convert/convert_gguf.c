/* convert_gguf.c - see convert_gguf.h. */
#include "tools/convert/convert_gguf.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/gguf/gguf_model.h"
#include "formats/io/file_content.h"
#include "formats/text/files/tokenizer_files.h"
#include "tools/cli/family.h"

static const sw_json_caps tokenizer_caps = {
    .max_bytes = (size_t)128 << 20, .max_depth = 32, .max_values = 8000000};
#define ANY_WIDTH 4096 /* inputs, in many groups of any size */
#define TEMPLATE_BYTES_MAX ((size_t)1 << 20)

const char *sw_name_of_block_type(int i)
{
    for (int t = 0; t < SW_BLOCK_TYPE_COUNT; t++)
        if ((sw_block_can_encode((sw_block_type)t) || t == SW_BLOCK_MXFP4 ||
             t == SW_BLOCK_NVFP4) && i-- == 0)
            return sw_block_sizes[t].name;
    return NULL;
}

/* --- types -------------------------------------------------------------------------------- */

static sw_code suggest(sw_block_type *out, const sw_checkpoint *source, sw_err *err)
{
    static const sw_block_type carriers[] = {SW_BLOCK_Q4_0, SW_BLOCK_Q4_1, SW_BLOCK_Q8_0,
                                             SW_BLOCK_MXFP4, SW_BLOCK_NVFP4};

    if (!source->dialect) {
        *out = source->model.dtype == SW_DTYPE_BF16  ? SW_BLOCK_BF16
               : source->model.dtype == SW_DTYPE_F16 ? SW_BLOCK_F16
                                                     : SW_BLOCK_F32;
        return SW_OK;
    }
    for (size_t i = 0; i < sizeof carriers / sizeof *carriers; i++) {
        if (!sw_gguf_carries(carriers[i], &source->qconfig.spec, ANY_WIDTH)) continue;
        *out = carriers[i];
        return SW_OK;
    }
    return SW_FAIL(err, SW_E_USAGE, "%s: no GGUF type holds this scheme exactly; choose one to "
                   "round to: --type TYPE --allow-requantize", source->dir);
}

/* Embedding and head decide most for their share of the bytes. */
static sw_block_type embed_type_of(sw_block_type type)
{
    switch (type) {
    case SW_BLOCK_Q4_0: case SW_BLOCK_Q4_1: case SW_BLOCK_Q4_K: return SW_BLOCK_Q6_K;
    case SW_BLOCK_MXFP4: case SW_BLOCK_NVFP4: return SW_BLOCK_Q8_0;
    default: return type;
    }
}

static sw_code choose_types(sw_gguf_job *job, const sw_checkpoint *source, sw_err *err)
{
    sw_code rc = SW_OK;

    if (!job->type && source->is_file) job->types[0] = SW_GGUF_AS_STORED;
    else if (!job->type) rc = suggest(&job->types[0], source, err);
    else (void)sw_block_type_find(&job->types[0], job->type);
    if (rc != SW_OK) return rc;
    job->is_as_stored = job->types[0] == SW_GGUF_AS_STORED;
    if (!job->embed_type) job->types[1] = embed_type_of(job->types[0]);
    else (void)sw_block_type_find(&job->types[1], job->embed_type);
    return SW_OK;
}

/* --- tokenizer ---------------------------------------------------------------------------- */

typedef struct tokenizer_files {
    cJSON *tokenizer, *config;
    char *chat_template;
    sw_gguf_vocab_source source;
} tokenizer_files;

static void tokenizer_files_free(tokenizer_files *f)
{
    cJSON_Delete(f->tokenizer);
    cJSON_Delete(f->config);
    sw_mem_put(f->chat_template);
    memset(f, 0, sizeof *f);
}

/* The text of an optional file. */
static sw_code read_text(char **out, const char *path, sw_err *err)
{
    sw_map map = {0};
    sw_code rc;

    if (!sw_path_exists(path)) return SW_OK;
    if ((rc = sw_map_open(&map, path, err)) != SW_OK) return rc;
    if (map.size_bytes > TEMPLATE_BYTES_MAX)
        rc = SW_FAIL(err, SW_E_FORMAT, "%s: larger than %zu bytes", path, TEMPLATE_BYTES_MAX);
    if (rc == SW_OK && (rc = SW_MEM_GET(out, map.size_bytes + 1, path, err)) == SW_OK)
        memcpy(*out, map.data, map.size_bytes);
    sw_map_close(&map);
    return rc;
}

/* Of the other files that a tokenizer comes in. */
static sw_code make_tokenizer(tokenizer_files *f, const char *path, const char *dir, sw_err *err)
{
    char other[SW_PATH_BYTES], *json = NULL;
    size_t n_bytes = 0;
    sw_code rc;

    if (!sw_tokenizer_files_find(other, dir))
        return SW_FAIL(err, SW_E_USAGE, "%s: missing; a GGUF has its tokenizer inside. Give "
                       "--no-tokenizer to leave it out", path);
    if ((rc = sw_tokenizer_files_make(&json, &n_bytes, dir, err)) == SW_OK)
        rc = sw_json_parse(&f->tokenizer, json, n_bytes, &tokenizer_caps, other, err);
    sw_mem_put(json);
    return rc;
}

static sw_code read_directory(tokenizer_files *f, const char *dir, sw_err *err)
{
    char path[SW_PATH_BYTES];
    sw_code rc;

    if ((rc = sw_path_join_inside(path, dir, "tokenizer.json", err)) != SW_OK) return rc;
    if (!sw_path_exists(path)) rc = make_tokenizer(f, path, dir, err);
    else rc = sw_json_read(&f->tokenizer, path, &tokenizer_caps, err);
    if (rc != SW_OK ||
        (rc = sw_path_join_inside(path, dir, "tokenizer_config.json", err)) != SW_OK)
        return rc;
    if (sw_path_exists(path) &&
        (rc = sw_json_read(&f->config, path, &sw_json_caps_config, err)) != SW_OK)
        return rc;
    if ((rc = sw_path_join_inside(path, dir, "chat_template.jinja", err)) != SW_OK) return rc;
    return read_text(&f->chat_template, path, err);
}

static sw_code read_tokenizer(tokenizer_files *f, const sw_checkpoint *source, sw_err *err)
{
    sw_code rc = read_directory(f, source->dir, err);

    if (rc != SW_OK) return rc;
    f->source = (sw_gguf_vocab_source){f->tokenizer, f->config, f->chat_template,
                                       source->model.vocab, source->model.bos_id,
                                       source->model.eos_id};
    return SW_OK;
}

/* -------------------------------------------------------------------------------- */

/* What the model is called: the last part of its path. */
static void name_of(char out[128], const char *path)
{
    size_t n = strlen(path), begin;

    while (n > 1 && path[n - 1] == '/') n--;
    for (begin = n; begin > 0 && path[begin - 1] != '/'; begin--) {}
    (void)snprintf(out, 128, "%.*s", (int)(n - begin), path + begin);
}

sw_code sw_gguf_job_run(sw_gguf_job *job, sw_err *err)
{
    sw_checkpoint source = {0};
    tokenizer_files files = {0};
    sw_imatrix *imatrix = NULL;
    char name[128];
    sw_gguf_options o = {.how = job->plain_rule ? SW_BLOCK_PLAIN : SW_BLOCK_SEARCH,
                         .may_replace = job->may_replace,
                         .may_requantize = job->may_requantize, .name = name,
                         .n_threads = job->n_threads, .progress = job->progress};
    sw_code rc = sw_checkpoint_open_codes(&source, job->source, err);

    if (rc != SW_OK) return rc;
    name_of(name, job->source);
    if (source.model.found) {
        rc = SW_FAIL(err, SW_E_UNSUPPORTED, "%s: a GGUF names an architecture, and model_type "
                     "%.60s is not known; give --arch-like FAMILY if it computes as one that is",
                     job->source, sw_family_type(source.config));
        goto done;
    }
    if ((rc = choose_types(job, &source, err)) != SW_OK) goto done;
    if (!job->no_tokenizer && !source.is_file &&
        (rc = read_tokenizer(&files, &source, err)) != SW_OK)
        goto done;
    if (job->imatrix && (rc = sw_imatrix_open(&imatrix, job->imatrix, err)) != SW_OK) goto done;
    o.imatrix = imatrix;
    o.type = job->types[0];
    o.embed_type = job->types[1];
    o.vocab = job->no_tokenizer || source.is_file ? NULL : &files.source;
    o.drop_tokenizer = job->no_tokenizer;
    if ((rc = sw_gguf_export(&job->report, &source, job->out, &o, err)) != SW_OK &&
        strncmp(err->text, job->source, strlen(job->source)) &&
        strncmp(err->text, job->out, strlen(job->out)) &&
        !(job->imatrix && !strncmp(err->text, job->imatrix, strlen(job->imatrix))))
        sw_err_prefix(err, "%s", job->source);
    if (rc == SW_OK) memcpy(job->types, job->report.types, sizeof job->types);
    if (rc == SW_OK && job->report.n_unweighted)
        sw_progress_note(job->progress, "%lld linears are not in %s; their errors weigh evenly",
                         (long long)job->report.n_unweighted, job->imatrix);
done:
    sw_imatrix_free(imatrix);
    tokenizer_files_free(&files);
    sw_checkpoint_close(&source);
    return rc;
}
