/* cuda_linears.c - products of linears by themselves, for timing. See device_engine.h. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/size.h"
#include "formats/num/half.h"
#include "kernels/cuda/engine/cuda_engine_internal.h"
#include "kernels/cuda/runtime/cuda_check.h"

#define PRODUCTS_MIN 32 /* in a graph: the time of starting one is spread over them */

struct sw_device_linears {
    sw_device_engine *e;
    sw_device_weight *weights; /* [n] */
    int64_t n, m, per_pass;
    sw_bf16 *d_x, *d_y;
    cudaGraphExec_t graph;
    char kernel[64];
    sw_device_store store;
};

void sw_device_linears_free(sw_device_linears *l)
{
    if (!l) return;
    if (l->graph) (void)cudaGraphExecDestroy(l->graph);
    sw_device_store_free(&l->store);
    sw_mem_put(l->weights);
    sw_mem_put(l);
}

static sw_code enqueue(sw_device_linears *l, int64_t n_products, sw_err *err)
{
    const sw_bf16_rows x = {l->d_x, l->weights[0].k_in};
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < n_products && rc == SW_OK; i++)
        rc = sw_device_linear(l->e, l->d_y, l->weights[0].n_out, false, x, l->m,
                              &l->weights[i % l->n], err);
    return rc;
}

static sw_code capture(sw_device_linears *l, sw_err *err)
{
    const cudaStream_t stream = l->e->how.stream;
    cudaGraph_t graph = NULL;
    sw_code rc, ended;

    sw_cublaslt_hold();
    rc = sw_device_check((int)cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                         "graph", err);
    if (rc == SW_OK) {
        rc = enqueue(l, l->per_pass, err);
        ended = sw_device_check((int)cudaStreamEndCapture(stream, &graph), "graph", err);
        if (rc == SW_OK) rc = ended;
    }
    sw_cublaslt_release();
    if (rc == SW_OK)
        rc = sw_device_check((int)cudaGraphInstantiate(&l->graph, graph, 0), "graph", err);
    if (graph) (void)cudaGraphDestroy(graph);
    return rc;
}

static sw_code upload_rows(sw_device_linears *l, const float *x, int64_t n_elems, sw_err *err)
{
    sw_bf16 *rounded = NULL;
    sw_code rc = SW_MEM_GET(&rounded, n_elems, "inputs", err);

    for (int64_t i = 0; i < n_elems && rc == SW_OK; i++) rounded[i] = sw_bf16_encode(x[i]);
    if (rc == SW_OK)
        rc = sw_device_store_copy((void **)&l->d_x, &l->store, rounded,
                                  n_elems * (int64_t)sizeof *rounded, "inputs", err);
    sw_mem_put(rounded);
    return rc;
}

static void name_kernel(sw_device_linears *l, const sw_weight *from)
{
    const sw_device_weight *w = &l->weights[0];
    const sw_cuda_gemm p = {.m = l->m, .x_stride = w->k_in, .y_stride = w->n_out,
                            .dtype = SW_DTYPE_BF16, .tiles = w->tiles, .act = w->act};
    sw_cuda_plan plan;
    sw_err ignored = {0};

    if (w->tiles.codes && sw_cuda_gemm_plan(&plan, &p, &l->e->device, NULL, &ignored) == SW_OK)
        (void)snprintf(l->kernel, sizeof l->kernel, "%s", sw_cuda_kernels[plan.kernel].name);
    else
        (void)snprintf(l->kernel, sizeof l->kernel, "%s",
                       from->tiles ? "decoded, cuBLASLt" : "cuBLASLt");
}

sw_code sw_device_linears_new(sw_device_linears **out, sw_device_engine *e,
                              const sw_weight *const *weights, int64_t n, const float *x,
                              int64_t m, sw_err *err)
{
    const int64_t n_out = weights[0]->n_out, k_in = weights[0]->k_in;
    sw_device_linears *l = NULL;
    sw_code rc = SW_MEM_GET(&l, 1, "linears", err);

    if (rc != SW_OK) return rc;
    *l = (sw_device_linears){.e = e, .n = n, .m = m, .store = {.gpu = e->gpu},
                             .per_pass = n * sw_ceil_div(PRODUCTS_MIN, n)};
    if ((rc = SW_MEM_GET(&l->weights, n, "linears", err)) == SW_OK &&
        (rc = SW_STORE_TAKE(&l->d_y, &l->store, m * n_out, "outputs", err)) == SW_OK)
        rc = upload_rows(l, x, m * k_in, err);
    for (int64_t i = 0; i < n && rc == SW_OK; i++)
        rc = sw_device_weight_load(&l->weights[i], e, &l->store, &weights[i], 1, err);
    if (rc == SW_OK) rc = enqueue(l, l->n, err); /* sizes the workspace, finds cuBLASLt's kernel */
    if (rc == SW_OK) rc = capture(l, err);
    if (rc == SW_OK) rc = sw_device_sync(e->gpu, err);
    if (rc == SW_OK) {
        name_kernel(l, weights[0]);
        *out = l;
    } else {
        sw_device_linears_free(l);
    }
    return rc;
}

int64_t sw_device_linears_per_pass(const sw_device_linears *l) { return l->per_pass; }
const char *sw_device_linears_kernel(const sw_device_linears *l) { return l->kernel; }

sw_code sw_device_linears_run(sw_device_linears *l, int64_t n_passes, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < n_passes && rc == SW_OK; i++)
        rc = sw_device_check((int)cudaGraphLaunch(l->graph, l->e->how.stream), "graph", err);
    return rc == SW_OK ? sw_device_sync(l->e->gpu, err) : rc;
}
