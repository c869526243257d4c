/* card_text.c - see card.h: the sections of a card, one function each. */
#include <stdio.h>
#include <string.h>

#include "formats/checkpoint/hub_cache.h"
#include "formats/checkpoint/side_files.h"
#include "formats/gguf/gguf_model.h"
#include "tools/card/card.h"
#include "tools/card/card_engines.h"
#include "tools/cli/family.h"
#include "tools/cli/term.h"

#define NAMED_MAX 8 /* of what was left in floats */

static const char *text_of(const cJSON *object, const char *key)
{
    const cJSON *member = sw_json_member(object, key);

    return cJSON_IsString(member) ? member->valuestring : "";
}

static double number_of(const cJSON *object, const char *key)
{
    const cJSON *member = sw_json_member(object, key);

    return cJSON_IsNumber(member) ? member->valuedouble : 0;
}

/* What the first source of all was on the Hub; NULL: nobody knows. */
static const cJSON *first_hub(const sw_card *card)
{
    const cJSON *hub = NULL;
    sw_hub_id id;

    for (const cJSON *at = card->sources; at; at = sw_json_member(at, "origin"))
        if (sw_json_member(at, "hub")) hub = sw_json_member(at, "hub");
    return sw_hub_id_parse(&id, text_of(hub, "id")) ? hub : NULL;
}

static bool is_quantized(const sw_card *card)
{
    return card->ckpt->is_file || card->ckpt->dialect;
}

/* --- the metadata --- */

static const char *library_of(const char *format)
{
    static const char *const libraries[][2] = {{"gguf", "gguf"}, {"modelopt", "Model Optimizer"},
                                               {"swage", "swage"}};

    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++)
        if (!strcmp(format, libraries[i][0])) return libraries[i][1];
    return "transformers";
}

static sw_code put_tag(sw_print_buf *out, const char *tag, sw_err *err)
{
    char lower[64];
    size_t n = strlen(tag);
    sw_code rc;

    if (!n || n >= sizeof lower) return SW_OK;
    for (size_t i = 0; i <= n; i++)
        lower[i] = tag[i] >= 'A' && tag[i] <= 'Z' ? (char)(tag[i] - 'A' + 'a') : tag[i];
    if ((rc = sw_print_add(out, "- ", 2, err)) != SW_OK ||
        (rc = sw_print_quote(out, lower, err)) != SW_OK)
        return rc;
    return sw_print_add(out, "\n", 1, err);
}

/* The format as the Hub's own filters have it, and the width. */
static sw_code put_tags(sw_print_buf *out, const sw_card *card, sw_err *err)
{
    const cJSON *settings = sw_json_member(card->manifest, "settings");
    const char *format = sw_card_format(card);
    char bits[16] = "";
    sw_code rc = sw_print_fmt(out, err, "tags:\n");

    if (card->ckpt->dialect && !card->ckpt->rules)
        (void)snprintf(bits, sizeof bits, "%d-bit", card->ckpt->qconfig.spec.num->bits);
    if (rc == SW_OK && strcmp(format, "swage") != 0) rc = put_tag(out, format, err);
    if (rc == SW_OK) rc = put_tag(out, text_of(settings, "scheme"), err);
    if (rc == SW_OK) rc = put_tag(out, bits, err);
    return rc == SW_OK ? put_tag(out, "swage", err) : rc;
}

static sw_code put_front(sw_print_buf *out, const sw_card *card, sw_err *err)
{
    const sw_front_matter *f = &card->front;
    const cJSON *hub = first_hub(card);
    const struct {
        const char *key, *value;
    } rows[] = {{"base_model", text_of(hub, "id")},
                {"base_model_relation", is_quantized(card) ? "quantized" : ""},
                {"license", f->license},
                {"license_name", f->license_name},
                {"license_link", f->license_link},
                {"library_name", library_of(sw_card_format(card))},
                {"pipeline_tag", f->pipeline_tag[0] ? f->pipeline_tag : "text-generation"}};
    sw_code rc = sw_print_fmt(out, err, "---\n");

    for (size_t i = 0; i < sizeof rows / sizeof *rows && rc == SW_OK; i++)
        rc = sw_front_matter_put(out, rows[i].key, rows[i].value, err);
    if (rc == SW_OK) rc = put_tags(out, card, err);
    return rc == SW_OK ? sw_print_fmt(out, err, "---\n" SW_CARD_MARK "\n\n") : rc;
}

/* --- the table --- */

static sw_code put_row(sw_print_buf *out, const char *name, const char *value, sw_err *err)
{
    sw_code rc;

    if (!*value) return SW_OK;
    if ((rc = sw_print_fmt(out, err, "| %s | ", name)) != SW_OK ||
        (rc = sw_card_put_clean(out, value, err)) != SW_OK)
        return rc;
    return sw_print_fmt(out, err, " |\n");
}

static sw_code put_calibration(sw_print_buf *out, const sw_card *card, sw_err *err)
{
    const cJSON *calibration = sw_json_member(card->manifest, "calibration"), *file;
    char text[400] = "";

    if (!calibration) return SW_OK;
    cJSON_ArrayForEach(file, sw_json_member(calibration, "files")) {
        size_t n = strlen(text);
        (void)snprintf(text + n, sizeof text - n, "%s%.60s", n ? ", " : "", text_of(file, "name"));
    }
    (void)snprintf(text + strlen(text), sizeof text - strlen(text), ": %.0f windows of %.0f tokens",
                   number_of(calibration, "samples"), number_of(calibration, "seq_len"));
    return put_row(out, "calibration", text, err);
}

static sw_code put_sizes(sw_print_buf *out, const sw_card *card, sw_err *err)
{
    double have = 0, before = number_of(card->manifest, "source_tensor_bytes");
    double bits = number_of(card->manifest, "bits_per_weight");
    char bytes[2][16], text[80];
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < sw_st_count(card->ckpt->st); i++)
        have += (double)sw_gguf_stored_bytes(sw_st_at(card->ckpt->st, i));
    sw_term_bytes(bytes[0], have);
    sw_term_bytes(bytes[1], before);
    (void)snprintf(text, sizeof text, before > 0 ? "%s, of the source %s" : "%s", bytes[0],
                   bytes[1]);
    if (bits > 0) {
        char number[24];
        (void)snprintf(number, sizeof number, "%.3f", bits);
        rc = put_row(out, "bits per quantized weight", number, err);
    }
    return rc == SW_OK ? put_row(out, "size of the tensors", text, err) : rc;
}

static sw_code put_interval(sw_print_buf *out, const char *name, const sw_interval *i,
                            const char *unit, sw_err *err)
{
    char text[120];

    (void)snprintf(text, sizeof text, "%.5f%s (%.5f to %.5f)", i->at, unit, i->low, i->high);
    return put_row(out, name, text, err);
}

/* What verify measured, with intervals. */
static sw_code put_figures(sw_print_buf *out, const sw_report *r, sw_err *err)
{
    const sw_report_eval *e = r ? &r->eval : NULL;
    sw_code rc;

    if (!e || !e->is_measured) return SW_OK;
    if ((rc = put_interval(out, "perplexity", &e->ppl, "", err)) != SW_OK || !e->has_original)
        return rc;
    rc = put_interval(out, "perplexity of the original", &e->ppl_original, "", err);
    if (rc != SW_OK ||
        (rc = put_interval(out, "KL from the original", &e->kl, " nats per token", err)) != SW_OK)
        return rc;
    return put_interval(out, "same most likely token", &e->top1, "", err);
}

/* Accuracy of every task, in per cent, beside the original's. */
static sw_code put_tasks(sw_print_buf *out, const sw_report *r, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t i = 0; r && i < r->n_tasks && rc == SW_OK; i++) {
        const sw_report_task *t = &r->tasks[i];
        char text[200];
        int n = snprintf(text, sizeof text, "%.1f %% (%.1f to %.1f)", 100 * t->acc.at,
                         100 * t->acc.low, 100 * t->acc.high);

        if (t->has_original)
            (void)snprintf(text + n, sizeof text - (size_t)n, ", original %.1f %%; %.1f %% of the "
                           "answers changed", 100 * t->acc_original.at, 100 * t->flips.at);
        if ((rc = sw_print_add(out, "| ", 2, err)) == SW_OK &&
            (rc = sw_card_put_clean(out, t->name, err)) == SW_OK)
            rc = sw_print_fmt(out, err, " (acc) | %s |\n", text);
    }
    return rc;
}

/* What was timed, on which machine. */
static sw_code put_speed(sw_print_buf *out, const sw_report *r, sw_err *err)
{
    const sw_report_speed *s = r ? &r->speed : NULL;
    sw_code rc = SW_OK;

    if (!s || !s->is_measured) return SW_OK;
    for (int64_t i = 0; i < s->n_cells && rc == SW_OK; i++) {
        const sw_speed_cell *c = &s->cells[i];
        const sw_interval *gain = &c->speedup.median;
        char name[80], text[200];
        int n = snprintf(text, sizeof text, "%.1f tokens/s", c->tokens_s[0].median.at);

        if (s->has_original)
            (void)snprintf(text + n, sizeof text - (size_t)n, ", original %.1f: %.2f times as fast "
                           "(%.2f to %.2f)%s", c->tokens_s[1].median.at, gain->at, gain->low,
                           gain->high, c->is_noisy ? ", on a noisy machine" : "");
        (void)snprintf(name, sizeof name, "%s, %lld sequence%s",
                       c->is_prefill ? "prefill" : "decoding", (long long)c->batch,
                       c->batch == 1 ? "" : "s");
        rc = put_row(out, name, text, err);
    }
    return rc == SW_OK ? put_row(out, "timed on", s->device[0] ? s->device : s->cpu, err) : rc;
}

static sw_code put_table(sw_print_buf *out, const sw_card *card, sw_err *err)
{
    const cJSON *settings = sw_json_member(card->manifest, "settings");
    const sw_model *m = &card->ckpt->model;
    char text[400], family[SW_FAMILY_TEXT_BYTES];
    sw_code rc = sw_print_fmt(out, err, "| | |\n|---|---|\n");

    (void)snprintf(text, sizeof text, "%.60s%s%.300s", text_of(settings, "scheme"),
                   text_of(settings, "scheme")[0] ? ": " : "", card->scheme);
    if (rc == SW_OK) rc = put_row(out, "scheme", text, err);
    if (rc == SW_OK && (m->is_like || m->found))
        rc = put_row(out, "model type", sw_family_text(family, m, card->ckpt->config), err);
    if (rc == SW_OK && m->found)
        rc = put_row(out, "checked", "files and weights; nothing was calibrated, and no logits "
                     "were checked", err);
    if (rc == SW_OK) rc = put_row(out, "method", text_of(settings, "method"), err);
    if (rc == SW_OK) rc = put_row(out, "format", sw_card_format(card), err);
    if (rc == SW_OK) rc = put_calibration(out, card, err);
    if (rc == SW_OK) rc = put_sizes(out, card, err);
    if (rc == SW_OK) rc = put_figures(out, card->report, err);
    if (rc == SW_OK) rc = put_tasks(out, card->report, err);
    if (rc == SW_OK) rc = put_speed(out, card->report, err);
    return rc == SW_OK ? sw_print_fmt(out, err, "\n") : rc;
}

/* --- the other sections --- */

/* The first step first: `before` has the origin of what `at` tells. */
static sw_code put_steps(sw_print_buf *out, const cJSON *at, const cJSON *before, int *n,
                         sw_err *err)
{
    const char *step = text_of(at, "made_by");
    const cJSON *origin = sw_json_member(before, "origin");
    sw_code rc = SW_OK;

    if (origin) rc = put_steps(out, origin, origin, n, err); /* as deep as JSON may nest */
    if (rc != SW_OK || !*step || strpbrk(step, "\n\r")) return rc;
    if ((*n)++ == 0) rc = sw_print_fmt(out, err, "## How it was made\n\n```\n");
    if (rc == SW_OK) rc = sw_print_add(out, step, strlen(step), err);
    return rc == SW_OK ? sw_print_add(out, "\n", 1, err) : rc;
}

static sw_code put_making(sw_print_buf *out, const sw_card *card, sw_err *err)
{
    int n = 0;
    sw_code rc = put_steps(out, card->manifest, card->sources, &n, err);

    return rc == SW_OK && n ? sw_print_fmt(out, err, "```\n\n") : rc;
}

static bool is_quantized_tensor(const sw_checkpoint *ckpt, const char *name)
{
    const char *dot = strrchr(name, '.');
    char path[512];

    if (!dot || (size_t)(dot - name) >= sizeof path) return false;
    (void)snprintf(path, sizeof path, "%.*s", (int)(dot - name), name);
    return sw_checkpoint_is_quantized(ckpt, path);
}

static sw_code put_named(sw_print_buf *out, const cJSON *list, sw_err *err)
{
    const cJSON *item;
    int i = 0;
    sw_code rc = SW_OK;

    cJSON_ArrayForEach(item, list) {
        if (i++ >= NAMED_MAX || rc != SW_OK || !cJSON_IsString(item)) continue;
        rc = sw_print_add(out, i > 1 ? ", " : ": ", 2, err);
        if (rc == SW_OK) rc = sw_card_put_clean(out, item->valuestring, err);
    }
    if (rc == SW_OK && i > NAMED_MAX) rc = sw_print_fmt(out, err, " and %d more", i - NAMED_MAX);
    return rc == SW_OK ? sw_print_add(out, "\n", 1, err) : rc;
}

static sw_code put_left(sw_print_buf *out, const sw_card *card, sw_err *err)
{
    const cJSON *ignored = sw_json_member(card->manifest, "ignored"), *part;
    char bytes[16];
    sw_code rc = SW_OK;

    if (cJSON_GetArraySize(ignored)) {
        rc = sw_print_fmt(out, err, "- %d linears that the options name",
                          cJSON_GetArraySize(ignored));
        if (rc == SW_OK) rc = put_named(out, ignored, err);
    }
    cJSON_ArrayForEach(part, sw_json_member(card->manifest, "left")) {
        if (rc != SW_OK) return rc;
        sw_term_bytes(bytes, number_of(part, "bytes"));
        if ((rc = sw_print_add(out, "- ", 2, err)) != SW_OK ||
            (rc = sw_card_put_clean(out, text_of(part, "part"), err)) != SW_OK)
            return rc;
        rc = sw_print_fmt(out, err, ", %.0f tensors of %s: outside of the decoder blocks\n",
                          number_of(part, "tensors"), bytes);
    }
    return rc;
}

static sw_code put_floats(sw_print_buf *out, const sw_card *card, sw_err *err)
{
    const sw_st *st = card->ckpt->st;
    double n_bytes = 0;
    int64_t n = 0;
    char bytes[16];
    sw_code rc;

    if (!card->ckpt->dialect) return SW_OK;
    for (int64_t i = 0; i < sw_st_count(st); i++) {
        const sw_st_tensor *t = sw_st_at(st, i);
        if (is_quantized_tensor(card->ckpt, t->name)) continue;
        n++;
        n_bytes += (double)t->view.size_bytes;
    }
    sw_term_bytes(bytes, n_bytes);
    rc = sw_print_fmt(out, err, "## What was left in floats\n\n%lld tensors of %s in all. Only "
                      "linears inside decoder blocks are quantized, and lm\\_head where that was "
                      "asked for; embeddings, norms and routers stay as they were.\n\n",
                      (long long)n, bytes);
    if (rc == SW_OK) rc = put_left(out, card, err);
    return rc == SW_OK ? sw_print_add(out, "\n", 1, err) : rc;
}

static sw_code put_publishing(sw_print_buf *out, const sw_card *card, sw_err *err)
{
    if (!strcmp(card->own_name, "README.md"))
        return sw_print_fmt(out, err, "## How to publish it\n\n```\nhf upload YOU/NAME OUT%s\n"
                            "```\n", card->ckpt->is_file ? "" : " .");
    return sw_print_fmt(out, err, "## How to publish it\n\nThis card takes the place of the "
                        "source's, which lies beside it as README.md.\n\n```\n"
                        "hf upload YOU/NAME OUT . --exclude README.md %s\n"
                        "hf upload YOU/NAME OUT/%s README.md\n```\n", card->own_name,
                        card->own_name);
}

sw_code sw_card_text(char **out, const sw_card *card, sw_err *err)
{
    const cJSON *hub = first_hub(card);
    sw_print_buf text = {0};
    sw_code rc = put_front(&text, card, err);

    if (rc == SW_OK && hub)
        rc = sw_print_fmt(&text, err, "# %s, %s\n\nMade from [%s](https://huggingface.co/%s) "
                          "(revision `%.40s`) with Swage " SW_VERSION ".\n\n", text_of(hub, "id"),
                          is_quantized(card) ? "quantized" : "converted", text_of(hub, "id"),
                          text_of(hub, "id"), text_of(hub, "revision"));
    else if (rc == SW_OK)
        rc = sw_print_fmt(&text, err, "# A model %s with Swage\n\nMade with Swage " SW_VERSION
                          ".\n\n", is_quantized(card) ? "quantized" : "converted");
    if (rc == SW_OK) rc = put_table(&text, card, err);
    if (rc == SW_OK) rc = put_making(&text, card, err);
    if (rc == SW_OK) rc = sw_card_put_engines(&text, card, err);
    if (rc == SW_OK) rc = put_floats(&text, card, err);
    if (rc == SW_OK) rc = put_publishing(&text, card, err);
    if (rc == SW_OK) rc = sw_print_add(&text, "", 1, err);
    if (rc == SW_OK)
        *out = text.at;
    else
        sw_mem_put(text.at);
    return rc;
}
