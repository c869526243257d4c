/* ref_gemm.c - the definition of every matrix product: plain C, double accumulation.
 *
 * A weight is decoded element by element from the offsets in formats/pack/tiles.h, times its
 * scale in float, which is exact: at most 11 significand bits of scale and 9 of code minus zero
 * fit the 24 of a float. Sums run over k in ascending order.
 */
#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "formats/num/half.h"
#include "kernels/rows.h"

#define ROWS_PER_CHUNK 8

/* Code of channel n, input k (within their tile), as the header of tiles.h places it. */
static int code_at(const uint8_t *tile, int container_bits, int n, int k)
{
    int w = n / 16, g = n % 8, h = n % 16 / 8, s = k / 16, in_step = k % 16;
    int c = in_step % 8 / 2, i = 2 * (in_step % 2) + in_step / 8;
    int t = 4 * g + c;

    if (container_bits == 4) return tile[512 * w + 16 * t + 4 * s + i] >> (4 * h) & 15;
    return tile[2048 * (s / 2) + 512 * w + 16 * t + 8 * (s % 2) + 4 * h + i];
}

static float scale_at(const sw_tiles *t, int64_t record, int slot)
{
    int64_t at = (record * SW_TILE_N + slot) * sw_dtype_bits(t->spec.scale_dtype) / 8;
    float scale = 0.0f;
    sw_err err = {0};

    /* every dtype that tiles hold can be decoded */
    (void)!sw_float_decode_n(&scale, (const uint8_t *)t->scales + at, t->spec.scale_dtype, 1, &err);
    return scale;
}

static void tiles_row(float *dst, const sw_tiles *t, int64_t n)
{
    int64_t n_tile = n / SW_TILE_N, k_tiles = sw_tiles_k(t->k_in);
    int64_t tile_bytes = sw_tile_bytes(t->container_bits);
    int in_tile = (int)(n % SW_TILE_N), slot = sw_tile_slot(in_tile);
    const float *values = t->spec.num->values;

    for (int64_t k = 0; k < t->k_in; k++) {
        const uint8_t *tile = t->codes + (n_tile * k_tiles + k / SW_TILE_K) * tile_bytes;
        int64_t group = t->spec.group_elems ? k / t->spec.group_elems : 0;
        int64_t record = n_tile * t->n_groups + group;
        int zero = t->zeros ? t->zeros[record * SW_TILE_N + slot] : t->spec.num->sym_zero;
        int code = code_at(tile, t->container_bits, in_tile, (int)(k % SW_TILE_K));

        dst[k] = scale_at(t, record, slot) *
                 (values ? values[code] : (float)(code - zero));
        if (t->spec.has_global) dst[k] *= t->global_scale;
    }
}

static void dense_row(float *dst, const sw_weight *w, int64_t n)
{
    for (int64_t i = n * w->k_in, k = 0; k < w->k_in; i++, k++) {
        if (w->dense_dtype == SW_DTYPE_F32) dst[k] = ((const float *)w->dense)[i];
        else if (w->dense_dtype == SW_DTYPE_BF16)
            dst[k] = sw_bf16_decode(((const uint16_t *)w->dense)[i]);
        else dst[k] = sw_f16_decode(((const uint16_t *)w->dense)[i]);
    }
}

typedef struct ref_job {
    const sw_gemm *p;
    float *rows; /* [n_threads, k_in] */
} ref_job;

static void run_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const ref_job *job = (const ref_job *)ctx;
    const sw_gemm *p = job->p;
    float *row = job->rows + thread * p->w->k_in;

    for (int64_t n = begin; n < end; n++) {
        if (p->w->tiles) tiles_row(row, p->w->tiles, n);
        else dense_row(row, p->w, n);
        for (int64_t m = 0; m < p->m; m++) {
            const float *x = p->x + m * p->x_stride;
            double sum = 0;

            for (int64_t k = 0; k < p->w->k_in; k++) sum += (double)x[k] * (double)row[k];
            p->y[m * p->y_stride + n] = (float)sum;
        }
    }
}

static size_t ref_workspace_bytes(const sw_gemm *p)
{
    return (size_t)sw_kernel_threads(p) * (size_t)p->w->k_in * sizeof(float);
}

static void ref_run(const sw_gemm *p, void *workspace)
{
    ref_job job = {p, (float *)workspace};

    sw_parallel_for(sw_kernel_threads(p), p->w->n_out, ROWS_PER_CHUNK, run_rows, &job);
}

#define REFERENCE(id)                                                                    \
    bool sw_##id##_can_run(const sw_gemm *p) { (void)p; return true; }                   \
    size_t sw_##id##_workspace_bytes(const sw_gemm *p) { return ref_workspace_bytes(p); } \
    void sw_##id##_run(const sw_gemm *p, void *workspace) { ref_run(p, workspace); }

REFERENCE(dense_ref)
REFERENCE(w4a16_ref)
REFERENCE(w8a16_ref)
