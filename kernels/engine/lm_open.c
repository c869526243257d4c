/* lm_open.c - see lm_open.h. */
#include "kernels/engine/lm_open.h"

#include <math.h>
#include <stdio.h>

#include "formats/base/mem.h"
#include "formats/base/parallel.h"
#include "formats/checkpoint/kv_stored.h"

#define LINE_BYTES 64 /* tiles start on a cache line, as vector loads like it */

typedef struct open_job {
    const sw_checkpoint *ckpt;
    const sw_lm_options *options;
    sw_block *blocks;
    sw_err *errs; /* [n_layers] */
} open_job;

static sw_code take_lines(void **out, sw_arena *arena, int64_t size_bytes, sw_err *err)
{
    void *taken;
    sw_code rc = sw_arena_take(&taken, arena, size_bytes + LINE_BYTES, 1, err);

    if (rc == SW_OK)
        *out = (void *)(((uintptr_t)taken + LINE_BYTES - 1) & ~(uintptr_t)(LINE_BYTES - 1));
    return rc;
}

static sw_code pack_tiles(sw_tiles *out, sw_arena *arena, const sw_qtensor *q, sw_err *err)
{
    void *codes, *scales, *zeros = NULL;
    int64_t scales_bytes = sw_tiles_scales_bytes(q->spec.scale_dtype, q->n_out, q->n_groups);
    int64_t zeros_bytes = sw_tiles_zeros_bytes(q->n_out, q->n_groups);
    sw_code rc;

    rc = take_lines(&codes, arena, sw_tiles_stored_bytes(q->spec.num, q->n_out, q->k_in), err);
    if (rc != SW_OK) return rc;
    if ((rc = take_lines(&scales, arena, scales_bytes, err)) != SW_OK) return rc;
    if (q->zeros && (rc = take_lines(&zeros, arena, zeros_bytes, err)) != SW_OK) return rc;
    if ((rc = sw_tiles_pack_stored(codes, scales, zeros, q, err)) != SW_OK) return rc;
    *out = (sw_tiles){.spec = q->spec, .n_out = q->n_out, .k_in = q->k_in,
                      .n_groups = q->n_groups,
                      .container_bits = sw_tiles_stored_bits(q->spec.num), .codes = codes,
                      .scales = scales, .zeros = zeros, .global_scale = q->global_scale,
                      .input_scale = q->input_scale};
    return SW_OK;
}

static sw_code take_floats(sw_weight *out, sw_arena *arena, const sw_qtensor *q, sw_err *err)
{
    void *dense;
    sw_code rc = take_lines(&dense, arena, q->n_out * q->k_in * (int64_t)sizeof(float), err);

    if (rc != SW_OK) return rc;
    sw_qtensor_decode(dense, q);
    out->dense = dense;
    out->dense_dtype = SW_DTYPE_F32;
    return SW_OK;
}

static sw_code repack(sw_weight *out, sw_arena *arena, const open_job *job, const char *path,
                      sw_err *err)
{
    sw_tiles *tiles = NULL;
    sw_qtensor q;
    sw_code rc = sw_checkpoint_qtensor(&q, job->ckpt, path, out->n_out, out->k_in, err);

    if (rc != SW_OK) return rc;
    if (job->options->dequantize) {
        rc = take_floats(out, arena, &q, err);
    } else if ((rc = SW_ARENA_TAKE(&tiles, arena, 1, err)) == SW_OK &&
               (rc = pack_tiles(tiles, arena, &q, err)) == SW_OK) {
        out->tiles = tiles;
    }
    if (rc == SW_OK) {
        out->act = q.spec.act;
        out->input_scale = q.input_scale;
    } else {
        sw_err_prefix(err, "%s: %s", job->ckpt->dir, path);
    }
    sw_qtensor_free(&q);
    return rc;
}

static sw_code get_linear(void *self, sw_weight *out, sw_arena *arena, const char *path,
                          int64_t n_out, int64_t k_in, sw_err *err)
{
    const open_job *job = self;
    sw_tiles *tiles = NULL;
    sw_code rc;

    if (!sw_checkpoint_is_quantized(job->ckpt, path)) return SW_OK;
    if (job->options->dequantize ||
        !(sw_checkpoint_has_tiles(job->ckpt) ||
          (job->options->keeps_marlin && sw_checkpoint_has_marlin(job->ckpt))))
        return repack(out, arena, job, path, err);
    if ((rc = SW_ARENA_TAKE(&tiles, arena, 1, err)) != SW_OK) return rc;
    rc = sw_checkpoint_tiles(tiles, job->ckpt, path, n_out, k_in, err);
    if (rc != SW_OK) return rc;
    out->tiles = tiles;
    out->act = tiles->spec.act;
    out->input_scale = tiles->input_scale;
    return SW_OK;
}

/* A scale of one element beside the attention's linears; 0 where there is none. */
static sw_code read_scale(float *out, const sw_checkpoint *ckpt, const char *path,
                          const char *suffix, sw_err *err)
{
    char name[256 + 16];
    const sw_st_tensor *t;
    sw_st_bytes bytes = {0};
    sw_code rc;

    *out = 0.0f;
    (void)snprintf(name, sizeof name, "%s.%s", path, suffix);
    if ((t = sw_st_find(ckpt->st, name)) == NULL) return SW_OK;
    if (sw_view_elems(&t->view) != 1)
        return SW_FAIL(err, SW_E_FORMAT, "%s: %s has %lld elements, and one is expected", ckpt->dir,
                       name, (long long)sw_view_elems(&t->view));
    if ((rc = sw_st_fetch(&bytes, t, err)) != SW_OK) return rc;
    rc = sw_float_decode_n(out, bytes.data, t->view.dtype, 1, err);
    sw_st_drop(&bytes);
    if (rc == SW_OK && !(isfinite(*out) && *out > 0))
        rc = SW_FAIL(err, SW_E_FORMAT, "%s: %s is %g; it must be above zero", ckpt->dir, name,
                     (double)*out);
    return rc;
}

/* A scale for codes of `num`: what is stored covers the same range with codes of its own. */
static sw_code settle_scale(float *scale, const sw_num *num, const sw_checkpoint *ckpt,
                            int64_t layer, sw_err *err)
{
    const sw_num *stored = sw_kv_stored_num(ckpt);

    if (*scale > 0) {
        if (stored != num) *scale *= stored->top / num->top;
        return SW_OK;
    }
    *scale = 1.0f;
    if (num->values || !sw_model_has_attention(&ckpt->model, layer)) return SW_OK;
    return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: layer %lld has no k_scale and v_scale, without "
                   "which int8 says nothing of keys and values; quantize it with --kv-cache int8 "
                   "or run it with --kv-cache fp8", ckpt->dir, (long long)layer);
}

static sw_code read_kv_form(sw_kv_form *out, const sw_checkpoint *ckpt, int64_t layer,
                            sw_kv_kind kind, sw_err *err)
{
    const sw_num *num = sw_kv_num(kind);
    sw_kv_form form = {kind, 0, 0};
    char path[256];
    sw_code rc = SW_OK;

    if (sw_model_attention_path(path, &ckpt->model, layer) &&
        (rc = read_scale(&form.k_scale, ckpt, path, "k_scale", err)) == SW_OK)
        rc = read_scale(&form.v_scale, ckpt, path, "v_scale", err);
    if (rc == SW_OK) rc = settle_scale(&form.k_scale, num, ckpt, layer, err);
    if (rc == SW_OK) rc = settle_scale(&form.v_scale, num, ckpt, layer, err);
    if (rc == SW_OK) *out = form;
    return rc;
}

static void load_layers(void *ctx, int64_t begin, int64_t end, int thread)
{
    open_job *job = ctx;
    const sw_linear_source source = {job, get_linear};

    (void)thread;
    for (int64_t l = begin; l < end; l++) /* the code stays in errs */
        (void)!sw_block_load_from(&job->blocks[l], &job->ckpt->model, job->ckpt->st, &source, l,
                                  &job->errs[l]);
}

sw_code sw_lm_open(sw_lm *out, const sw_checkpoint *ckpt, const sw_lm_options *options, sw_err *err)
{
    const sw_model *m = &ckpt->model;
    open_job job = {.ckpt = ckpt, .options = options};
    const sw_linear_source source = {&job, get_linear};
    sw_lm lm = {0};
    sw_code rc;

    if ((rc = sw_lm_load_ends(&lm, m, ckpt->st, &source, err)) != SW_OK) return rc;
    if ((rc = SW_ARENA_TAKE(&lm.blocks, &lm.arena, m->n_layers, err)) != SW_OK) goto done;
    if ((rc = SW_MEM_GET(&job.errs, m->n_layers, "load errors", err)) != SW_OK) goto done;
    job.blocks = lm.blocks;
    sw_parallel_for(options->n_threads, m->n_layers, 1, load_layers, &job);
    for (int64_t l = 0; l < m->n_layers && rc == SW_OK; l++)
        if (job.errs[l].code != SW_OK)
            rc = SW_FAIL(err, job.errs[l].code, "%s", job.errs[l].text);
    for (int64_t l = 0; l < m->n_layers && rc == SW_OK && options->kv_kind; l++)
        rc = read_kv_form(&lm.blocks[l].kv, ckpt, l, options->kv_kind, err);
    if (rc == SW_OK) *out = lm;
done:
    sw_mem_put(job.errs);
    if (rc != SW_OK) sw_lm_free(&lm);
    return rc;
}

static sw_code get_decoded(void *self, sw_weight *out, sw_arena *arena, const char *path,
                           int64_t n_out, int64_t k_in, sw_err *err)
{
    const sw_checkpoint *ckpt = self;
    sw_qtensor q;
    sw_code rc;

    if (!sw_checkpoint_is_quantized(ckpt, path)) return SW_OK;
    if ((rc = sw_checkpoint_qtensor(&q, ckpt, path, n_out, k_in, err)) != SW_OK) return rc;
    rc = take_floats(out, arena, &q, err);
    sw_qtensor_free(&q);
    return rc;
}

sw_linear_source sw_decoding_source(sw_checkpoint *ckpt)
{
    sw_linear_source source = {ckpt, get_decoded};

    return source;
}
