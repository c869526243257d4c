/* gap.c - see perplexity.h: the kernel gap. */
#include "verify/metrics/perplexity.h"

#include <math.h>
#include <string.h>

#include "formats/base/size.h"

/* Kernels and dequantized weights differ by the rounding of float sums, which measures 3e-7; a
 * single group that the two decoders read differently moves the logits by more than this. */
#define GAP_MAX 1e-3
/* Where inputs are rounded, a float sum next to the middle of two codes falls to either side. With
 * r = rms / step of the inputs, a difference of d (relative) tips about 2 d r of them by a step
 * each: sqrt(2 d r) / r of their norm. From 3e-7 at r = 32 (int8) that is 1.4e-4 at one site,
 * 2.9e-3 at the next, and so on, towards two roundings that know nothing of each other and no
 * further: sqrt(2) times their noise, sqrt(2 / 12) / r = 1.3e-2 for int8, 2.6e-2 for e4m3, whose
 * step is an eighth of a value at most (twice that for a bit of mantissa less). Toy models with
 * random weights measure up to 1.5e-2. */
#define GAP_MAX_ROUNDED 3e-2
/* Four bits: r is about 3 in e2m1 by groups, so sqrt(2 / 12) / r = 0.14; NVFP4 measures 0.06. */
#define GAP_MAX_ROUNDED_4 0.15
/* A token near the border of two experts goes to another one: toys measure 6.8e-2 in e4m3. */
#define GAP_EXPERTS_MORE 3.0
/* The inputs of a quantized head are rounded once more, with nothing behind to even it out. */
#define GAP_HEAD_MORE 1.5

/* One block with floats in place of its quantized linears; everything else is borrowed. */
typedef struct float_block {
    sw_block block;
    sw_weight *experts; /* [3 * n_experts] or NULL */
    float **values;     /* [n_linears] owned floats, NULL where nothing was replaced */
    sw_linear_ref *refs;
    int64_t n_linears;
} float_block;

static void float_block_free(float_block *f)
{
    for (int64_t i = 0; f->values && i < f->n_linears; i++) sw_mem_put(f->values[i]);
    sw_mem_put(f->values);
    sw_mem_put(f->experts);
    sw_mem_put(f->refs);
    memset(f, 0, sizeof *f);
}

/* Copies of the expert rows, since they will point elsewhere. */
static sw_code copy_experts(float_block *f, const sw_model *m, const sw_block *from, sw_err *err)
{
    sw_code rc;

    if (!from->experts[2]) return SW_OK;
    rc = SW_MEM_GET(&f->experts, 3 * m->n_experts, "experts", err);
    for (int i = 0; rc == SW_OK && i < 3; i++) {
        if (!from->experts[i]) continue;
        f->block.experts[i] = f->experts + i * m->n_experts;
        memcpy(f->block.experts[i], from->experts[i],
               (size_t)m->n_experts * sizeof *f->experts);
    }
    return rc;
}

static sw_code replace_linear(float_block *f, int64_t i, const sw_subject *checkpoint, sw_err *err)
{
    const sw_linear_ref *ref = &f->refs[i];
    sw_weight *weight = sw_block_weight(&f->block, ref->slot, ref->expert);
    sw_spec_weight w = {0};
    char path[256];
    sw_code rc;

    if (!sw_model_slot_path(path, &checkpoint->model, ref->layer, ref->slot, ref->expert) ||
        !sw_spec_is_quantized(&checkpoint->scheme, checkpoint->st, path))
        return SW_OK;
    rc = sw_spec_decode(&w, &checkpoint->scheme, checkpoint->st, path, ref->n_out, ref->k_in, err);
    if (rc != SW_OK) return rc;
    f->values[i] = w.values;
    w.values = NULL;
    sw_spec_weight_free(&w);
    weight->tiles = NULL;
    weight->dense = f->values[i];
    weight->dense_dtype = SW_DTYPE_F32;
    return SW_OK;
}

static sw_code float_block_new(float_block *f, const sw_block *from, const sw_subject *checkpoint,
                               sw_err *err)
{
    const sw_model *m = &checkpoint->model;
    sw_code rc;

    f->block = *from;
    f->n_linears = sw_model_linears(m, from->layer, NULL, 0);
    if ((rc = SW_MEM_GET(&f->refs, f->n_linears, "linears", err)) != SW_OK ||
        (rc = SW_MEM_GET(&f->values, f->n_linears, "decoded block", err)) != SW_OK ||
        (rc = copy_experts(f, m, from, err)) != SW_OK)
        return rc;
    (void)sw_model_linears(m, from->layer, f->refs, f->n_linears);
    for (int64_t i = 0; rc == SW_OK && i < f->n_linears; i++)
        rc = replace_linear(f, i, checkpoint, err);
    return rc;
}

/* Both streams through all blocks, one decoded block at a time. */
static sw_code run_both(sw_runner *kernels, sw_runner *floats, const sw_subject *checkpoint,
                        const uint32_t *ids, int64_t n_seqs, int64_t length, sw_err *err)
{
    sw_code rc = sw_runner_blocks(kernels, ids, n_seqs, length, err);

    if (rc != SW_OK) return rc;
    rc = sw_engine_embed(floats->engine, floats->lm, floats->x, ids, n_seqs, length, 0, err);
    for (int64_t l = 0; rc == SW_OK && l < checkpoint->model.n_layers; l++) {
        float_block f = {.n_linears = 0};

        rc = float_block_new(&f, &floats->lm->blocks[l], checkpoint, err);
        if (rc == SW_OK)
            rc = sw_engine_block(floats->engine, &f.block, floats->x, n_seqs, length, NULL, NULL,
                                 SW_RUN_ALL, err);
        float_block_free(&f);
    }
    return rc;
}

typedef struct gap_sums {
    sw_vec_sums logits;
    double nll_kernel, nll_floats, kl;
    int64_t n_positions;
} gap_sums;

static sw_code add_logits(gap_sums *sums, sw_runner *kernels, sw_runner *floats,
                          const uint32_t *ids, int64_t n_rows, int64_t length, sw_err *err)
{
    int64_t vocab = kernels->lm->model->vocab, hidden = kernels->lm->model->hidden;
    int64_t head_rows = sw_runner_head_rows(vocab);
    float *have = NULL, *want = NULL;
    double *scratch = NULL;
    sw_code rc;

    if ((rc = SW_MEM_GET(&have, head_rows * vocab, "logits", err)) != SW_OK ||
        (rc = SW_MEM_GET(&want, head_rows * vocab, "logits", err)) != SW_OK ||
        (rc = SW_MEM_GET(&scratch, vocab, "softmax", err)) != SW_OK)
        goto done;
    for (int64_t row0 = 0; row0 < n_rows; row0 += head_rows) {
        int64_t n = sw_min_i64(head_rows, n_rows - row0);

        if ((rc = sw_engine_head(kernels->engine, kernels->lm, have, kernels->x + row0 * hidden, n,
                                 err)) != SW_OK ||
            (rc = sw_engine_head(floats->engine, floats->lm, want, floats->x + row0 * hidden, n,
                                 err)) != SW_OK)
            goto done;
        sw_vec_add(&sums->logits, have, want, n * vocab);
        for (int64_t i = 0; i < n; i++) {
            sw_position p;

            if ((row0 + i) % length == length - 1) continue;
            sw_position_compare(&p, want + i * vocab, have + i * vocab, vocab, ids[row0 + i + 1],
                                scratch);
            sums->nll_kernel += p.nll_have;
            sums->nll_floats += p.nll_ref;
            sums->kl += p.kl;
            sums->n_positions++;
        }
    }
done:
    sw_mem_put(have);
    sw_mem_put(want);
    sw_mem_put(scratch);
    return rc;
}

/* The head in floats, where it is quantized; `values` are the caller's to free. */
static sw_code decode_head(sw_lm *lm, float **values, const sw_subject *checkpoint, sw_err *err)
{
    const char *path = sw_model_end(lm->model, SW_END_HEAD);
    sw_spec_weight w = {0};
    sw_code rc;

    if (!lm->head.tiles) return SW_OK;
    rc = sw_spec_decode(&w, &checkpoint->scheme, checkpoint->st, path, lm->head.n_out,
                        lm->head.k_in, err);
    if (rc != SW_OK) return rc;
    *values = w.values;
    w.values = NULL;
    sw_spec_weight_free(&w);
    lm->head.tiles = NULL;
    lm->head.dense = *values;
    lm->head.dense_dtype = SW_DTYPE_F32;
    return SW_OK;
}

sw_code sw_kernel_gap(sw_report_gap *out, const sw_lm *kernels, const sw_subject *checkpoint,
                      const sw_windows *windows, int64_t n_windows, int n_threads, sw_err *err)
{
    int64_t batch = sw_windows_batch(windows);
    sw_runner have = {0}, want = {0};
    gap_sums sums = {.n_positions = 0};
    sw_lm floats = *kernels;
    float *head = NULL;
    uint32_t *ids = NULL;
    sw_code rc;

    n_windows = sw_min_i64(n_windows, windows->n);
    if ((rc = decode_head(&floats, &head, checkpoint, err)) != SW_OK ||
        (rc = SW_MEM_GET(&ids, batch * windows->length, "windows", err)) != SW_OK ||
        (rc = sw_runner_new(&have, kernels, windows, n_threads, err)) != SW_OK ||
        (rc = sw_runner_new(&want, &floats, windows, n_threads, err)) != SW_OK)
        goto done;
    for (int64_t at = 0; at < n_windows; at += batch) {
        int64_t n = sw_min_i64(batch, n_windows - at);

        sw_windows_copy(ids, windows, at, n);
        if ((rc = run_both(&have, &want, checkpoint, ids, n, windows->length, err)) != SW_OK ||
            (rc = add_logits(&sums, &have, &want, ids, n * windows->length, windows->length,
                             err)) != SW_OK)
            goto done;
    }
    out->is_measured = sums.n_positions > 0;
    out->n_windows = n_windows;
    out->nll_kernel = sums.nll_kernel / (double)sums.n_positions;
    out->nll_dequantized = sums.nll_floats / (double)sums.n_positions;
    out->kl = sums.kl / (double)sums.n_positions;
    out->logits_err = sw_vec_rel_err(&sums.logits);
done:
    sw_runner_free(&have);
    sw_runner_free(&want);
    sw_mem_put(head);
    sw_mem_put(ids);
    return rc;
}

static double gap_limit_of(const sw_act *act)
{
    if (act->scope == SW_ACT_NONE) return GAP_MAX;
    if (act->num->bits == 4) return GAP_MAX_ROUNDED_4;
    if (act->num->kind != SW_NUM_FLOAT) return GAP_MAX_ROUNDED;
    return ldexp(GAP_MAX_ROUNDED, 3 - act->num->mantissa_bits);
}

double sw_kernel_gap_limit(const sw_checkpoint *served, const sw_lm *kernels)
{
    const sw_qconfig *config = &served->qconfig;
    double most = config->has_no_default ? GAP_MAX : gap_limit_of(&config->spec.act);

    for (int64_t i = 0; i < config->n_rules; i++)
        most = fmax(most, gap_limit_of(&config->rules[i].spec.act));
    if (most > GAP_MAX && served->model.n_experts) most *= GAP_EXPERTS_MORE;
    return kernels->head.act.scope == SW_ACT_NONE ? most : GAP_HEAD_MORE * most;
}
