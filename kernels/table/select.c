/* select.c - the kernel table, the choice of a row, and the one way to run a product. */
#include <limits.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/parallel.h"
#include "kernels/cpu/round/round.h"
#include "kernels/rows.h"

const sw_kernel sw_kernels[] = {
#define SW_KERNEL(id, op_, isa_, tolerance_)                               \
    {.name = #id, .op = SW_GEMM_##op_, .isa = isa_, .tolerance = tolerance_, \
     .can_run = sw_##id##_can_run, .workspace_bytes = sw_##id##_workspace_bytes, \
     .run = sw_##id##_run},
#include "kernels/kernels.def"
#undef SW_KERNEL
};
const int sw_n_kernels = (int)(sizeof sw_kernels / sizeof *sw_kernels);

const sw_device_kernel sw_device_kernels[] = {
#define SW_CUDA_KERNEL(name_, prefix_, sm_min_, sm_max_, ops_) {name_, ops_, sm_min_, sm_max_},
#include "kernels/cuda_kernels.def"
#undef SW_CUDA_KERNEL
};
const int sw_n_device_kernels = (int)(sizeof sw_device_kernels / sizeof *sw_device_kernels);

/* Activations whose codes meet integer codes of weights: one scale per token or for all. */
static bool is_int8(const sw_act *act)
{
    return (act->scope == SW_ACT_TENSOR || act->scope == SW_ACT_TOKEN) &&
           act->num == &sw_nums[SW_NUM_INT8];
}

sw_gemm_op sw_gemm_op_of(const sw_weight *w)
{
    static const struct {
        sw_num_kind kind;
        int container_bits;
        sw_gemm_op op, int8_op; /* with float, and with int8 activations */
    } rows[] = {
        {SW_NUM_INT, 4, SW_GEMM_W4A16, SW_GEMM_W4A8},
        {SW_NUM_INT, 8, SW_GEMM_W8A16, SW_GEMM_W8A8},
        {SW_NUM_FLOAT, 4, SW_GEMM_FP4A16, SW_GEMM_FP4A16},
        {SW_NUM_FLOAT, 8, SW_GEMM_FP8A16, SW_GEMM_FP8A16},
    };
    const sw_tiles *t = w->tiles;
    const int bits = t && t->container_bits < 4 ? 4 : t ? t->container_bits : 0;

    for (size_t i = 0; t && i < sizeof rows / sizeof *rows; i++)
        if (rows[i].kind == t->spec.num->kind && rows[i].container_bits == bits)
            return is_int8(&w->act) && !t->spec.has_global ? rows[i].int8_op : rows[i].op;
    return SW_GEMM_DENSE;
}

/* Does the operation quantize its own inputs? */
static bool is_integer(sw_gemm_op op) { return op == SW_GEMM_W4A8 || op == SW_GEMM_W8A8; }

const sw_kernel *sw_kernel_find(const char *name)
{
    for (int i = 0; i < sw_n_kernels; i++)
        if (strcmp(sw_kernels[i].name, name) == 0) return &sw_kernels[i];
    return NULL;
}

const sw_kernel *sw_kernel_select(const sw_gemm *p, const char *name)
{
    sw_gemm_op op = sw_gemm_op_of(p->w);
    const sw_kernel *forced = name ? sw_kernel_find(name) : NULL, *found = NULL;

    if (forced && forced->op == op && forced->can_run(p)) return forced;
    for (int i = 0; i < sw_n_kernels && !found; i++)
        if (sw_kernels[i].op == op && sw_kernels[i].can_run(p)) found = &sw_kernels[i];
    return found;
}

typedef struct bias_job {
    const sw_gemm *p;
} bias_job;

static void add_bias(void *ctx, int64_t begin, int64_t end, int thread)
{
    const sw_gemm *p = ((const bias_job *)ctx)->p;

    (void)thread;
    for (int64_t m = begin; m < end; m++) {
        float *y = p->y + m * p->y_stride;

        for (int64_t n = 0; n < p->w->n_out; n++) y[n] += p->w->bias[n];
    }
}

static sw_code scratch_grow(sw_scratch *scratch, size_t size_bytes, sw_err *err)
{
    void *bytes;
    sw_code rc;

    if (scratch->size_bytes >= size_bytes) return SW_OK;
    if (size_bytes > (size_t)INT64_MAX)
        return SW_FAIL(err, SW_E_NOMEM, "kernel workspace of %zu bytes", size_bytes);
    rc = sw_mem_get(&bytes, (int64_t)size_bytes, 1, "kernel workspace", err);
    if (rc != SW_OK) return rc;
    sw_mem_put(scratch->bytes);
    scratch->bytes = bytes;
    scratch->size_bytes = size_bytes;
    return SW_OK;
}

/* Quantized activations, as floats: rounded rows stand behind the kernel's workspace. */
static sw_code run_rounded(const sw_gemm *p, const sw_kernel *kernel, sw_scratch *scratch,
                           sw_err *err)
{
    size_t workspace = (kernel->workspace_bytes(p) + 63) / 64 * 64;
    size_t x_bytes = (size_t)p->m * (size_t)p->w->k_in * sizeof(float);
    sw_gemm rounded = *p;
    float *x;
    sw_code rc = scratch_grow(scratch, workspace + x_bytes, err);

    if (rc != SW_OK) return rc;
    x = (float *)(void *)((char *)scratch->bytes + workspace);
    sw_round_inputs(x, p);
    rounded.x = x;
    rounded.x_stride = p->w->k_in;
    kernel->run(&rounded, scratch->bytes);
    return SW_OK;
}

sw_code sw_gemm_run(const sw_gemm *p, sw_scratch *scratch, sw_err *err)
{
    const sw_kernel *kernel;
    bias_job job = {p};
    sw_code rc;

    if (p->m <= 0 || p->w->n_out <= 0) return SW_OK;
    kernel = sw_kernel_select(p, NULL);
    if (p->w->act.scope != SW_ACT_NONE && !is_integer(kernel->op)) {
        if ((rc = run_rounded(p, kernel, scratch, err)) != SW_OK) return rc;
    } else {
        if ((rc = scratch_grow(scratch, kernel->workspace_bytes(p), err)) != SW_OK) return rc;
        kernel->run(p, scratch->bytes);
    }
    if (p->w->tiles && p->w->tiles->spec.n_outliers) { /* of the inputs as they came */
        rc = scratch_grow(scratch, sw_outliers_workspace_bytes(p), err);
        if (rc != SW_OK) return rc;
        sw_outliers_add(p, scratch->bytes);
    }
    if (p->w->bias) sw_parallel_for(p->n_threads, p->m, 16, add_bias, &job);
    return SW_OK;
}

void sw_scratch_free(sw_scratch *scratch)
{
    sw_mem_put(scratch->bytes);
    scratch->bytes = NULL;
    scratch->size_bytes = 0;
}
