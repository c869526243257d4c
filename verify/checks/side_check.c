/* side_check.c - see checks.h. */
#include "verify/checks/checks.h"

#include <stdio.h>
#include <string.h>

#include "formats/checkpoint/model_text.h"
#include "formats/checkpoint/side_files.h"
#include "formats/io/file.h"
#include "verify/checks/json_diff.h"

static const sw_json_caps side_caps = {
    .max_bytes = (size_t)256 << 20, .max_depth = 64, .max_values = 8000000};

/* What its absence in the checkpoint means. */
typedef enum gone {
    GONE_FAILS,    /* nothing stands in for it */
    GONE_COVERED,  /* tokenizer.json stands in for it */
    GONE_REMARKED
} gone;

typedef struct side_row {
    const char *name;
    bool is_json;
    gone when_gone;
    const char *left_out[6]; /* members that may differ */
} side_row;

static const side_row rows[] = {
    {"tokenizer.json", true, GONE_FAILS, {"truncation", "padding"}},
    {"tokenizer_config.json", true, GONE_FAILS,
     {"transformers_version", "name_or_path", "_name_or_path", "tokenizer_file", "chat_template"}},
    {"generation_config.json", true, GONE_FAILS, {"transformers_version", "_from_model_config"}},
    {"special_tokens_map.json", true, GONE_REMARKED, {NULL}},
    {"added_tokens.json", true, GONE_REMARKED, {NULL}},
    {"vocab.json", true, GONE_COVERED, {NULL}},
    {"merges.txt", false, GONE_COVERED, {NULL}},
    {"vocab.txt", false, GONE_COVERED, {NULL}},
    {"tokenizer.model", false, GONE_COVERED, {NULL}},
    {"spiece.model", false, GONE_COVERED, {NULL}},
    {"tekken.json", true, GONE_COVERED, {NULL}},
    {"preprocessor_config.json", true, GONE_REMARKED, {"transformers_version"}},
    {"processor_config.json", true, GONE_REMARKED, {"transformers_version"}},
};
#define N_ROWS ((int)(sizeof rows / sizeof rows[0]))

typedef struct side {
    sw_report *report;
    const sw_subject *checkpoint, *original; /* original NULL: none, or in a GGUF */
    sw_err *err;
} side;

/* One file of a directory: its bytes, and its JSON where it is and should be JSON. */
typedef struct doc {
    bool is_there;
    sw_map map;
    cJSON *json;
    sw_err why; /* of JSON that does not parse */
} doc;

static bool is_same_file(const doc *a, const doc *b)
{
    return a->is_there && b->is_there && a->map.size_bytes == b->map.size_bytes &&
           !memcmp(a->map.data, b->map.data, a->map.size_bytes);
}

static void doc_close(doc *d)
{
    cJSON_Delete(d->json);
    sw_map_close(&d->map);
}

static sw_code doc_open(doc *out, const char *dir, const char *name, sw_err *err)
{
    char path[SW_PATH_BYTES];
    sw_code rc = sw_path_join(path, dir, name, err);

    *out = (doc){.is_there = false};
    if (rc != SW_OK || !sw_path_exists(path)) return rc;
    rc = sw_map_open(&out->map, path, err);
    out->is_there = rc == SW_OK;
    return rc;
}

/* What does not parse leaves json NULL, and why. */
static sw_code doc_parse(doc *d, const char *name, sw_err *err)
{
    sw_code rc;

    if (!d->is_there) return SW_OK;
    rc = sw_json_parse(&d->json, (const char *)d->map.data, d->map.size_bytes, &side_caps, name,
                       &d->why);
    if (rc == SW_OK || rc == SW_E_FORMAT) return SW_OK;
    *err = d->why;
    return rc;
}

static bool has_file(const sw_subject *s, const char *name)
{
    char path[SW_PATH_BYTES];
    sw_err ignored = {0};

    return sw_path_join(path, s->dir, name, &ignored) == SW_OK && sw_path_exists(path);
}

static sw_code is_gone(const side *c, const side_row *row)
{
    const bool is_covered = row->when_gone == GONE_COVERED &&
                            has_file(c->checkpoint, "tokenizer.json");

    if (row->when_gone == GONE_REMARKED || is_covered)
        return sw_report_remark(c->report, c->err, "%s of the original is not in the checkpoint",
                                row->name);
    return sw_report_find(c->report, "missing", row->name, c->err, "%s of the original is not in "
                          "the checkpoint", row->name);
}

static sw_code differs(const side *c, const char *name, const sw_json_diff *d)
{
    char more[48] = "";

    if (d->n > 1)
        (void)snprintf(more, sizeof more, " (and %lld more)", (long long)d->n - 1);
    return sw_report_find(c->report, "differs", name, c->err, "%s: %s is %s, the original has %s%s",
                          name, *d->path ? d->path : "it", d->have, d->want, more);
}

static sw_code compare_docs(const side *c, const side_row *row, const doc *have, const doc *want)
{
    sw_json_diff diff;
    sw_code rc;

    if (!row->is_json)
        return sw_report_find(c->report, "differs", row->name, c->err, "%s is not the original's, "
                              "byte by byte", row->name);
    if (!have->json) return SW_OK; /* said to be broken */
    if (!want->json)
        return sw_report_remark(c->report, c->err, "%s of the original does not parse: not "
                                "compared", row->name);
    rc = sw_json_compare(&diff, have->json, want->json, row->left_out, c->err);
    return rc == SW_OK && diff.n ? differs(c, row->name, &diff) : rc;
}

static bool is_among(const cJSON *id, const int64_t *ids, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (cJSON_IsNumber(id) && id->valuedouble >= (double)ids[i] &&
            id->valuedouble <= (double)ids[i])
            return true;
    return false;
}

/* A generation config that is new may say the tokens of the model's own, and no others. */
static sw_code check_new_ids(const side *c, const char *name, const cJSON *json)
{
    const sw_model *m = &c->original->model;
    const cJSON *bos = sw_json_member(json, "bos_token_id");
    const cJSON *eos = sw_json_member(json, "eos_token_id"), *at;
    sw_code rc = SW_OK;

    if (bos && m->bos_id >= 0 && !is_among(bos, &m->bos_id, 1))
        rc = sw_report_find(c->report, "differs", name, c->err, "%s: bos_token_id is not the "
                            "original's", name);
    for (at = cJSON_IsArray(eos) ? eos->child : eos; at && m->n_eos && rc == SW_OK;
         at = cJSON_IsArray(eos) ? at->next : NULL)
        if (!is_among(at, m->eos_ids, m->n_eos))
            return sw_report_find(c->report, "differs", name, c->err, "%s: eos_token_id is not the "
                                  "original's", name);
    return rc;
}

/* Of two documents that are there both, or one of them. */
static sw_code judge_docs(const side *c, const side_row *row, doc *have, doc *want)
{
    sw_code rc = SW_OK;

    if (row->is_json && ((rc = doc_parse(have, row->name, c->err)) != SW_OK ||
                         (rc = doc_parse(want, row->name, c->err)) != SW_OK))
        return rc;
    if (row->is_json && have->is_there && !have->json)
        rc = sw_report_find(c->report, "broken", row->name, c->err, "%s", have->why.text);
    if (rc != SW_OK || !c->original) return rc;
    if (want->is_there && !have->is_there) return is_gone(c, row);
    if (have->is_there && !want->is_there && !strcmp(row->name, "generation_config.json") &&
        (rc = check_new_ids(c, row->name, have->json)) != SW_OK)
        return rc;
    if (have->is_there && !want->is_there)
        return sw_report_remark(c->report, c->err, "%s is in the checkpoint, but not in the "
                                "original", row->name);
    return have->is_there ? compare_docs(c, row, have, want) : SW_OK;
}

static sw_code check_row(const side *c, const side_row *row)
{
    doc have = {.is_there = false}, want = {.is_there = false};
    sw_code rc = doc_open(&have, c->checkpoint->dir, row->name, c->err);

    if (rc == SW_OK && c->original) rc = doc_open(&want, c->original->dir, row->name, c->err);
    if (rc == SW_OK && !is_same_file(&have, &want)) rc = judge_docs(c, row, &have, &want);
    doc_close(&have);
    doc_close(&want);
    return rc;
}

/* The template that engines take: a file of its own before the member of tokenizer_config.json.
 * NULL: none. Freed by cJSON_Delete. */
static sw_code chat_template(cJSON **out, const sw_subject *s, sw_err *err)
{
    static const char *const holders[] = {"chat_template.json", "tokenizer_config.json"};
    doc d;
    sw_code rc = doc_open(&d, s->dir, "chat_template.jinja", err);

    *out = NULL;
    if (rc == SW_OK && d.is_there) {
        char *text = NULL;

        rc = SW_MEM_GET(&text, (int64_t)d.map.size_bytes + 1, "chat template", err);
        if (rc == SW_OK) {
            memcpy(text, d.map.data, d.map.size_bytes);
            text[d.map.size_bytes] = '\0';
            if (!(*out = cJSON_CreateString(text)))
                rc = SW_FAIL(err, SW_E_NOMEM, "no memory for a chat template");
        }
        sw_mem_put(text);
    }
    if (rc == SW_OK) doc_close(&d);
    for (int i = 0; i < 2 && rc == SW_OK && !*out; i++) {
        const cJSON *member;

        if ((rc = doc_open(&d, s->dir, holders[i], err)) != SW_OK) break;
        rc = doc_parse(&d, holders[i], err);
        member = sw_json_member(d.json, "chat_template");
        if (rc == SW_OK && member && !(*out = cJSON_Duplicate(member, true)))
            rc = SW_FAIL(err, SW_E_NOMEM, "no memory for a chat template");
        doc_close(&d);
    }
    return rc;
}

static sw_code check_template(const side *c)
{
    cJSON *have = NULL, *want = NULL;
    sw_json_diff diff = {.n = 0};
    sw_code rc;

    if (!c->original) return SW_OK;
    if ((rc = chat_template(&have, c->checkpoint, c->err)) == SW_OK &&
        (rc = chat_template(&want, c->original, c->err)) == SW_OK)
        rc = sw_json_compare(&diff, have, want, NULL, c->err);
    if (rc == SW_OK && diff.n && !want)
        rc = sw_report_remark(c->report, c->err, "the checkpoint has a chat template, the original "
                              "none");
    else if (rc == SW_OK && diff.n)
        rc = differs(c, "chat_template", &diff);
    cJSON_Delete(have);
    cJSON_Delete(want);
    return rc;
}

/* A tokenizer.json that parses may be no tokenizer. */
static sw_code check_tokenizer(const side *c)
{
    sw_tokenizer *tok = NULL;
    sw_err why = {0};
    sw_code rc;

    if (c->original && has_file(c->original, "tokenizer.json")) return SW_OK; /* compared */
    for (int64_t i = 0; i < c->report->n_findings && i < SW_FINDINGS_MAX; i++)
        if (!strcmp(c->report->findings[i].name, "tokenizer.json")) return SW_OK;
    if (!has_file(c->checkpoint, "tokenizer.json")) return SW_OK;
    rc = sw_model_tokenizer(&tok, c->checkpoint->dir, &why);
    sw_tokenizer_free(tok);
    if (rc == SW_E_FORMAT)
        return sw_report_find(c->report, "broken", "tokenizer.json", c->err, "%s", why.text);
    if (rc == SW_OK || rc == SW_E_UNSUPPORTED) return SW_OK;
    *c->err = why;
    return rc;
}

/* Token for token, where a GGUF keeps one of the two tokenizers. */
static sw_code check_tokens(const side *c, const sw_subject *original)
{
    sw_tokenizer *a = NULL, *b = NULL;
    sw_err why = {0};
    sw_code rc = SW_OK;

    if (!sw_model_has_tokenizer(original->dir)) return SW_OK;
    if (!sw_model_has_tokenizer(c->checkpoint->dir))
        return sw_report_remark(c->report, c->err, "the original has a tokenizer, the checkpoint "
                                "none");
    if (sw_model_tokenizer(&a, c->checkpoint->dir, &why) != SW_OK ||
        sw_model_tokenizer(&b, original->dir, &why) != SW_OK) {
        sw_tokenizer_free(a);
        if (why.code == SW_E_NOMEM || why.code == SW_E_IO) {
            *c->err = why;
            return why.code;
        }
        return sw_report_remark(c->report, c->err, "tokenizers are not compared: %.300s", why.text);
    }
    for (uint32_t id = 0; rc == SW_OK && id < sw_tokenizer_vocab(a) &&
                          id < sw_tokenizer_vocab(b); id++) {
        char *x = NULL, *y = NULL;
        size_t n_x = 0, n_y = 0;
        bool is_read = sw_tokenizer_decode(a, &x, &n_x, &id, 1, false, &why) == SW_OK &&
                       sw_tokenizer_decode(b, &y, &n_y, &id, 1, false, &why) == SW_OK;
        bool is_same = !is_read || (n_x == n_y && !memcmp(x, y, n_x));

        if (!is_same)
            rc = sw_report_find(c->report, "differs", "tokenizer", c->err, "token %u has another "
                                "text than in the original", id);
        sw_mem_put(x);
        sw_mem_put(y);
        if (!is_same) break;
    }
    sw_tokenizer_free(a);
    sw_tokenizer_free(b);
    return rc;
}

static bool is_opened(const sw_st *st, const char *name)
{
    for (int32_t i = 0; i < sw_st_n_files(st); i++) {
        const char *path = sw_st_file_path(st, i), *slash = strrchr(path, '/');
        if (!strcmp(slash ? slash + 1 : path, name)) return true;
    }
    return false;
}

static bool ends_with(const char *name, const char *ending)
{
    size_t n = strlen(name), m = strlen(ending);

    return n > m && !strcmp(name + n - m, ending);
}

/* true for a tensor that the checkpoint has, or has in codes. */
static bool is_of_checkpoint(const sw_subject *s, const char *tensor)
{
    const char *dot = strrchr(tensor, '.');
    char path[512];

    if (sw_st_find(s->st, tensor)) return true;
    if (!dot || strcmp(dot, ".weight") != 0 || (size_t)(dot - tensor) >= sizeof path) return false;
    memcpy(path, tensor, (size_t)(dot - tensor));
    path[dot - tensor] = '\0';
    return sw_spec_is_quantized(&s->scheme, s->st, path);
}

/* Engines that glob for containers would read it too. */
static sw_code check_container(const side *c, const char *name)
{
    char path[SW_PATH_BYTES];
    sw_st *st = NULL;
    sw_err why = {0};
    sw_code rc = sw_path_join(path, c->checkpoint->dir, name, c->err);

    if (rc != SW_OK) return rc;
    rc = sw_st_open(&st, path, &why);
    if (rc == SW_E_NOMEM) *c->err = why;
    if (rc == SW_E_NOMEM) return rc;
    if (rc != SW_OK)
        return sw_report_remark(c->report, c->err, "%s is none of the checkpoint's containers, and "
                                "does not open", name);
    for (int64_t i = 0; rc == SW_OK && i < sw_st_count(st); i++) {
        const char *tensor = sw_st_at(st, i)->name;

        if (!is_of_checkpoint(c->checkpoint, tensor)) continue;
        rc = sw_report_find(c->report, "unexpected", name, c->err, "%s lies beside the "
                            "checkpoint's containers and has %s: engines that read every container "
                            "take it", name, tensor);
        break;
    }
    sw_st_close(st);
    return rc;
}

/* Code in the directory runs where a user trusts it. */
static sw_code check_code(const side *c, const char *name)
{
    doc have, want;
    sw_code rc;

    if (!has_file(c->original, name))
        return sw_report_find(c->report, "unexpected", name, c->err, "%s is code that the original "
                              "does not have", name);
    if ((rc = doc_open(&have, c->checkpoint->dir, name, c->err)) != SW_OK) return rc;
    if ((rc = doc_open(&want, c->original->dir, name, c->err)) == SW_OK) {
        if (!is_same_file(&have, &want))
            rc = sw_report_find(c->report, "differs", name, c->err, "%s is not the original's, "
                                "byte by byte", name);
        doc_close(&want);
    }
    doc_close(&have);
    return rc;
}

static sw_code check_others(const side *c)
{
    sw_dir_list list = {0};
    sw_arena arena = {0};
    sw_err why = {0};
    sw_code rc = sw_dir_read(&list, c->checkpoint->dir, &arena, &why);

    if (rc != SW_OK && rc != SW_E_NOMEM && rc != SW_E_IO)
        rc = sw_report_remark(c->report, c->err, "files beside the weights: %.400s", why.text);
    else if (rc != SW_OK)
        *c->err = why;
    for (int64_t i = 0; rc == SW_OK && i < list.n_entries; i++) {
        const char *name = list.entries[i].name;

        if (list.entries[i].role == SW_DIR_OTHER) continue;
        if (ends_with(name, ".safetensors") && !is_opened(c->checkpoint->st, name))
            rc = check_container(c, name);
        else if (ends_with(name, ".py") && c->original)
            rc = check_code(c, name);
    }
    sw_arena_free(&arena);
    return rc;
}

sw_code sw_verify_side_files(sw_report *report, const sw_subject *checkpoint,
                             const sw_subject *original, sw_err *err)
{
    const bool is_pair = original && !checkpoint->is_gguf && !original->is_gguf;
    const side c = {report, checkpoint, is_pair ? original : NULL, err};
    sw_code rc = SW_OK;

    for (int i = 0; i < N_ROWS && rc == SW_OK && !checkpoint->is_gguf; i++)
        rc = check_row(&c, &rows[i]);
    if (rc == SW_OK && !checkpoint->is_gguf) rc = check_template(&c);
    if (rc == SW_OK && !checkpoint->is_gguf) rc = check_tokenizer(&c);
    if (rc == SW_OK && original && !is_pair) rc = check_tokens(&c, original);
    return rc == SW_OK && !checkpoint->is_gguf ? check_others(&c) : rc;
}
