/* w8a8_cublaslt.cu - FP8 of very many tokens by cuBLASLt: a row of the table of kernels. Its
 * weights are brought from tiles into rows first, each time, which pays where the product takes
 * long.
 */
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/gemm/column_tiles.cuh"
#include "kernels/cuda/gemm/cublaslt/cublaslt_fp8.h"
#include "kernels/cuda/gemm/quantized_input/w8a8_rows.h"
#include "kernels/cuda/ptx/ptx.cuh"

#define MANY_TOKENS 8192 /* measured: from here on the rows are paid for */
#define THREADS 256      /* 16 bytes of a tile each */
#define PER_CTA 8        /* tiles of a CTA, side by side along k: what it has in flight */

extern "C" const sw_cuda_tile sw_cublaslt_rows_tiles[] = {{"rows", 256, 128, 1, 1, false}};
extern "C" const int sw_cublaslt_rows_n_tiles = 1;

struct to_rows_args {
    const uint4 *codes;    /* [n_tiles, k_tiles] tiles */
    const uint8_t *scales; /* [n_tiles, 64] of scale_bytes, in the order of slots */
    uint4 *rows;           /* [n_out, stride] */
    float *row_scales;     /* [n_out] */
    int n_out, k_tiles, stride; /* stride: bytes, whole stages of 128 inputs */
    int scale_bytes;
    bool scales_are_bf16;
};

/* A lane of a tile has channels g and g + 8 at its inputs of two k-steps (tiles.h), a row has the
 * inputs of all four lanes, in the order in which X has them (cuda_gemm.h).
 * grid (tiles along k / PER_CTA rounded up, n_tiles), THREADS. */
static __global__ void __launch_bounds__(THREADS) swk_tiles_to_rows(const to_rows_args a)
{
    int t = (int)threadIdx.x, c = t % 4, half = t / 128, channel = t % 128 / 32 * 16 + t % 32 / 4;
    int n = (int)blockIdx.y * 64 + channel + c % 2 * 8, first = (int)blockIdx.x * PER_CTA;
    uint4 v[PER_CTA];

    sw_grid_wait_previous();
#pragma unroll
    for (int i = 0; i < PER_CTA; i++) {
        v[i] = make_uint4(0, 0, 0, 0);
        if (first + i < a.k_tiles)
            v[i] = __ldcs(a.codes + ((int64_t)blockIdx.y * a.k_tiles + first + i) * THREADS + t);
    }
#pragma unroll
    for (int i = 0; i < PER_CTA; i++) {
        uint4 row = sw_exchange4(v[i]);
        int at = (first + i) * 64 + (half * 2 + c / 2) * 16;

        if (n < a.n_out && at < a.stride) a.rows[((int64_t)n * a.stride + at) / 16] = row;
    }
    if (blockIdx.x > 0 || t >= 64) return;
    n = (int)blockIdx.y * 64 + t;
    if (n < a.n_out) {
        int64_t slot = (int64_t)blockIdx.y * 64 + 2 * (8 * (t / 16) + t % 8) + t % 16 / 8;

        if (a.scale_bytes == 4) a.row_scales[n] = ((const float *)a.scales)[slot];
        else if (a.scales_are_bf16)
            a.row_scales[n] = __uint_as_float((uint32_t)((const uint16_t *)a.scales)[slot] << 16);
        else a.row_scales[n] = __half2float(((const __half *)a.scales)[slot]);
    }
}

static bool is_whole(int64_t n) { return n % SW_CUBLASLT_FP8_ALIGN == 0; }

extern "C" bool sw_cublaslt_rows_can_run(const sw_cuda_gemm *p, int tile)
{
    (void)tile;
    return sw_w8a8_kind_of(p) == W8A8_E4M3 && !sw_w8a8_is_grouped(p) && !p->tiles.in_columns &&
           is_whole(p->m) && is_whole(p->tiles.n_out) && is_whole(p->y_stride * 2) &&
           is_whole((int64_t)(uintptr_t)p->d_y);
}

extern "C" bool sw_cublaslt_rows_suits(const sw_cuda_gemm *p, const sw_cuda_device *device,
                                       sw_cuda_counted *counted)
{
    (void)device;
    (void)counted;
    return p->m >= MANY_TOKENS;
}

extern "C" void sw_cublaslt_rows_plan(sw_cuda_plan *out, const sw_cuda_gemm *p,
                                      const sw_cuda_device *device, sw_cuda_counted *counted)
{
    (void)p;
    (void)counted;
    *out = {0, 0, 1, *device, false};
}

static size_t rows_bytes(const sw_cuda_gemm *p)
{
    return sw_cuda_line_up(p->tiles.n_out * sw_cuda_codes_stride(p->tiles.k_in));
}

static size_t scales_bytes(const sw_cuda_gemm *p)
{
    return sw_cuda_line_up(p->tiles.n_out * (int64_t)sizeof(float));
}

extern "C" size_t sw_cublaslt_rows_workspace_bytes(const sw_cuda_gemm *p, const sw_cuda_plan *plan)
{
    (void)plan;
    return rows_bytes(p) + scales_bytes(p) + SW_CUBLASLT_FP8_WORK_BYTES;
}

static sw_cublaslt_fp8 product_of(const sw_cuda_gemm *p, void *d_workspace)
{
    uint8_t *d_rows = (uint8_t *)d_workspace, *d_scales = d_rows + rows_bytes(p);
    sw_cublaslt_fp8 q = {};

    q.m = p->m;
    q.n_out = p->tiles.n_out;
    q.k_in = sw_cuda_codes_stride(p->tiles.k_in); /* what is beyond is zeros in both */
    q.d_x = p->x_codes.d_codes;
    q.d_w = d_rows;
    q.d_x_scales = p->x_codes.d_scales;
    q.d_w_scales = (const float *)d_scales;
    q.d_y = p->d_y;
    q.d_work = d_scales + scales_bytes(p);
    q.y_stride = p->y_stride;
    q.dtype = p->dtype;
    return q;
}

static sw_code to_rows(const sw_cuda_gemm *p, const sw_cublaslt_fp8 *q, void *stream, sw_err *err)
{
    const w8a8_args from = sw_w8a8_args_of(p, 1);
    to_rows_args a = {(const uint4 *)from.codes, from.scales, (uint4 *)(uintptr_t)q->d_w,
                      (float *)(uintptr_t)q->d_w_scales, from.n_out, from.k_tiles, (int)q->k_in,
                      from.scale_bytes, from.scales_are_bf16};
    dim3 grid((unsigned)sw_cuda_up(q->k_in / 64, PER_CTA), (unsigned)from.n_tiles);

    swk_tiles_to_rows<<<grid, THREADS, 0, (cudaStream_t)stream>>>(a);
    return sw_cuda_check(cudaGetLastError(), "swk_tiles_to_rows", err);
}

/* Without the library, or with one that has no such product, as if it were not in the table. */
static sw_code run_without(const sw_cuda_gemm *p, const sw_cuda_plan *plan, void *d_workspace,
                           void *stream, sw_err *err)
{
    sw_cuda_counted counted = {};
    sw_cuda_plan other;

    sw_w8a8_persistent_plan(&other, p, &plan->device, &counted);
    other.overlap = false;
    return sw_w8a8_persistent_run(p, &other, d_workspace, stream, err);
}

extern "C" sw_code sw_cublaslt_rows_run(const sw_cuda_gemm *p, const sw_cuda_plan *plan,
                                        void *d_workspace, void *stream, sw_err *err)
{
    sw_cublaslt_fp8 q = product_of(p, d_workspace);
    sw_cublaslt_fp8_plan *how = NULL;
    sw_err ignored = {};
    sw_code rc = sw_cublaslt_fp8_plan_new(&how, &q, &ignored);

    if (rc == SW_E_NOMEM) return SW_FAIL(err, rc, "%s", ignored.text);
    if (rc != SW_OK) return run_without(p, plan, d_workspace, stream, err);
    rc = to_rows(p, &q, stream, err);
    if (rc == SW_OK) rc = sw_cublaslt_fp8_run(how, stream, err);
    sw_cublaslt_fp8_plan_free(how);
    return rc;
}
