/* cuda_engine.c - the engine's scratch on the device, linears, rope tables. See device_engine.h. */
#include <string.h>

#include "formats/base/size.h"
#include "kernels/cuda/engine/cuda_engine_internal.h"
#include "kernels/cuda/gemm/column_tiles.h"
#include "kernels/cuda/ops/mixers/mixers.h"
#include "kernels/device_sizes.h"

#define ROW_ALIGN SW_DEVICE_ROW_ALIGN

static sw_code take_buffer(sw_bf16_rows *out, sw_device_engine *e, int64_t width, sw_err *err)
{
    sw_bf16 *d = NULL;
    sw_code rc;

    if (width % ROW_ALIGN)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "rows of %lld elements; on the device they are "
                       "multiples of %d; use --device cpu", (long long)width, ROW_ALIGN);
    if ((rc = SW_STORE_TAKE(&d, &e->store, e->max_tokens * width, "activations", err)) != SW_OK)
        return rc;
    *out = (sw_bf16_rows){d, width};
    return SW_OK;
}

static sw_code take_group(sw_device_engine *e, int g, sw_err *err)
{
    const sw_buf whole = sw_column_groups[g].whole;
    int64_t width = 0;
    sw_bf16_rows all = {0};
    sw_code rc;

    for (int i = 0; i < sw_column_groups[g].n_parts; i++) {
        const int64_t part = e->width[sw_column_groups[g].parts[i]];

        if (part % ROW_ALIGN)
            return SW_FAIL(err, SW_E_UNSUPPORTED, "%lld columns; on the device they are multiples "
                           "of %d; use --device cpu", (long long)part, ROW_ALIGN);
        width += part;
    }
    if (!width) return SW_OK;
    if ((rc = take_buffer(&all, e, width, err)) != SW_OK) return rc;
    if (sw_column_group_is_apart(e->m, whole))
        rc = take_buffer(&e->buf[whole], e, e->width[whole], err);
    else
        e->buf[whole] = all;
    for (int i = 0; i < sw_column_groups[g].n_parts; i++) {
        e->buf[sw_column_groups[g].parts[i]] = all;
        all.d += e->width[sw_column_groups[g].parts[i]];
    }
    return rc;
}

static sw_code take_buffers(sw_device_engine *e, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int b = 0; b < SW_BUF_COUNT; b++) e->width[b] = sw_model_buf_width(e->m, (sw_buf)b);
    e->width[SW_BUF_N] = e->m->hidden; /* also where linears read the residual stream itself */
    for (int g = 0; g < SW_COLUMN_GROUPS && rc == SW_OK; g++) rc = take_group(e, g, err);
    for (int b = 0; b < SW_BUF_COUNT && rc == SW_OK; b++)
        if (b != SW_BUF_X && e->width[b] && !sw_buf_is_in_group(b))
            rc = take_buffer(&e->buf[b], e, sw_device_row_stride(b, e->width[b]), err);
    return rc;
}

/* The parts of a group lie behind each other as its layer has them, so that one product writes all
 * of them. */
void sw_device_block_measure(sw_device_block *b)
{
    const sw_device_engine *e = b->e;

    b->sizes = sw_model_sizes(e->m, b->layer);
    for (int i = 0; i < SW_BUF_COUNT; i++) {
        b->width[i] = sw_model_layer_buf_width(e->m, b->layer, (sw_buf)i);
        b->buf[i] = e->buf[i];
    }
    b->width[SW_BUF_N] = e->m->hidden;
    for (int g = 0; g < SW_COLUMN_GROUPS; g++) {
        sw_bf16_rows at = e->buf[sw_column_groups[g].parts[0]];

        for (int i = 0; i < sw_column_groups[g].n_parts; i++) {
            b->buf[sw_column_groups[g].parts[i]] = at;
            if (at.d) at.d += b->width[sw_column_groups[g].parts[i]];
        }
    }
}

/* Pairs that turn by a rope. */
static int64_t pairs_of(const sw_device_engine *e, const sw_rope *rope)
{
    return (rope->dim ? rope->dim : e->m->rope_dim) / 2;
}

static sw_code take_angles(sw_device_angles *angles, sw_device_engine *e, const sw_rope *rope,
                           sw_err *err)
{
    const int64_t n = e->max_positions * pairs_of(e, rope);
    sw_code rc = SW_STORE_TAKE(&angles->d_cos, &e->store, n, "rotary angles", err);

    return rc == SW_OK ? SW_STORE_TAKE(&angles->d_sin, &e->store, n, "rotary angles", err) : rc;
}

static sw_code take_counters(sw_device_engine *e, sw_err *err)
{
    const int64_t size_bytes = SW_MIXER_COUNTERS * (int64_t)sizeof *e->d_mixer_counters;
    sw_code rc;

    if (e->m->mixer.kind == SW_MIXER_NONE) return SW_OK;
    rc = SW_STORE_TAKE(&e->d_mixer_counters, &e->store, SW_MIXER_COUNTERS, "counters", err);
    return rc == SW_OK ? sw_device_fill(e->gpu, e->d_mixer_counters, 0, size_bytes, err) : rc;
}

/* Heads and rows of every layer fit the kernels. */
static sw_code check_sizes(const sw_model *m, sw_err *err)
{
    for (int64_t l = 0; l < m->n_layers; l++) {
        const sw_sizes s = sw_model_sizes(m, l);

        if (s.head_dim > SW_HEAD_DIM_MAX || s.v_head_dim > SW_HEAD_DIM_MAX ||
            s.head_dim % ROW_ALIGN || s.v_head_dim % ROW_ALIGN)
            return SW_FAIL(err, SW_E_UNSUPPORTED, "layer %lld: heads of %lld and %lld; on the "
                           "device they are multiples of %d up to %d; use --device cpu",
                           (long long)l, (long long)s.head_dim, (long long)s.v_head_dim, ROW_ALIGN,
                           SW_HEAD_DIM_MAX);
        if (s.intermediate % ROW_ALIGN)
            return SW_FAIL(err, SW_E_UNSUPPORTED, "layer %lld: rows of %lld elements; on the "
                           "device they are multiples of %d; use --device cpu", (long long)l,
                           (long long)s.intermediate, ROW_ALIGN);
    }
    return SW_OK;
}

/* What lies beside the residual stream, and the slopes. */
static sw_code take_beside(sw_device_engine *e, sw_err *err)
{
    const sw_model *m = e->m;
    float *slopes = NULL;
    void *d = NULL;
    sw_code rc = SW_OK;

    if (sw_model_side_width(m))
        rc = SW_STORE_TAKE(&e->d_side, &e->store, e->max_tokens * sw_model_side_width(m),
                           "side rows", err);
    if (rc != SW_OK || !m->has_alibi) return rc;
    if ((rc = SW_MEM_GET(&slopes, m->n_heads, "slopes", err)) != SW_OK) return rc;
    sw_slopes_fill(slopes, m->n_heads);
    rc = sw_device_store_copy(&d, &e->store, slopes, m->n_heads * (int64_t)sizeof *slopes, "slopes",
                              err);
    sw_mem_put(slopes);
    e->d_slopes = d;
    return rc;
}

static sw_code fill(sw_device_engine *e, sw_err *err)
{
    const sw_model *m = e->m;
    sw_code rc = sw_device_supports(m, err);

    if (rc != SW_OK || (rc = check_sizes(m, err)) != SW_OK) return rc;
    if ((rc = sw_cuda_device_query(&e->device, sw_device_about(e->gpu)->index, err)) != SW_OK ||
        (rc = sw_cublaslt_open(&e->lt, e->gpu, err)) != SW_OK ||
        (rc = take_buffers(e, err)) != SW_OK || (rc = take_counters(e, err)) != SW_OK ||
        (rc = take_beside(e, err)) != SW_OK)
        return rc;
    if (m->rope_dim && (rc = take_angles(&e->angles, e, &m->rope, err)) != SW_OK) return rc;
    if (m->has_window_rope &&
        (rc = take_angles(&e->window_angles, e, &m->window_rope, err)) != SW_OK)
        return rc;
    if ((rc = sw_device_hyper_new(e, err)) || (rc = sw_device_far_new(e, err)) ||
        (rc = sw_device_choice_new(e, err)))
        return rc;
    return m->n_experts ? sw_device_moe_new(e, err) : SW_OK;
}

sw_code sw_device_engine_new(sw_device_engine **out, sw_device *gpu, const sw_model *m,
                             int64_t max_tokens, int64_t max_seq, sw_err *err)
{
    sw_device_engine *e = NULL;
    sw_code rc;

    if (max_tokens < 1 || max_tokens > INT32_MAX || max_seq < 1 || max_seq > INT32_MAX)
        return SW_FAIL(err, SW_E_BUG, "engine for %lld tokens, %lld positions",
                       (long long)max_tokens, (long long)max_seq);
    if ((rc = sw_device_use(gpu, err)) != SW_OK || /* of several */
        (rc = SW_MEM_GET(&e, 1, "engine", err)) != SW_OK)
        return rc;
    e->gpu = gpu;
    e->m = m;
    e->store.gpu = gpu;
    e->max_tokens = max_tokens;
    e->max_positions = m->n_position_rows ? sw_min_i64(max_seq, m->max_positions) : max_seq;
    e->how = (sw_launch){sw_device_stream(gpu), sw_device_about(gpu)->arch >= 90};
    if ((rc = fill(e, err)) == SW_OK)
        *out = e;
    else
        sw_device_engine_free(e);
    return rc;
}

void sw_device_engine_free(sw_device_engine *e)
{
    sw_err ignored = {0};

    if (!e) return;
    (void)!sw_device_use(e->gpu, &ignored);
    sw_cublaslt_close(e->lt);
    sw_device_put(e->gpu, e->d_gemm_work);
    sw_device_store_free(&e->store);
    sw_angles_free(&e->angles.host);
    sw_angles_free(&e->window_angles.host);
    sw_moe_scratch_free(&e->moe.host);
    sw_mem_put(e->moe.counts);
    sw_mem_put(e);
}

float *sw_device_engine_side(sw_device_engine *e) { return e->d_side; }

/* ---- rope tables ---- */

static sw_code copy_rows(float *d_to, const float *from, sw_device_engine *e, int64_t half,
                         int64_t begin, int64_t end, sw_err *err)
{
    return sw_device_upload(e->gpu, d_to + begin * half, from + begin * half,
                            (end - begin) * half * (int64_t)sizeof *from, err);
}

static sw_code fill_angles(sw_device_angles *angles, sw_device_engine *e, const sw_rope *rope,
                           int64_t first, int64_t end, sw_err *err)
{
    const bool is_stretched = sw_rope_depends_on(e->m, rope, end);
    const int64_t begin = is_stretched ? first : angles->n_copied, half = pairs_of(e, rope);
    sw_code rc;

    if (!is_stretched && end <= angles->n_copied) return SW_OK;
    if ((rc = sw_angles_fill(&angles->host, e->m, rope, is_stretched ? first : begin, end, err)) !=
            SW_OK ||
        (rc = copy_rows(angles->d_cos, angles->host.cos, e, half, begin, end, err)) != SW_OK ||
        (rc = copy_rows(angles->d_sin, angles->host.sin, e, half, begin, end, err)) != SW_OK)
        return rc;
    angles->n_copied = is_stretched ? 0 : end;
    return SW_OK;
}

sw_code sw_device_angles_fill(sw_device_engine *e, int64_t first, int64_t end, sw_err *err)
{
    const sw_model *m = e->m;
    sw_code rc = SW_OK;

    if (end > e->max_positions)
        return SW_FAIL(err, SW_E_USAGE, "position %lld; there are %lld", (long long)end - 1,
                       (long long)e->max_positions);
    if (m->rope_dim) rc = fill_angles(&e->angles, e, &m->rope, first, end, err);
    if (rc == SW_OK && m->has_window_rope)
        rc = fill_angles(&e->window_angles, e, &m->window_rope, first, end, err);
    return rc;
}

/* ---- linears ---- */

sw_code sw_device_grow_work(sw_device_engine *e, int64_t size_bytes, sw_err *err)
{
    void *d = NULL;
    sw_code rc;

    if (size_bytes <= e->gemm_work_bytes) return SW_OK;
    if ((rc = sw_device_take(&d, e->gpu, size_bytes, 1, "kernel workspace", err)) != SW_OK)
        return rc;
    sw_device_put(e->gpu, e->d_gemm_work);
    e->d_gemm_work = d;
    e->gemm_work_bytes = size_bytes;
    e->work_generation++;
    return SW_OK;
}

sw_dense_args sw_device_dense_args(const sw_device_engine *e, sw_bf16_rows x, int64_t n,
                                   const sw_device_weight *w)
{
    return (sw_dense_args){.w = w->d_dense, .rows = x, .bias = w->d_bias, .n = n,
                           .n_out = w->n_out, .k_in = w->k_in, .n_sms = e->device.n_sms,
                           .sm = e->device.sm};
}

static sw_code run_dense(sw_device_engine *e, void *d_y, int64_t y_stride, bool y_is_f32,
                         sw_bf16_rows x, int64_t n, const sw_device_weight *w, sw_err *err)
{
    sw_cublaslt_gemm p = {.m = n,
                          .n_out = w->n_out,
                          .k_in = w->k_in,
                          .d_x = x.d,
                          .d_w = w->d_dense,
                          .d_y = d_y,
                          .x_stride = x.stride,
                          .y_stride = y_stride,
                          .y_is_f32 = y_is_f32};
    sw_code rc;

    if (w->act.scope != SW_ACT_NONE) {
        sw_bf16_rows rounded = {NULL, w->k_in};

        rc = sw_device_grow_work(e, n * w->k_in * (int64_t)sizeof(sw_bf16), err);
        if (rc != SW_OK) return rc;
        rounded.d = e->d_gemm_work;
        rc = sw_cuda_act_round(rounded, x, n, w->k_in, &w->act, w->input_scale, e->how, err);
        if (rc != SW_OK) return rc;
        p.d_x = rounded.d;
        p.x_stride = rounded.stride;
    }
    return sw_cublaslt_run(e->lt, &p, err);
}

/* Of tiles that only grouped products read as they are: decoded for this one. */
static sw_code run_decoded(sw_device_engine *e, void *d_y, int64_t y_stride, sw_bf16_rows x,
                           int64_t n, const sw_device_weight *w, sw_err *err)
{
    sw_device_weight decoded = {.n_out = w->n_out, .k_in = w->k_in};
    sw_code rc = sw_device_grow_work(e, w->n_out * w->k_in * (int64_t)sizeof(sw_bf16), err);

    decoded.d_dense = e->d_gemm_work;
    if (rc == SW_OK) rc = sw_cuda_tiles_decode(decoded.d_dense, &w->tiles, e->how, err);
    return rc == SW_OK ? run_dense(e, d_y, y_stride, false, x, n, &decoded, err) : rc;
}

/* The plan of a product, and a workspace for it, `ahead` bytes of something else before that. */
static sw_code plan_tiles(sw_cuda_plan *plan, sw_device_engine *e, const sw_cuda_gemm *p,
                          int64_t ahead, sw_err *err)
{
    const sw_code rc = sw_cuda_gemm_plan(plan, p, &e->device, NULL, err);

    if (rc != SW_OK) return rc;
    return sw_device_grow_work(e, ahead + (int64_t)sw_cuda_gemm_workspace_bytes(p, plan), err);
}

static sw_cuda_gemm product_of(const sw_device_engine *e, void *d_y, int64_t y_stride,
                               sw_bf16_rows x, int64_t n, const sw_device_weight *w)
{
    return (sw_cuda_gemm){.m = n, .d_x = x.d, .x_stride = x.stride, .d_y = d_y,
                          .y_stride = y_stride, .dtype = SW_DTYPE_BF16, .tiles = w->tiles,
                          .act = w->act, .may_overlap = e->how.overlaps};
}

/* Of codes in the order that only grouped products read: put back for this one. */
static sw_code run_undone(sw_device_engine *e, const sw_cuda_gemm *in_columns, sw_err *err)
{
    const sw_tiles *t = &in_columns->tiles;
    const int64_t codes_bytes = sw_tiles_codes_bytes(t->spec.num, t->n_out, t->k_in); /* pages */
    sw_cuda_gemm p = *in_columns;
    sw_cuda_plan plan;
    sw_code rc;

    p.tiles.in_columns = false;
    if ((rc = plan_tiles(&plan, e, &p, codes_bytes, err)) != SW_OK) return rc;
    p.tiles.codes = e->d_gemm_work;
    p.may_overlap = false; /* its codes are made by the kernel ahead */
    rc = sw_column_tiles_undo(e->d_gemm_work, t, e->how.stream, err);
    if (rc != SW_OK) return rc;
    return sw_cuda_gemm_run(&p, &plan, (uint8_t *)e->d_gemm_work + codes_bytes, e->how.stream, err);
}

static sw_code run_tiles(sw_device_engine *e, void *d_y, int64_t y_stride, sw_bf16_rows x,
                         int64_t n, const sw_device_weight *w, sw_err *err)
{
    const sw_cuda_gemm p = product_of(e, d_y, y_stride, x, n, w);
    sw_cuda_plan plan;
    sw_code rc;

    if (w->tiles.spec.num == &sw_nums[SW_NUM_E2M1])
        return run_decoded(e, d_y, y_stride, x, n, w, err);
    if (sw_column_tiles_are_experts(&w->tiles)) return run_undone(e, &p, err);
    rc = plan_tiles(&plan, e, &p, 0, err);
    return rc == SW_OK ? sw_cuda_gemm_run(&p, &plan, e->d_gemm_work, e->how.stream, err) : rc;
}

static sw_code add_bias(sw_device_engine *e, void *d_y, int64_t y_stride, bool y_is_f32, int64_t n,
                        const sw_device_weight *w, sw_err *err)
{
    if (!w->d_bias) return SW_OK;
    return sw_cuda_bias(d_y, y_stride, y_is_f32, w->d_bias, n, w->n_out, e->how, err);
}

/* ---- linears whose inputs come as codes ---- */

#define CODED_GATES_MIN 32 /* tokens */

/* A gate's codes are made by one CTA a token, which for a few takes longer than many CTAs and a
 * kernel that quantizes: 8 tokens lose by it, 64 gain. */
bool sw_device_takes_codes(const sw_device_run *run, sw_slot slot)
{
    const sw_device_weight *w = &run->block->linear[slot];
    const sw_num *num = w->tiles.codes ? w->tiles.spec.num : NULL;

    return num && num != &sw_nums[SW_NUM_E2M1] && sw_cuda_made_can(w->k_in, &w->act) &&
           (slot != SW_SLOT_DOWN || run->n_tokens >= CODED_GATES_MIN);
}

/* As sw_cuda_gemm_run divides a workspace: codes, and behind them what the kernel needs. */
sw_code sw_device_codes_for(sw_made_codes *out, sw_device_engine *e, int64_t n,
                            const sw_device_weight *w, sw_err *err)
{
    const sw_cuda_gemm p = product_of(e, NULL, 0, (sw_bf16_rows){0}, n, w);
    sw_cuda_plan plan;
    const sw_code rc = plan_tiles(&plan, e, &p, 0, err);

    if (rc != SW_OK) return rc;
    *out = (sw_made_codes){.to = sw_cuda_codes_at(e->d_gemm_work, n, w->k_in, &w->act),
                           .act = w->act, .input_scale = w->tiles.input_scale,
                           .starts_next = plan.starts_early};
    return SW_OK;
}

/* A product of what lies there. */
static sw_code run_codes(sw_device_engine *e, sw_cuda_gemm *p, sw_err *err)
{
    const int64_t k_in = p->tiles.k_in;
    char *d_behind = (char *)e->d_gemm_work + sw_cuda_codes_bytes(p->m, k_in, &p->act);
    sw_cuda_plan plan;
    const sw_code rc = sw_cuda_gemm_plan(&plan, p, &e->device, NULL, err);

    p->x_codes = sw_cuda_codes_at(e->d_gemm_work, p->m, k_in, &p->act);
    return rc == SW_OK ? sw_cuda_gemm_run(p, &plan, d_behind, e->how.stream, err) : rc;
}

sw_code sw_device_coded_linear(sw_device_engine *e, sw_bf16_rows y, int64_t n,
                               const sw_device_weight *w, sw_err *err)
{
    sw_cuda_gemm p = product_of(e, y.d, y.stride, (sw_bf16_rows){0}, n, w);
    const sw_code rc = run_codes(e, &p, err);

    return rc == SW_OK ? add_bias(e, y.d, y.stride, false, n, w, err) : rc;
}

/* ---- gates and ups ---- */

static sw_cuda_gemm gated_product_of(const sw_device_run *run, sw_bf16_rows y, sw_bf16_rows x,
                                     const sw_device_weight *w)
{
    sw_cuda_gemm p = product_of(run->e, y.d, y.stride, x, run->n_tokens, w);

    p.glu = (sw_cuda_glu){true, (int)run->e->m->act, (float)run->e->m->act_limit};
    return p;
}

bool sw_device_takes_glu(const sw_device_run *run, sw_slot slot)
{
    const sw_device_weight *w = &run->block->linear[slot];
    sw_cuda_plan plan;
    sw_cuda_gemm p;
    sw_err ignored = {0};

    if (!w->tiles.codes || w->d_bias || w->tiles.spec.num == &sw_nums[SW_NUM_E2M1]) return false;
    p = gated_product_of(run, (sw_bf16_rows){0}, (sw_bf16_rows){0}, w);
    return sw_cuda_gemm_plan(&plan, &p, &run->e->device, NULL, &ignored) == SW_OK &&
           sw_cuda_gemm_takes_glu(&p, &plan);
}

sw_code sw_device_gated_linear(const sw_device_run *run, sw_bf16_rows y, sw_bf16_rows x,
                               bool has_codes, const sw_device_weight *w, sw_err *err)
{
    sw_cuda_gemm p = gated_product_of(run, y, x, w);
    sw_cuda_plan plan;
    sw_code rc;

    if (has_codes) return run_codes(run->e, &p, err);
    rc = plan_tiles(&plan, run->e, &p, 0, err);
    return rc == SW_OK ? sw_cuda_gemm_run(&p, &plan, run->e->d_gemm_work, run->e->how.stream, err)
                       : rc;
}

/* ---- linears ---- */

sw_code sw_device_linear(sw_device_engine *e, void *d_y, int64_t y_stride, bool y_is_f32,
                         sw_bf16_rows x, int64_t n, const sw_device_weight *w, sw_err *err)
{
    sw_code rc;

    if (n == 0) return SW_OK;
    if (!w->n_out) return SW_FAIL(err, SW_E_BUG, "a linear that was not loaded");
    if (w->tiles.codes && y_is_f32)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "a quantized router; use --device cpu");
    rc = w->tiles.codes ? run_tiles(e, d_y, y_stride, x, n, w, err)
                        : run_dense(e, d_y, y_stride, y_is_f32, x, n, w, err);
    return rc == SW_OK ? add_bias(e, d_y, y_stride, y_is_f32, n, w, err) : rc;
}
