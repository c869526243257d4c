/* convert_plan.c - see convert_job.h: what becomes of each linear. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/dialect/conversions.h"
#include "formats/gguf/gguf_model.h"
#include "tools/cli/family.h"
#include "tools/convert/convert_job.h"

#define CANDIDATES_MAX 64

/* --- what the source has --- */

/* What blocks of a GGUF that no other format holds come nearest to. */
static sw_qspec spec_like(sw_block_type type)
{
    static const struct { sw_num_id num; bool is_symmetric; } rows[SW_BLOCK_TYPE_COUNT] = {
        [SW_BLOCK_Q4_0] = {SW_NUM_INT4, true}, [SW_BLOCK_Q4_1] = {SW_NUM_INT4, false},
        [SW_BLOCK_Q5_0] = {SW_NUM_INT8, true}, [SW_BLOCK_Q5_1] = {SW_NUM_INT8, false},
        [SW_BLOCK_Q8_0] = {SW_NUM_INT8, true}, [SW_BLOCK_Q2_K] = {SW_NUM_INT2, false},
        [SW_BLOCK_Q3_K] = {SW_NUM_INT3, true}, [SW_BLOCK_Q4_K] = {SW_NUM_INT4, false},
        [SW_BLOCK_Q5_K] = {SW_NUM_INT8, false}, [SW_BLOCK_Q6_K] = {SW_NUM_INT8, true},
        [SW_BLOCK_IQ4_NL] = {SW_NUM_INT4, true}, [SW_BLOCK_IQ4_XS] = {SW_NUM_INT4, true},
        [SW_BLOCK_MXFP4] = {SW_NUM_INT4, true}, [SW_BLOCK_NVFP4] = {SW_NUM_INT4, true},
        [SW_BLOCK_IQ1_S] = {SW_NUM_INT2, true}, [SW_BLOCK_IQ1_M] = {SW_NUM_INT2, true},
        [SW_BLOCK_IQ2_XXS] = {SW_NUM_INT3, true}, [SW_BLOCK_IQ2_XS] = {SW_NUM_INT3, true},
        [SW_BLOCK_IQ2_S] = {SW_NUM_INT3, true}, [SW_BLOCK_IQ3_XXS] = {SW_NUM_INT4, true},
        [SW_BLOCK_IQ3_S] = {SW_NUM_INT4, true}, [SW_BLOCK_TQ1_0] = {SW_NUM_INT2, true},
        [SW_BLOCK_TQ2_0] = {SW_NUM_INT2, true},
    };

    return (sw_qspec){.num = &sw_nums[rows[type].num], .is_symmetric = rows[type].is_symmetric,
                      .group_elems = 32, .scale_dtype = SW_DTYPE_F16};
}

/* A linear that a GGUF has in blocks which are read as floats. */
static bool is_in_blocks(sw_block_type *type, const sw_convert_job *job, const char *path)
{
    char name[300];
    const sw_st_tensor *t;

    if (!job->source.is_file || job->options.target->is_dense) return false;
    (void)snprintf(name, sizeof name, "%s.weight", path);
    t = sw_st_find(job->source.st, name);
    return t && sw_gguf_decoded_type(type, t);
}

static sw_code add_linear(sw_convert_job *job, const sw_linear_ref *ref, sw_err *err)
{
    sw_convert_linear *l = &job->linears[job->n_linears];
    sw_block_type type = SW_BLOCK_F32;
    char path[256], *kept;
    bool has_codes;
    sw_code rc;

    if (!sw_model_slot_path(path, &job->source.model, ref->layer, ref->slot, ref->expert))
        return SW_OK;
    has_codes = sw_checkpoint_is_quantized(&job->source, path);
    if (!has_codes && (ref->slot == SW_SLOT_HEAD || !is_in_blocks(&type, job, path)))
        return SW_OK; /* a head in blocks becomes one in floats, as the embedding does */
    if ((rc = sw_arena_text(&kept, &job->arena, path, strlen(path), err)) != SW_OK) return rc;
    *l = (sw_convert_linear){.ref = *ref, .path = kept};
    if (!has_codes) {
        l->blocks = sw_block_sizes[type].name;
        l->from = spec_like(type);
        job->n_linears++;
        return SW_OK;
    }
    rc = sw_checkpoint_stored_spec(&l->from, &job->source, path, ref->n_out, ref->k_in, err);
    if (rc != SW_OK) {
        sw_err_prefix(err, "%s: %s", job->source.dir, path);
        return rc;
    }
    l->from.input_dtype = 0; /* what is made of it is written in full */
    l->from.has_byte_codes = false;
    job->n_linears++;
    return SW_OK;
}

/* As the model has them, which is the order of the output (formats/checkpoint/writer). */
static sw_code find_linears(sw_convert_job *job, sw_err *err)
{
    const sw_model *m = &job->source.model;
    sw_linear_ref *refs = NULL;
    int64_t n_all = 0, most = 0, n;
    sw_code rc;

    for (int64_t layer = 0; layer <= m->n_layers; layer++) {
        n = sw_model_linears(m, layer, NULL, 0);
        n_all += n;
        most = n > most ? n : most;
    }
    if ((rc = SW_ARENA_TAKE(&job->linears, &job->arena, n_all, err)) != SW_OK ||
        (rc = SW_MEM_GET(&refs, most, "linears of a layer", err)) != SW_OK)
        return rc;
    for (int64_t layer = 0; layer <= m->n_layers && rc == SW_OK; layer++) {
        n = sw_model_linears(m, layer, refs, most);
        for (int64_t i = 0; i < n && rc == SW_OK; i++) rc = add_linear(job, &refs[i], err);
    }
    sw_mem_put(refs);
    return rc;
}

/* --- what the target takes --- */

/* Whether the values of the weight let it be one of `spec`: reads all of it. */
static sw_code survey(const sw_convert_job *job, const sw_convert_linear *l, const sw_qspec *spec,
                      sw_err *err)
{
    sw_qtensor q = {0};
    sw_code rc = sw_checkpoint_qtensor(&q, &job->source, l->path, l->ref.n_out, l->ref.k_in, err);

    if (rc == SW_OK) rc = sw_conversion_check(&q, job->options.target, spec, err);
    sw_qtensor_free(&q);
    sw_st_forget(job->source.st);
    return rc;
}

static sw_code try_exact(sw_convert_job *job, sw_convert_linear *l, sw_err *err)
{
    const sw_dialect *target = job->options.target;
    sw_qspec from = l->from;
    bool is_conditional = false;
    sw_err first = {0}; /* what is against the first way says most */
    int at = 0;

    if (job->options.weights_only) memset(&from.act, 0, sizeof from.act);
    for (;;) {
        sw_err why = {0};
        sw_code rc = sw_conversion_next(&l->to, &is_conditional, &at, &from, target, l->ref.n_out,
                                        l->ref.k_in, &why);

        if (rc == SW_OK && is_conditional) rc = survey(job, l, &l->to, &why);
        else if (rc == SW_E_UNSUPPORTED && first.code != SW_OK) break;
        if (rc == SW_OK) return SW_OK;
        if (first.code == SW_OK || rc != SW_E_UNSUPPORTED) first = why;
        if (rc != SW_E_UNSUPPORTED || at == 0) break;
    }
    return SW_FAIL(err, first.code, "%s", first.text);
}

static int candidates(sw_qspec out[CANDIDATES_MAX], const sw_scheme *only)
{
    int n = 0;

    if (only) {
        out[0] = sw_scheme_spec(only);
        return 1;
    }
    for (int i = 0; i < sw_n_schemes && n < CANDIDATES_MAX; i++)
        out[n++] = sw_scheme_spec(&sw_schemes[i]);
    return n;
}

static sw_code try_nearest(sw_convert_job *job, sw_convert_linear *l, sw_err *err)
{
    sw_qspec specs[CANDIDATES_MAX], from = l->from;
    int n = candidates(specs, job->options.scheme);

    if (job->options.weights_only) memset(&from.act, 0, sizeof from.act);
    l->fate = SW_FATE_REQUANTIZED;
    return sw_conversion_nearest(&l->to, &from, job->options.target, specs, n, l->ref.n_out,
                                 l->ref.k_in, job->source.model.dtype, err);
}

static sw_code refuse(const sw_convert_linear *l, const sw_err *why, sw_err *err)
{
    return SW_FAIL(err, why->code, "%s: %s; or --allow-requantize, which rounds again%s", l->path,
                   why->text,
                   l->blocks ? "; `swage quantize` of this file rounds by calibration, which costs "
                               "less" : "");
}

/* Why blocks are read as floats and no other way. */
static const char *why_floats(const char *blocks)
{
    if (!strcmp(blocks, "NVFP4")) return "in pieces whose factors differ";
    return strcmp(blocks, "Q4_1") ? "whose values do not lie on one scale per group"
                                  : "whose minimum is not a whole number of scales everywhere";
}

static sw_code decide(sw_convert_job *job, sw_convert_linear *l, sw_err *err)
{
    sw_err why = {0};
    char *kept;
    sw_code rc;

    if (job->options.target->is_dense) {
        l->to = l->from;
        l->fate = SW_FATE_DECODED;
        return SW_OK;
    }
    rc = l->blocks ? SW_FAIL(&why, SW_E_UNSUPPORTED, "is in blocks of %s, %s", l->blocks,
                             why_floats(l->blocks))
                   : try_exact(job, l, &why);
    if (rc == SW_OK) return SW_OK;
    if (rc != SW_E_UNSUPPORTED) return SW_FAIL(err, rc, "%s", why.text);
    if (!job->options.may_requantize) return refuse(l, &why, err);
    if ((rc = sw_arena_text(&kept, &job->arena, why.text, strlen(why.text), err)) != SW_OK)
        return rc;
    l->why = kept;
    rc = try_nearest(job, l, err);
    if (rc != SW_OK) sw_err_prefix(err, "%s", l->path);
    return rc;
}

/* Engines load q, k and v (and gate and up) as one: they go together. */
static bool goes_with(const sw_convert_linear *a, const sw_convert_linear *b)
{
    return a->ref.layer == b->ref.layer && a->ref.site == b->ref.site &&
           a->ref.expert == b->ref.expert;
}

/* When one of them has to be rounded again, all of them are, to its scheme. */
static sw_code keep_together(sw_convert_job *job, sw_err *err)
{
    const sw_dialect *target = job->options.target;

    for (int64_t i = 0; i < job->n_linears; i++) {
        const sw_convert_linear *l = &job->linears[i];
        if (l->fate != SW_FATE_REQUANTIZED) continue;
        for (int64_t j = 0; j < job->n_linears; j++) {
            sw_convert_linear *other = &job->linears[j];
            sw_code rc;
            if (other->fate != SW_FATE_EXACT || !goes_with(l, other) ||
                sw_qspec_same(&l->to, &other->to))
                continue;
            rc = target->can_hold(&l->to, other->ref.n_out, other->ref.k_in, err);
            if (rc != SW_OK) {
                sw_err_prefix(err, "%s, which engines load as one with %s", other->path, l->path);
                return rc;
            }
            other->to = l->to;
            other->fate = SW_FATE_REQUANTIZED;
            other->why = "engines load it as one with a linear that is rounded again";
        }
    }
    return SW_OK;
}

static sw_code refuse_plain(const sw_convert_job *job, sw_err *err)
{
    return SW_FAIL(err, SW_E_UNSUPPORTED, "%s is not quantized: `swage quantize --format %s` makes "
                   "it so", job->options.source_dir, job->options.target->name);
}

static sw_code check_request(const sw_convert_job *job, sw_err *err)
{
    const sw_convert_options *o = &job->options;

    if (!job->source.dialect && sw_json_member(job->source.config, "quantization_config"))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s is quantized in an unknown format",
                       o->source_dir);
    if (o->with_sidecar && (o->target->is_dense || o->target->map_tiles))
        return SW_FAIL(err, SW_E_USAGE, "--sidecar: %s, so there are no tiles to write beside",
                       o->target->is_dense ? "plain floats have no codes"
                                           : "the output itself is tiles");
    if (!job->source.dialect && !o->target->is_dense && !job->source.is_file)
        return refuse_plain(job, err);
    return SW_OK;
}

sw_code sw_convert_plan(sw_convert_job *job, const sw_convert_options *options,
                        const sw_progress *progress, sw_err *err)
{
    sw_code rc;

    memset(job, 0, sizeof *job);
    job->options = *options;
    job->progress = progress;
    if ((rc = sw_checkpoint_open_codes(&job->source, options->source_dir, err)) != SW_OK ||
        (rc = check_request(job, err)) != SW_OK)
        return rc;
    if (job->source.model.found)
        sw_progress_note(progress, "model_type %.60s is not known: its linears are told by names "
                         "and shapes, and no logits are checked",
                         sw_family_type(job->source.config));
    for (int64_t i = 0; i < sw_st_count(job->source.st); i++)
        job->source_bytes += sw_gguf_stored_bytes(sw_st_at(job->source.st, i));
    if (!job->source.dialect && !job->source.is_file) return SW_OK;
    if ((rc = find_linears(job, err)) != SW_OK) return rc;
    if (!job->n_linears && !options->target->is_dense) return refuse_plain(job, err);
    for (int64_t i = 0; i < job->n_linears; i++)
        if ((rc = sw_progress_check(progress, err)) != SW_OK ||
            (rc = decide(job, &job->linears[i], err)) != SW_OK)
            return rc;
    if ((rc = keep_together(job, err)) != SW_OK) return rc;
    for (int64_t i = 0; i < job->n_linears; i++) job->n_of[job->linears[i].fate]++;
    return SW_OK;
}
