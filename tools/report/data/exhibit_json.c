/* exhibit_json.c - what a manifest, verify and quantize say, taken over where it is what it should
 * be: a file may hold anything by these names. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "formats/base/mem.h"
#include "formats/base/print_buf.h"
#include "tools/report/data/exhibit.h"

#define number sw_exhibit_number

/* Linears are in block order, so that most rows are the next one. */
typedef struct cursor {
    sw_exhibit *x;
    int64_t next;
} cursor;

/* NULL, and a stranger more, when the model has no such linear. */
static sw_exhibit_linear *linear_of(cursor *c, const cJSON *row)
{
    const char *name = sw_exhibit_text(row, "name");
    sw_exhibit_linear *found = NULL;

    if (name && c->next < c->x->n_linears && !strcmp(c->x->linears[c->next].path, name))
        found = &c->x->linears[c->next];
    else if (name)
        found = sw_exhibit_find(c->x, name);
    if (found) c->next = found - c->x->linears + 1;
    else c->x->n_strangers++;
    return found;
}

static double above_zero(double v) { return v >= 0 ? v : (double)NAN; }

/* Sizes of the weights' files: the original's tensors are not there to be asked. */
static double bytes_of_files(const cJSON *list)
{
    static const char *const endings[] = {".safetensors", ".bin", ".gguf", ".zst", ".pt"};
    double sum = 0;
    const cJSON *item;

    cJSON_ArrayForEach(item, list) {
        const char *name = sw_exhibit_text(item, "name");
        size_t n = name ? strlen(name) : 0;
        for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
            size_t n_end = strlen(endings[i]);
            if (n > n_end && !strcmp(name + n - n_end, endings[i]) && number(item, "bytes") >= 0)
                sum += number(item, "bytes");
        }
    }
    return sum > 0 ? sum : (double)NAN;
}

void sw_exhibit_read_manifest(sw_exhibit *x)
{
    const cJSON *row;
    cursor c = {.x = x};

    cJSON_ArrayForEach(row, sw_json_member(x->manifest, "tensors")) {
        sw_exhibit_linear *l = linear_of(&c, row);
        if (!l) continue;
        l->method = sw_exhibit_text(row, "method");
        l->fallback = sw_exhibit_text(row, "fallback");
        l->calib_err = above_zero(number(row, "output_error"));
        l->calib_err_rtn = above_zero(number(row, "output_error_rtn"));
        l->n_tokens = above_zero(number(row, "tokens"));
        l->n_routed = above_zero(number(row, "routed_tokens"));
        l->prior_weight = above_zero(number(row, "all_token_weight"));
        l->damp = above_zero(number(row, "damp"));
        l->n_damp_retries = above_zero(number(row, "damp_retries"));
        l->scale_min = above_zero(number(row, "scale_min"));
        l->scale_max = above_zero(number(row, "scale_max"));
    }
    x->original_bytes = bytes_of_files(sw_json_member(x->manifest, "inputs"));
    x->is_original_of_files = !isnan(x->original_bytes);
}

void sw_exhibit_drop_manifest(sw_exhibit *x)
{
    double none = (double)NAN;

    for (int64_t i = 0; i < x->n_linears; i++) {
        sw_exhibit_linear *l = &x->linears[i];
        l->method = l->fallback = NULL;
        l->calib_err = l->calib_err_rtn = l->n_tokens = l->n_routed = l->prior_weight = none;
        l->damp = l->n_damp_retries = l->scale_min = l->scale_max = none;
    }
    cJSON_Delete(x->manifest);
    x->manifest = NULL;
    x->n_strangers = 0;
    x->is_stale = true;
    if (x->is_original_of_files) x->original_bytes = none;
}

/* Do the digests that verify took differ from those that the manifest names? */
static bool has_other_digests(const sw_exhibit *x)
{
    const cJSON *file, *output;

    cJSON_ArrayForEach(file, sw_json_member(x->verified, "inputs")) {
        const char *role = sw_exhibit_text(file, "role"), *path = sw_exhibit_text(file, "path");
        const char *sum = sw_exhibit_text(file, "sha256"), *base = path ? strrchr(path, '/') : NULL;
        if (!role || !sum || !path || strcmp(role, "checkpoint") != 0) continue;
        base = base ? base + 1 : path;
        cJSON_ArrayForEach(output, sw_json_member(x->manifest, "outputs")) {
            const char *name = sw_exhibit_text(output, "name");
            const char *want = sw_exhibit_text(output, "sha256");
            if (name && want && !strcmp(name, base) && strcmp(want, sum) != 0) return true;
        }
    }
    return false;
}

static void read_rows(sw_exhibit *x)
{
    const cJSON *row;
    cursor c = {.x = x};

    cJSON_ArrayForEach(row, sw_json_member(x->verified, "tensors")) {
        sw_exhibit_linear *l = linear_of(&c, row);
        if (!l) continue;
        l->weight_err = above_zero(number(row, "weight_error"));
        l->output_err = above_zero(number(row, "output_error"));
        l->over_rounding = above_zero(number(row, "error_over_rounding"));
        l->cosine = number(row, "cosine");
        l->group_misfit = above_zero(number(row, "worst_group_misfit"));
        l->nearest_share = above_zero(number(row, "nearest_code_share"));
        if (!isnan(number(row, "scale_min"))) l->scale_min = number(row, "scale_min");
        if (!isnan(number(row, "scale_max"))) l->scale_max = number(row, "scale_max");
    }
}

static sw_interval3 interval(const cJSON *e, const char *key)
{
    const cJSON *at = sw_json_member(e, key);

    return (sw_interval3){number(at, "value"), number(at, "low"), number(at, "high")};
}

/* One digest over what the figures were measured on and how. */
static sw_code make_key(sw_exhibit_eval *out, const cJSON *verified, const cJSON *e, sw_err *err)
{
    static const char *const keys[] = {"window", "windows", "predictions"};
    sw_print_buf text = {0};
    const cJSON *file;
    sw_code rc = SW_OK;

    cJSON_ArrayForEach(file, sw_json_member(verified, "inputs")) {
        const char *role = sw_exhibit_text(file, "role"), *sum = sw_exhibit_text(file, "sha256");
        if (!role || !sum || !strcmp(role, "checkpoint")) continue;
        if (rc == SW_OK) rc = sw_print_quote(&text, role, err);
        if (rc == SW_OK) rc = sw_print_quote(&text, sum, err);
    }
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && rc == SW_OK; i++)
        rc = sw_print_fmt(&text, err, " %.17g", number(e, keys[i]));
    if (rc == SW_OK)
        rc = sw_print_fmt(&text, err, " %d", cJSON_IsTrue(sw_json_member(e, "bos")));
    if (rc == SW_OK) rc = sw_sha256_hex(out->key, text.at, text.n_bytes, err);
    sw_mem_put(text.at);
    return rc;
}

static sw_exhibit_eval eval_of(const cJSON *verified)
{
    const cJSON *e = sw_json_member(verified, "evaluation"), *gap = sw_json_member(e, "kernel_gap");
    sw_exhibit_eval got = {
        .is_measured = e != NULL, .n_tokens = number(e, "tokens"), .window = number(e, "window"),
        .n_windows = number(e, "windows"), .n_predictions = number(e, "predictions"),
        .level = number(sw_json_member(e, "bootstrap"), "level"),
        .device = sw_exhibit_text(e, "device"), .ppl = interval(e, "ppl"),
        .ppl_original = interval(e, "ppl_original"), .ppl_ratio = interval(e, "ppl_ratio"),
        .nll_diff = interval(e, "nll_difference"), .kl = interval(e, "kl_mean"),
        .top1 = interval(e, "top1_agreement"), .kl_p99 = number(e, "kl_p99"),
        .is_significant = cJSON_IsTrue(sw_json_member(e, "difference_is_significant")),
        .kl_max = number(e, "kl_max"), .gap_logits = number(gap, "relative_logits_error"),
        .gap_kl = number(gap, "kl_mean")};

    got.has_original = !isnan(got.kl.at);
    return got;
}

void sw_exhibit_drop_eval(sw_exhibit *x) { x->eval = eval_of(NULL); }

sw_code sw_exhibit_add_verified(sw_exhibit *x, cJSON *verified, sw_err *err)
{
    const cJSON *coverage = sw_json_member(verified, "coverage");

    cJSON_Delete(x->verified);
    x->verified = verified;
    if (!sw_exhibit_text(verified, "verdict") || !sw_json_member(verified, "report_version"))
        return SW_FAIL(err, SW_E_FORMAT, "no result of `swage verify`");
    if (x->manifest && has_other_digests(x)) sw_exhibit_drop_manifest(x);
    read_rows(x);
    if (number(coverage, "original_bytes") > 0) {
        x->original_bytes = number(coverage, "original_bytes");
        x->is_original_of_files = false;
    }
    x->eval = eval_of(verified);
    return make_key(&x->eval, verified, sw_json_member(verified, "evaluation"), err);
}

void sw_exhibit_add_made(sw_exhibit *x, cJSON *made)
{
    cJSON_Delete(x->made);
    x->made = made;
}
