/* quantize_report.c - see quantize_report.h. */
#include "tools/quantize/quantize_report.h"

#include <stdio.h>
#include <string.h>

#include "formats/io/file.h"
#include "formats/io/file_content.h"
#include "formats/num/pow2.h"
#include "tools/cli/names.h"
#include "tools/quantize/needs.h"
#include "tools/terminal/next_steps.h"

static bool add_number(cJSON *object, const char *key, double v)
{
    return cJSON_AddNumberToObject(object, key, v) != NULL;
}

static bool add_text(cJSON *object, const char *key, const char *text)
{
    return cJSON_AddStringToObject(object, key, text) != NULL;
}

static bool add_settings(cJSON *root, const sw_quantize_settings *s)
{
    const sw_quant_options *q = &s->quant;
    cJSON *o = cJSON_AddObjectToObject(root, "settings");
    bool ok = o && add_text(o, "scheme", s->scheme) && add_text(o, "method", s->method) &&
              add_text(o, "format", s->format) && add_number(o, "bits", q->spec.num->bits) &&
              cJSON_AddBoolToObject(o, "symmetric", q->spec.is_symmetric) &&
              add_number(o, "group_size", (double)q->spec.group_elems) &&
              add_text(o, "scale_dtype", sw_dtype_name(q->spec.scale_dtype));

    if (ok && !q->spec.num->values && !q->spec.is_sign_free)
        ok = cJSON_AddBoolToObject(o, "positive_scales", true) != NULL;
    if (ok && q->spec.pow2_rule)
        ok = add_text(o, "mx_scale", sw_pow2_rule_name(q->spec.pow2_rule));
    if (ok && q->kv_num) ok = add_text(o, "kv_cache", sw_kv_cache_of_num(q->kv_num));
    if (ok && s->target_bits > 0) ok = add_number(o, "target_bits", s->target_bits);
    if (ok && s->target_bytes) ok = add_number(o, "target_size", (double)s->target_bytes);
    if (ok && s->has_chosen_outliers) ok = add_text(o, "outliers", "auto");
    if (ok && s->predicted_kl > 0) ok = add_number(o, "predicted_kl", s->predicted_kl);
    if (!ok || !q->algo->needs_statistics) return ok;
    return add_text(o, "act_order", s->order) && add_text(o, "sequential", s->sequential) &&
           add_text(o, "experts", sw_name_of_experts((int)q->experts)) &&
           add_number(o, "damp", q->damp) && add_number(o, "refine_rounds", q->refine_rounds) &&
           add_number(o, "input_strength_cap", q->cap.input) &&
           add_number(o, "residual_strength_cap", q->cap.residual) &&
           add_number(o, "seed", (double)s->seed);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static sw_code add_calibration(cJSON *root, const sw_calibration *c, const sw_opt_list *files,
                               sw_err *err)
{
    cJSON *o = cJSON_AddObjectToObject(root, "calibration");
    cJSON *list = o ? cJSON_AddArrayToObject(o, "files") : NULL;
    char digest[SW_SHA256_HEX_BYTES];
    sw_code rc;

    for (int i = 0; list && i < files->n; i++) {
        cJSON *row = cJSON_CreateObject();
        if ((rc = sw_sha256_file(digest, files->items[i], err)) != SW_OK) {
            cJSON_Delete(row);
            return rc;
        }
        if (!row || !cJSON_AddItemToArray(list, row) ||
            !add_text(row, "name", base_name(files->items[i])) || !add_text(row, "sha256", digest))
            return sw_cmd_json_added(NULL, err);
    }
    if (!list || !add_text(o, "ids_sha256", c->corpus.sha256) ||
        !add_number(o, "tokens_given", (double)c->corpus.ids.n) ||
        !sw_corpus_add_note(o, &c->corpus) ||
        !add_number(o, "samples", (double)c->calib.n_seqs) ||
        !add_number(o, "seq_len", (double)c->calib.seq_len))
        return sw_cmd_json_added(NULL, err);
    return SW_OK;
}

static bool add_ignored(cJSON *root, const sw_selection *selection)
{
    cJSON *list = cJSON_AddArrayToObject(root, "ignored");

    for (int64_t i = 0; list && i < selection->n_ignored; i++)
        if (!cJSON_AddItemToArray(list, cJSON_CreateString(selection->ignored[i]))) return false;
    return list != NULL;
}

static sw_code set_seen(sw_quantize_report *report, sw_err *err)
{
    cJSON *seen = cJSON_CreateObject();
    const cJSON *list;

    cJSON_ArrayForEach(list, report->manifest)
        if (seen && cJSON_IsArray(list) &&
            !add_number(seen, list->string, cJSON_GetArraySize(list))) {
            cJSON_Delete(seen);
            seen = NULL;
        }
    if (!seen) return sw_cmd_json_added(NULL, err);
    cJSON_Delete(report->seen);
    report->seen = seen;
    return SW_OK;
}

sw_code sw_quantize_report_new(sw_quantize_report *out, const sw_quantize_settings *settings,
                               const sw_calibration *calibration, const sw_opt_list *files,
                               const sw_selection *selection, sw_err *err)
{
    sw_code rc;
    cJSON *root = NULL;

    memset(out, 0, sizeof *out);
    if ((rc = sw_cmd_json_new(&root, "manifest", err)) != SW_OK) return rc;
    if (!add_settings(root, settings) || !add_ignored(root, selection))
        rc = sw_cmd_json_added(NULL, err);
    if (rc == SW_OK && calibration) rc = add_calibration(root, calibration, files, err);
    if (rc == SW_OK) {
        out->tensors = cJSON_AddArrayToObject(root, "tensors");
        rc = sw_cmd_json_added(out->tensors, err);
    }
    if (rc != SW_OK) {
        cJSON_Delete(root);
        return rc;
    }
    out->manifest = root;
    if ((rc = set_seen(out, err)) != SW_OK) sw_quantize_report_free(out);
    return rc;
}

void sw_quantize_report_free(sw_quantize_report *report)
{
    cJSON_Delete(report->manifest);
    cJSON_Delete(report->seen);
    memset(report, 0, sizeof *report);
}

/* The summary at the end is made of the manifest's rows, so that a continued run has the same. */
static void count(sw_quantize_report *r, const cJSON *row)
{
    const cJSON *error = sw_json_member(row, "output_error");
    const cJSON *rtn = sw_json_member(row, "output_error_rtn");
    const cJSON *why = sw_json_member(row, "fallback");
    const char *path = NULL, *method = NULL;
    sw_err ignored = {0};

    (void)!sw_json_text(&path, row, "name", &ignored);
    (void)!sw_json_text(&method, row, "method", &ignored);
    r->n_linears++;
    if (cJSON_IsString(why) && r->n_fallbacks++ == 0)
        (void)snprintf(r->first_fallback, sizeof r->first_fallback, "%s used %s: %s",
                       path ? path : "?", method ? method : "?", why->valuestring);
    if (!cJSON_IsNumber(error) || !cJSON_IsNumber(rtn)) return;
    r->n_errors++;
    r->error_sum += error->valuedouble;
    r->rtn_sum += rtn->valuedouble;
    if (error->valuedouble <= r->error_max && r->worst[0]) return;
    r->error_max = error->valuedouble;
    (void)snprintf(r->worst, sizeof r->worst, "%s", path ? path : "?");
}

/* By which rule the exponents of scales were found, and what it made of the groups. */
static bool add_exponents(cJSON *row, const sw_qspec *spec, const sw_solve_report *solve)
{
    static const char *const keys[3] = {"below_ocp", "at_ocp", "above_ocp"};
    cJSON *o = cJSON_AddObjectToObject(row, "scale_exponents");
    bool ok = o && add_text(o, "rule", sw_pow2_rule_name(spec->pow2_rule));
    int64_t n = solve->n_by_ocp[0] + solve->n_by_ocp[1] + solve->n_by_ocp[2];

    for (int i = 0; i < 3 && ok && n; i++) ok = add_number(o, keys[i], (double)solve->n_by_ocp[i]);
    return ok;
}

sw_code sw_quantize_report_add(sw_quantize_report *report, const char *path,
                               const sw_linear_ref *ref, const sw_qspec *spec,
                               const sw_solve_report *solve, float input_scale, sw_err *err)
{
    cJSON *row = cJSON_CreateObject();
    sw_code rc;
    bool ok = row && cJSON_AddItemToArray(report->tensors, row) && add_text(row, "name", path) &&
              add_number(row, "n_out", (double)ref->n_out) &&
              add_number(row, "k_in", (double)ref->k_in) &&
              add_number(row, "bits", spec->num->bits) &&
              add_number(row, "group_size", (double)spec->group_elems) &&
              cJSON_AddBoolToObject(row, "symmetric", spec->is_symmetric) &&
              (!spec->n_outliers || add_number(row, "outliers", (double)spec->n_outliers)) &&
              add_text(row, "method", solve->method) &&
              add_number(row, "scale_min", solve->scale_min) &&
              add_number(row, "scale_max", solve->scale_max);

    if (ok && solve->error >= 0)
        ok = add_number(row, "output_error", solve->error) &&
             add_number(row, "output_error_rtn", solve->error_rtn) &&
             add_number(row, "damp", solve->damp) &&
             add_number(row, "damp_retries", solve->n_damp_retries) &&
             add_number(row, "input_strength", solve->input_strength) &&
             add_number(row, "residual_strength", solve->residual_strength) &&
             add_number(row, "dead_inputs", (double)solve->n_dead) &&
             add_number(row, "tokens", (double)solve->n_tokens);
    if (ok && spec->is_pow2_scale) ok = add_exponents(row, spec, solve);
    if (ok && sw_act_needs_input_scale(&spec->act))
        ok = add_number(row, "input_scale", (double)input_scale);
    if (ok && solve->is_fallback) ok = add_text(row, "fallback", solve->why);
    if (!ok) return sw_cmd_json_added(NULL, err);
    rc = sw_expert_report_add(report->manifest, row, ref, solve, err);
    if (rc != SW_OK) return rc;
    count(report, row);
    return SW_OK;
}

/* Copies of the items of `from` at `begin` and beyond, behind those of `to`. */
static bool copy_items(cJSON *to, const cJSON *from, int begin)
{
    const cJSON *item;
    int i = 0;

    cJSON_ArrayForEach(item, from) {
        cJSON *copy = i++ < begin ? NULL : cJSON_Duplicate(item, true);
        if (i > begin && (!copy || !cJSON_AddItemToArray(to, copy))) return false;
    }
    return true;
}

sw_code sw_quantize_report_gained(cJSON **out, sw_quantize_report *report, sw_err *err)
{
    cJSON *gained = cJSON_CreateObject();
    cJSON *rows = gained ? cJSON_AddObjectToObject(gained, "rows") : NULL;
    const cJSON *list;
    bool ok = rows != NULL;
    sw_code rc;

    cJSON_ArrayForEach(list, report->manifest) {
        const cJSON *n_seen = sw_json_member(report->seen, list->string);
        int begin = n_seen ? n_seen->valueint : 0;
        cJSON *to = NULL;
        if (!ok || !cJSON_IsArray(list) || cJSON_GetArraySize(list) <= begin) continue;
        to = cJSON_AddArrayToObject(rows, list->string);
        ok = to && copy_items(to, list, begin);
    }
    rc = ok ? set_seen(report, err) : sw_cmd_json_added(NULL, err);
    if (rc == SW_OK)
        *out = gained;
    else
        cJSON_Delete(gained);
    return rc;
}

sw_code sw_quantize_report_restore(sw_quantize_report *report, const cJSON *gained, sw_err *err)
{
    const cJSON *list, *row;

    cJSON_ArrayForEach(list, sw_json_member(gained, "rows")) {
        cJSON *to = cJSON_GetObjectItemCaseSensitive(report->manifest, list->string);
        if (!to) to = cJSON_AddArrayToObject(report->manifest, list->string);
        if (!to || !copy_items(to, list, 0)) return sw_cmd_json_added(NULL, err);
        if (to != report->tensors) continue;
        cJSON_ArrayForEach(row, list) count(report, row);
    }
    return set_seen(report, err);
}

sw_code sw_quantize_report_transform(sw_quantize_report *report,
                                     const sw_transform_report *t, sw_err *err)
{
    cJSON *list = cJSON_GetObjectItemCaseSensitive(report->manifest, "transforms");
    cJSON *row = cJSON_CreateObject();
    bool ok;

    if (!list) list = cJSON_AddArrayToObject(report->manifest, "transforms");
    ok = row && list && cJSON_AddItemToArray(list, row) &&
         add_text(row, "folded_into", t->producer) &&
         add_text(row, "method", t->method) &&
         cJSON_AddBoolToObject(row, "accepted", t->is_accepted);
    if (ok && t->choice[0])
        ok = add_text(row, "scale", t->choice) && add_number(row, "loss_without", t->loss_before) &&
             add_number(row, "loss_with", t->loss);
    if (ok && t->is_accepted)
        ok = add_number(row, "scale_min", t->scale_min) &&
             add_number(row, "scale_max", t->scale_max) &&
             cJSON_AddBoolToObject(row, "powers_of_two", t->is_pow2);
    if (ok && !t->is_accepted) ok = add_text(row, "why_not", t->why_not);
    return ok ? SW_OK : sw_cmd_json_added(NULL, err);
}

sw_code sw_quantize_report_kv(sw_quantize_report *report, int64_t layer, float k_scale,
                              float v_scale, sw_err *err)
{
    cJSON *list = cJSON_GetObjectItemCaseSensitive(report->manifest, "kv_scales");
    cJSON *row = cJSON_CreateObject();

    if (!list) list = cJSON_AddArrayToObject(report->manifest, "kv_scales");
    if (!row || !list || !cJSON_AddItemToArray(list, row)) {
        cJSON_Delete(row);
        return sw_cmd_json_added(NULL, err);
    }
    if (add_number(row, "layer", (double)layer) && add_number(row, "k_scale", (double)k_scale) &&
        add_number(row, "v_scale", (double)v_scale))
        return SW_OK;
    return sw_cmd_json_added(NULL, err);
}

static void print_transforms(const sw_quantize_report *r)
{
    const cJSON *list = sw_json_member(r->manifest, "transforms"), *row;
    int n = 0, n_accepted = 0;

    cJSON_ArrayForEach(row, list) {
        n++;
        n_accepted += cJSON_IsTrue(sw_json_member(row, "accepted"));
    }
    if (n)
        (void)printf("transform   %d of %d groups scaled; scaling the others did not help on "
                     "held-out windows\n", n_accepted, n);
}

static void print_text(const sw_quantize_report *r, const sw_quantize_settings *s,
                       const sw_quantize_outcome *o)
{
    char before[16], after[16], peak[16], spec[SW_SPEC_TEXT_BYTES];

    sw_term_bytes(before, (double)o->source_bytes);
    sw_term_bytes(after, (double)o->out_bytes);
    sw_term_bytes(peak, sw_peak_bytes());
    (void)printf("output      %s (%s)\n"
                 "scheme      %s: %s%s, by %s\n"
                 "linears     %lld quantized, %lld by a fallback, %.3f bits per weight\n"
                 "tensors     %s -> %s\n",
                 o->out_dir, s->format, s->scheme, o->is_mixed ? "mixed, from " : "",
                 sw_qspec_text(spec, &s->quant.spec), s->method,
                 (long long)r->n_linears, (long long)r->n_fallbacks,
                 o->bits_per_weight, before, after);
    if (s->target_bytes)
        (void)printf("files       %llu bytes of at most %llu\n", (unsigned long long)o->file_bytes,
                     (unsigned long long)s->target_bytes);
    sw_linear_counts_print(&r->counts);
    print_transforms(r);
    if (r->n_errors)
        (void)printf("error       %.5f mean of the outputs, from what they aim at (rounding alone: "
                     "%.5f); largest %.5f in %s\n",
                     r->error_sum / (double)r->n_errors, r->rtn_sum / (double)r->n_errors,
                     r->error_max, r->worst);
    sw_expert_report_print(stdout, r->manifest);
    (void)printf("time        %.1f s, peak memory %s\n", o->seconds, peak);
}

sw_code sw_quantize_report_json(cJSON **out, const sw_quantize_report *r,
                                const sw_quantize_outcome *o, sw_err *err)
{
    static const char *const repeated[] = {"settings", "calibration", "ignored", "left",
                                           "transforms", "experts", "kv_scales", "tensors"};
    cJSON *object = NULL;
    sw_code rc = sw_cmd_json_new(&object, "quantize", err);
    bool ok;

    if (rc != SW_OK) return rc;
    ok = add_text(object, "output", o->out_dir) &&
         add_number(object, "linears", (double)r->n_linears) &&
         add_number(object, "fallbacks", (double)r->n_fallbacks) &&
         add_number(object, "tensor_bytes_before", (double)o->source_bytes) &&
         add_number(object, "tensor_bytes_after", (double)o->out_bytes) &&
         add_number(object, "file_bytes", (double)o->file_bytes) &&
         add_number(object, "bits_per_weight", o->bits_per_weight) &&
         add_number(object, "seconds", o->seconds) &&
         add_number(object, "peak_bytes", sw_peak_bytes()) &&
         cJSON_AddItemReferenceToObject(object, "timeline", (cJSON *)(uintptr_t)o->timeline);
    for (size_t i = 0; ok && i < sizeof repeated / sizeof repeated[0]; i++) {
        cJSON *part = cJSON_GetObjectItemCaseSensitive(r->manifest, repeated[i]);
        if (part) ok = cJSON_AddItemReferenceToObject(object, repeated[i], part) != 0;
    }
    if (ok)
        *out = object;
    else
        cJSON_Delete(object);
    return ok ? SW_OK : sw_cmd_json_added(NULL, err);
}

static sw_code print_json(sw_run *run, const sw_quantize_report *r, const sw_quantize_outcome *o,
                          sw_err *err)
{
    cJSON *object = NULL;
    sw_code rc = sw_quantize_report_json(&object, r, o, err);

    if (rc == SW_OK) rc = sw_cmd_json_print(run, object, err);
    cJSON_Delete(object);
    return rc;
}

static void print_next(const sw_run *run, const char *out_dir)
{
    const sw_cmd_common *common = run->options;
    sw_next_steps next = {.is_silent = common->quiet != 0};

    SW_NEXT_STEP(&next, "what it lost, on text that it was not calibrated with", "verify", out_dir,
                 "--against", run->args[0], "--text", "FILE");
    SW_NEXT_STEP(&next, "a look at what it says", "generate", out_dir, "--prompt", "Once upon a");
}

sw_code sw_quantize_report_print(sw_run *run, const sw_quantize_report *report,
                                 const sw_quantize_settings *settings,
                                 const sw_quantize_outcome *outcome, sw_err *err)
{
    const sw_cmd_common *common = run->options;

    if (common->json) return print_json(run, report, outcome, err);
    print_text(report, settings, outcome);
    print_next(run, outcome->out_dir);
    run->has_result = true;
    return SW_OK;
}
