/* product.c - multiplying by a quantized weight with the kernels of the CPU, in the C interface. */
#include "formats/base/size.h"
#include "kernels/kernel.h"
#include "tools/library/library.h"

struct sw_product {
    sw_tiles tiles;
    sw_weight weight;
    void *codes, *scales, *zeros;
    const sw_kernel *kernel; /* NULL: the fastest */
};

void sw_product_free(sw_product *product)
{
    if (!product) return;
    sw_mem_put(product->codes);
    sw_mem_put(product->scales);
    sw_mem_put(product->zeros);
    sw_mem_put(product);
}

static sw_code pack(sw_product *p, const sw_qtensor *q, sw_err *err)
{
    const sw_num *num = q->spec.num;
    sw_code rc;

    if (q->spec.n_outliers)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "some input channels are kept in floats; decode it");
    rc = sw_mem_get(&p->codes, sw_tiles_codes_bytes(num, q->n_out, q->k_in), 1, "tiles", err);
    if (rc == SW_OK)
        rc = sw_mem_get(&p->scales, sw_tiles_scales_bytes(q->spec.scale_dtype, q->n_out,
                                                          q->n_groups), 1, "scales", err);
    if (rc == SW_OK && q->zeros)
        rc = sw_mem_get(&p->zeros, sw_tiles_zeros_bytes(q->n_out, q->n_groups), 1, "zeros", err);
    if (rc != SW_OK) return rc;
    p->tiles = (sw_tiles){.spec = q->spec, .n_out = q->n_out, .k_in = q->k_in,
                          .n_groups = q->n_groups, .container_bits = sw_tiles_container_bits(num),
                          .codes = p->codes, .scales = p->scales, .zeros = p->zeros,
                          .global_scale = q->global_scale, .input_scale = q->input_scale};
    p->weight = (sw_weight){.n_out = q->n_out, .k_in = q->k_in, .tiles = &p->tiles,
                            .act = q->spec.act, .input_scale = q->input_scale};
    return sw_tiles_pack(p->codes, p->scales, p->zeros, q, err);
}

static sw_code choose(sw_product *p, const char *name, sw_err *err)
{
    const sw_gemm one = {.m = 1, .x_stride = p->weight.k_in, .y_stride = p->weight.n_out,
                         .w = &p->weight, .n_threads = 1};

    if (!name) return SW_OK;
    p->kernel = sw_kernel_find(name);
    if (!p->kernel)
        return SW_FAIL(err, SW_E_USAGE, "no kernel \"%.64s\"; sw_library_kernel lists them", name);
    if (sw_kernel_select(&one, name) == p->kernel) return SW_OK;
    return SW_FAIL(err, SW_E_USAGE, "%s cannot multiply this weight on this processor; %s would",
                   name, sw_kernel_select(&one, NULL)->name);
}

int sw_product_new(sw_product **out, const sw_matrix *matrix, const char *kernel, sw_error *error)
{
    sw_product *p = NULL;
    sw_err err = {0};
    sw_code rc = SW_MEM_GET(&p, 1, "product", &err);

    if (rc == SW_OK) rc = pack(p, &matrix->q, &err);
    if (rc == SW_OK) rc = choose(p, kernel, &err);
    if (rc == SW_OK)
        *out = p;
    else
        sw_product_free(p);
    return sw_library_end(error, rc, &err);
}

static sw_gemm problem(const sw_product *p, float *y, const float *x, int64_t m, int n_threads)
{
    return (sw_gemm){.m = m, .x = x, .x_stride = p->weight.k_in, .y = y,
                     .y_stride = p->weight.n_out, .w = &p->weight, .n_threads = n_threads};
}

const char *sw_product_kernel(const sw_product *product, int64_t n_tokens)
{
    const sw_gemm p = problem(product, NULL, NULL, n_tokens > 0 ? n_tokens : 1, 1);

    return sw_kernel_select(&p, product->kernel ? product->kernel->name : NULL)->name;
}

int sw_product_run(float *y, const sw_product *product, const float *x, int64_t n_tokens,
                   int32_t n_threads, sw_error *error)
{
    const sw_weight *w = &product->weight;
    const int64_t widest = sw_max_i64(w->k_in, w->n_out);
    const sw_gemm p = problem(product, y, x, n_tokens, sw_library_threads(n_threads));
    sw_scratch scratch = {0};
    sw_err err = {0};
    sw_code rc;

    if (!x || !y || n_tokens < 0 || n_tokens > INT64_MAX / 64 / widest)
        rc = SW_FAIL(&err, SW_E_USAGE, "no product with %lld tokens", (long long)n_tokens);
    else
        rc = sw_gemm_run_named(&p, product->kernel ? product->kernel->name : NULL, &scratch,
                               &err);
    sw_scratch_free(&scratch);
    return sw_library_end(error, rc, &err);
}
