/* loaders.c - see loaders.h: the table, and what its rows look at. */
#include "verify/loaders/loaders.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "verify/loaders/loaders_parts.h"

const sw_load_rule sw_load_rules[] = {
#define SW_LOAD_RULE(id_, engines_, effect_, check_, consequence_, remedy_) \
    {id_, engines_, SW_LOAD_##effect_, consequence_, remedy_},
#include "verify/loaders/loaders.def"
#undef SW_LOAD_RULE
};

static const sw_load_check checks[] = {
#define SW_LOAD_RULE(id_, engines_, effect_, check_, consequence_, remedy_) sw_load_##check_,
#include "verify/loaders/loaders.def"
#undef SW_LOAD_RULE
};

const int sw_n_load_rules = (int)(sizeof sw_load_rules / sizeof *sw_load_rules);

const char *sw_load_effect_name(sw_load_effect effect)
{
    static const char *const names[SW_LOAD_EFFECT_COUNT] = {
        [SW_LOAD_REFUSED] = "refused", [SW_LOAD_MISREAD] = "misread",
        [SW_LOAD_LIMITED] = "limited"};

    return names[effect];
}

sw_code sw_load_found(sw_load_ctx *ctx, const char *subject, const char *fmt, ...)
{
    char detail[400], *kept_subject, *kept_detail;
    va_list args;
    sw_code rc;

    if (ctx->finding.n_subjects++) return SW_OK;
    va_start(args, fmt);
    (void)vsnprintf(detail, sizeof detail, fmt, args);
    va_end(args);
    rc = sw_arena_text(&kept_subject, ctx->arena, subject, strlen(subject), ctx->err);
    if (rc == SW_OK)
        rc = sw_arena_text(&kept_detail, ctx->arena, detail, strlen(detail), ctx->err);
    if (rc != SW_OK) return rc;
    ctx->finding.subject = kept_subject;
    ctx->finding.detail = kept_detail;
    return SW_OK;
}

static sw_code add_layer(sw_load_ctx *ctx, int64_t layer)
{
    const sw_checkpoint *c = ctx->ckpt;
    int64_t n = sw_model_linears(&c->model, layer, NULL, 0);
    sw_linear_ref *refs = NULL;
    char path[256], *kept;
    sw_code rc = SW_ARENA_TAKE(&refs, ctx->arena, n, ctx->err);

    if (rc != SW_OK) return rc;
    (void)sw_model_linears(&c->model, layer, refs, n);
    for (int64_t i = 0; i < n; i++) {
        sw_load_linear *l = &ctx->linears[ctx->n_linears];
        sw_err ignored = {0};
        if (!sw_model_slot_path(path, &c->model, layer, refs[i].slot, refs[i].expert)) continue;
        if ((rc = sw_arena_text(&kept, ctx->arena, path, strlen(path), ctx->err)) != SW_OK)
            return rc;
        *l = (sw_load_linear){.path = kept, .ref = refs[i],
                              .is_quantized = sw_checkpoint_is_quantized(c, path)};
        if (l->is_quantized && sw_checkpoint_stored_spec(&l->spec, c, path, refs[i].n_out,
                                                         refs[i].k_in, &ignored) != SW_OK)
            l->spec.num = NULL; /* whoever reads it says why */
        ctx->n_linears++;
    }
    return SW_OK;
}

static sw_code gather(sw_load_ctx *ctx)
{
    const sw_model *m = &ctx->ckpt->model;
    int64_t room = 0;
    sw_code rc;

    ctx->quant = sw_json_member(ctx->ckpt->config, "quantization_config");
    for (int64_t l = 0; l <= m->n_layers; l++) room += sw_model_linears(m, l, NULL, 0);
    rc = SW_ARENA_TAKE(&ctx->linears, ctx->arena, room, ctx->err);
    for (int64_t l = 0; l <= m->n_layers && rc == SW_OK; l++) rc = add_layer(ctx, l);
    return rc;
}

sw_code sw_loaders_check(sw_load_findings *out, const sw_checkpoint *ckpt, sw_err *err)
{
    sw_load_findings found = {.n = 0};
    sw_load_ctx ctx = {.ckpt = ckpt, .arena = &found.arena, .err = err};
    sw_gguf *g = NULL;
    sw_code rc = SW_ARENA_TAKE(&found.at, &found.arena, sw_n_load_rules, err);

    if (rc == SW_OK && ckpt->is_file) rc = sw_gguf_open(&g, ckpt->dir, err);
    ctx.gguf = g;
    if (rc == SW_OK) rc = gather(&ctx);
    for (int i = 0; i < sw_n_load_rules && rc == SW_OK; i++) {
        memset(&ctx.finding, 0, sizeof ctx.finding);
        rc = checks[i](&ctx);
        if (rc != SW_OK || !ctx.finding.n_subjects) continue;
        ctx.finding.rule = &sw_load_rules[i];
        found.at[found.n++] = ctx.finding;
    }
    sw_gguf_close(g);
    if (rc == SW_OK)
        *out = found;
    else
        sw_arena_free(&found.arena);
    return rc;
}

const char *sw_load_text(char text[SW_LOAD_TEXT_BYTES], const sw_load_finding *f)
{
    char more[40] = "";

    if (f->n_subjects > 1)
        (void)snprintf(more, sizeof more, " (and %lld more)", (long long)f->n_subjects - 1);
    (void)snprintf(text, SW_LOAD_TEXT_BYTES, "%s: %s: %s%s: %s; %s; %s", f->rule->engines,
                   sw_load_effect_name(f->rule->effect), f->subject, more, f->detail,
                   f->rule->consequence, f->rule->remedy);
    return text;
}

bool sw_loaders_json(cJSON *object, const sw_load_findings *findings)
{
    cJSON *list = cJSON_AddArrayToObject(object, "loaders");

    for (int64_t i = 0; list && i < findings->n; i++) {
        const sw_load_finding *f = &findings->at[i];
        cJSON *row = cJSON_CreateObject();
        if (!row || !cJSON_AddItemToArray(list, row) ||
            !cJSON_AddStringToObject(row, "rule", f->rule->id) ||
            !cJSON_AddStringToObject(row, "engines", f->rule->engines) ||
            !cJSON_AddStringToObject(row, "effect", sw_load_effect_name(f->rule->effect)) ||
            !cJSON_AddStringToObject(row, "subject", f->subject) ||
            !cJSON_AddNumberToObject(row, "subjects", (double)f->n_subjects) ||
            !cJSON_AddStringToObject(row, "detail", f->detail) ||
            !cJSON_AddStringToObject(row, "consequence", f->rule->consequence) ||
            !cJSON_AddStringToObject(row, "remedy", f->rule->remedy))
            return false;
    }
    return list != NULL;
}

void sw_loaders_free(sw_load_findings *findings)
{
    sw_arena_free(&findings->arena);
    memset(findings, 0, sizeof *findings);
}
