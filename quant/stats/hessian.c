/* hessian.c - see hessian.h. */
#include "quant/stats/hessian.h"

#include <cblas.h>
#include <string.h>

#include "formats/base/hot.h"
#include "formats/base/parallel.h"
#include "formats/base/size.h"

#define STRIP_ROWS 128

sw_code sw_hessian_new(sw_hessian *out, int64_t k_in, bool with_cross, int64_t n_out_residual,
                       int n_threads, sw_err *err)
{
    sw_hessian hess = {.k_in = k_in, .n_out_residual = n_out_residual, .n_threads = n_threads};
    sw_code rc;

    if ((rc = SW_MEM_GET(&hess.h, k_in * k_in, "Hessian", err)) != SW_OK) goto done;
    if (with_cross && (rc = SW_MEM_GET(&hess.d, k_in * k_in, "cross term", err)) != SW_OK)
        goto done;
    if (n_out_residual &&
        (rc = SW_MEM_GET(&hess.r, n_out_residual * k_in, "residual term", err)) != SW_OK)
        goto done;
    *out = hess;
    return SW_OK;
done:
    sw_hessian_free(&hess);
    return rc;
}

sw_code sw_hessian_new_device(sw_hessian *out, sw_solver *solver, int64_t k_in, bool with_cross,
                              int64_t n_out_residual, sw_err *err)
{
    sw_hessian hess = {.k_in = k_in, .n_out_residual = n_out_residual, .n_threads = 1,
                       .solver = solver};
    sw_code rc = sw_gram_new(&hess.on_h, solver, k_in, k_in, true, err);

    if (rc == SW_OK && with_cross) rc = sw_gram_new(&hess.on_d, solver, k_in, k_in, false, err);
    if (rc == SW_OK && n_out_residual)
        rc = sw_gram_new(&hess.on_r, solver, n_out_residual, k_in, false, err);
    if (rc != SW_OK)
        sw_hessian_free(&hess);
    else
        *out = hess;
    return rc;
}

void sw_hessian_free(sw_hessian *hess)
{
    sw_mem_put(hess->h);
    sw_mem_put(hess->d);
    sw_mem_put(hess->r);
    if (hess->solver) {
        sw_gram_free(&hess->on_h, hess->solver);
        sw_gram_free(&hess->on_d, hess->solver);
        sw_gram_free(&hess->on_r, hess->solver);
    }
    memset(hess, 0, sizeof *hess);
}

/* One product C += A^T B over a chunk of tokens, cut into strips of C's rows. */
typedef struct gram_job {
    double *c;       /* [n_a, n_b] */
    const float *a;  /* [n_tokens, n_a] */
    const float *b;  /* [n_tokens, n_b] */
    int64_t n_a, n_b, n_tokens;
    bool upper_only; /* a == b: columns left of the strip are not needed */
    float *scratch;  /* [n_threads, STRIP_ROWS, n_b] */
} gram_job;

static SW_HOT void add_rows(double *to, int64_t to_stride, const float *from, int64_t n_rows,
                            int64_t width)
{
    for (int64_t i = 0; i < n_rows; i++)
        for (int64_t j = 0; j < width; j++) to[i * to_stride + j] += (double)from[i * width + j];
}

static void gram_strip(void *ctx, int64_t begin, int64_t end, int thread)
{
    const gram_job *job = ctx;
    int64_t from = job->upper_only ? begin : 0, width = job->n_b - from;
    float *part = job->scratch + (int64_t)thread * STRIP_ROWS * job->n_b;

    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)(end - begin), (int)width,
                (int)job->n_tokens, 1.0f, job->a + begin, (int)job->n_a, job->b + from,
                (int)job->n_b, 0.0f, part, (int)width);
    add_rows(job->c + begin * job->n_b + from, job->n_b, part, end - begin, width);
}

static sw_code gram_add(gram_job job, int n_threads, sw_err *err)
{
    sw_code rc = SW_MEM_GET(&job.scratch, (int64_t)n_threads * STRIP_ROWS * job.n_b,
                            "Hessian scratch", err);

    if (rc != SW_OK) return rc;
    sw_parallel_for(n_threads, job.n_a, STRIP_ROWS, gram_strip, &job);
    sw_mem_put(job.scratch);
    return SW_OK;
}

static sw_code fail_not_finite(sw_err *err)
{
    return SW_FAIL(err, SW_E_FORMAT, "calibration activations hold a NaN or an infinity; "
                                     "the model's weights are broken");
}

static sw_code check_finite(const float *x, int64_t n, sw_err *err)
{
    for (int64_t i = 0; i < n; i++)
        if (!(x[i] - x[i] == 0.0f)) return fail_not_finite(err);
    return SW_OK;
}

sw_code sw_hessian_add_device(sw_hessian *hess, const uint16_t *d_x, int64_t x_stride,
                              const uint16_t *d_dx, const uint16_t *d_dr, int64_t n_tokens,
                              sw_err *err)
{
    int64_t k = hess->k_in, n_r = hess->n_out_residual;
    sw_solver *s = hess->solver;
    sw_code rc = sw_gram_add(&hess->on_h, s, d_x, x_stride, d_x, x_stride, n_tokens, err);

    if (rc == SW_OK && hess->on_d.d_sum && d_dx)
        rc = sw_gram_add(&hess->on_d, s, d_dx, k, d_x, x_stride, n_tokens, err);
    if (rc == SW_OK && hess->on_r.d_sum && d_dr)
        rc = sw_gram_add(&hess->on_r, s, d_dr, n_r, d_x, x_stride, n_tokens, err);
    if (rc == SW_OK) hess->n_tokens += n_tokens;
    return rc;
}

/* Rows of floats to the card, as BF16; NULL for none. */
static sw_code send_rows(uint16_t **out, const sw_hessian *hess, const float *x, int64_t n,
                         sw_err *err)
{
    sw_device *gpu = sw_solver_gpu(hess->solver);
    float *d_floats = NULL;
    sw_code rc;

    *out = NULL;
    if (!x) return SW_OK;
    rc = sw_device_take((void **)&d_floats, gpu, n, (int64_t)sizeof *d_floats, "activations", err);
    if (rc == SW_OK)
        rc = sw_device_take((void **)out, gpu, n, (int64_t)sizeof **out, "activations", err);
    if (rc == SW_OK) rc = sw_device_upload(gpu, d_floats, x, n * (int64_t)sizeof *x, err);
    if (rc == SW_OK) rc = sw_solver_to_bf16(hess->solver, *out, d_floats, NULL, n, err);
    if (d_floats) sw_device_put(gpu, d_floats);
    return rc;
}

static sw_code add_from_host(sw_hessian *hess, const float *x, const float *dx, const float *dr,
                             int64_t n_tokens, sw_err *err)
{
    sw_device *gpu = sw_solver_gpu(hess->solver);
    uint16_t *d_x = NULL, *d_dx = NULL, *d_dr = NULL;
    sw_code rc = send_rows(&d_x, hess, x, n_tokens * hess->k_in, err);

    if (rc == SW_OK)
        rc = send_rows(&d_dx, hess, hess->on_d.d_sum ? dx : NULL, n_tokens * hess->k_in, err);
    if (rc == SW_OK)
        rc = send_rows(&d_dr, hess, hess->on_r.d_sum ? dr : NULL, n_tokens * hess->n_out_residual,
                       err);
    if (rc == SW_OK)
        rc = sw_hessian_add_device(hess, d_x, hess->k_in, d_dx, d_dr, n_tokens, err);
    sw_device_put(gpu, d_x);
    sw_device_put(gpu, d_dx);
    sw_device_put(gpu, d_dr);
    return rc;
}

sw_code sw_hessian_add(sw_hessian *hess, const float *x, const float *dx, const float *dr,
                       int64_t n_tokens, sw_err *err)
{
    int64_t k = hess->k_in, n_r = hess->n_out_residual;
    sw_code rc;

    if ((rc = check_finite(x, n_tokens * k, err)) != SW_OK) return rc;
    if (hess->solver) return add_from_host(hess, x, dx, dr, n_tokens, err);
    for (int64_t at = 0; at < n_tokens; at += SW_HESSIAN_CHUNK_TOKENS) {
        int64_t n = sw_min_i64(SW_HESSIAN_CHUNK_TOKENS, n_tokens - at);
        gram_job h = {hess->h, x + at * k, x + at * k, k, k, n, true, NULL};
        if ((rc = gram_add(h, hess->n_threads, err)) != SW_OK) return rc;
        if (hess->d && dx) {
            gram_job d = {hess->d, dx + at * k, x + at * k, k, k, n, false, NULL};
            if ((rc = gram_add(d, hess->n_threads, err)) != SW_OK) return rc;
        }
        if (hess->r && dr) {
            gram_job r = {hess->r, dr + at * n_r, x + at * k, n_r, k, n, false, NULL};
            if ((rc = gram_add(r, hess->n_threads, err)) != SW_OK) return rc;
        }
    }
    hess->n_tokens += n_tokens;
    return SW_OK;
}

sw_code sw_hessian_diagonal(double *diagonal, const sw_hessian *hess, sw_err *err)
{
    int64_t k = hess->k_in;

    if (hess->solver)
        return sw_solver_diagonal(diagonal, hess->solver, hess->on_h.d_sum, k, err);
    for (int64_t j = 0; j < k; j++) diagonal[j] = hess->h[j * k + j];
    return SW_OK;
}

sw_code sw_hessian_move(sw_hessian *hess, sw_solver *solver, sw_err *err)
{
    int64_t k = hess->k_in;
    sw_hessian there = {0};
    sw_code rc = sw_hessian_new_device(&there, solver, k, false, 0, err);

    if (rc == SW_OK)
        rc = sw_device_upload(sw_solver_gpu(solver), there.on_h.d_sum, hess->h,
                              k * k * (int64_t)sizeof *hess->h, err);
    there.n_tokens = there.on_h.n_tokens = hess->n_tokens;
    if (rc != SW_OK) {
        sw_hessian_free(&there);
        return rc;
    }
    sw_hessian_free(hess);
    *hess = there;
    return SW_OK;
}

sw_code sw_hessian_fetch(sw_hessian *hess, sw_err *err)
{
    int64_t k = hess->k_in;
    sw_hessian here = {0};
    sw_code rc = sw_hessian_new(&here, k, false, 0, hess->n_threads, err);

    if (rc == SW_OK)
        rc = sw_device_download(sw_solver_gpu(hess->solver), here.h, hess->on_h.d_sum,
                                k * k * (int64_t)sizeof *here.h, err);
    here.n_tokens = hess->n_tokens;
    if (rc != SW_OK) {
        sw_hessian_free(&here);
        return rc;
    }
    sw_hessian_free(hess);
    *hess = here;
    return SW_OK;
}

static sw_code scaled_there(sw_hessian *out, const sw_hessian *hess, const double *scale,
                            sw_err *err)
{
    int64_t k = hess->k_in, n_bytes = k * k * (int64_t)sizeof(double);
    sw_device *gpu = sw_solver_gpu(hess->solver);
    sw_hessian h = {0};
    double *d_scale = NULL;
    sw_code rc = sw_hessian_new_device(&h, hess->solver, k, false, 0, err);

    if (rc == SW_OK && !scale)
        rc = sw_solver_copy(hess->solver, h.on_h.d_sum, hess->on_h.d_sum, n_bytes, err);
    if (rc == SW_OK && scale)
        rc = sw_device_take((void **)&d_scale, gpu, k, (int64_t)sizeof *d_scale, "scale", err);
    if (rc == SW_OK && scale)
        rc = sw_device_upload(gpu, d_scale, scale, k * (int64_t)sizeof *scale, err);
    if (rc == SW_OK && scale)
        rc = sw_solver_scale_gram(hess->solver, h.on_h.d_sum, hess->on_h.d_sum, d_scale, k, err);
    sw_device_put(gpu, d_scale);
    h.n_tokens = h.on_h.n_tokens = hess->n_tokens;
    if (rc == SW_OK) *out = h;
    else sw_hessian_free(&h);
    return rc;
}

sw_code sw_hessian_scaled(sw_hessian *out, const sw_hessian *hess, const double *scale,
                          sw_err *err)
{
    int64_t k = hess->k_in;
    sw_code rc;

    if (hess->solver) return scaled_there(out, hess, scale, err);
    if ((rc = sw_hessian_new(out, k, false, 0, hess->n_threads, err)) != SW_OK) return rc;
    out->n_tokens = hess->n_tokens;
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < k; j++)
            out->h[i * k + j] = hess->h[i * k + j] / (scale ? scale[i] * scale[j] : 1.0);
    return SW_OK;
}

/* An input that is not finite shows in its own square. */
static sw_code check_diagonal(const sw_hessian *hess, sw_err *err)
{
    int64_t k = hess->k_in;
    double *diagonal = NULL;
    sw_code rc = SW_MEM_GET(&diagonal, k, "diagonal", err);

    if (rc == SW_OK) rc = sw_hessian_diagonal(diagonal, hess, err);
    for (int64_t j = 0; j < k && rc == SW_OK; j++)
        if (!(diagonal[j] - diagonal[j] == 0.0)) rc = fail_not_finite(err);
    sw_mem_put(diagonal);
    return rc;
}

sw_code sw_hessian_settle(sw_hessian *hess, sw_err *err)
{
    sw_gram *grams[] = {&hess->on_h, &hess->on_d, &hess->on_r};
    sw_code rc = SW_OK;

    if (!hess->solver) {
        sw_hessian_finish(hess);
        return SW_OK;
    }
    for (int i = 0; i < 3 && rc == SW_OK; i++)
        if (grams[i]->d_sum) rc = sw_gram_finish(grams[i], hess->solver, err);
    return rc == SW_OK ? check_diagonal(hess, err) : rc;
}

void sw_hessian_finish(sw_hessian *hess)
{
    int64_t k = hess->k_in;

    for (int64_t i = 0; i < k; i++)
        for (int64_t j = i + 1; j < k; j++) hess->h[j * k + i] = hess->h[i * k + j];
}

static void add_all(double *into, const double *from, int64_t n)
{
    for (int64_t i = 0; into && from && i < n; i++) into[i] += from[i];
}

static sw_code merge_gram(sw_gram *into, const sw_gram *from, sw_solver *solver, sw_err *err)
{
    return into->d_sum && from->d_sum ? sw_gram_merge(into, from, solver, err) : SW_OK;
}

sw_code sw_hessian_merge_inputs(sw_hessian *into, const sw_hessian *from, sw_err *err)
{
    into->n_tokens += from->n_tokens;
    if (into->solver) return merge_gram(&into->on_h, &from->on_h, into->solver, err);
    add_all(into->h, from->h, into->k_in * into->k_in);
    return SW_OK;
}

sw_code sw_hessian_merge_cross(sw_hessian *into, const sw_hessian *from, sw_err *err)
{
    sw_code rc;

    if (into->solver) {
        rc = merge_gram(&into->on_d, &from->on_d, into->solver, err);
        return rc == SW_OK ? merge_gram(&into->on_r, &from->on_r, into->solver, err) : rc;
    }
    add_all(into->d, from->d, into->k_in * into->k_in);
    add_all(into->r, from->r, into->n_out_residual * into->k_in);
    return SW_OK;
}
