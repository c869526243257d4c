/* example.c - a product with a weight of a Swage checkpoint on a device, as an engine would run it:
 *     example CHECKPOINT model.layers.0.mlp.up_proj [TOKENS]
 * Prints the kernel and the first outputs of inputs that are all one. See kernels/tile_file.h. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/tile_file.h"

static int fail(const char *what)
{
    fprintf(stderr, "example: %s\n", what);
    return 1;
}

int main(int argc, char **argv)
{
    sw_err err = {0};
    sw_tile_file *file = NULL;
    sw_tiles weight, d_weight;
    sw_cuda_device device;
    sw_cuda_plan plan;
    cudaStream_t stream;
    void *d_block, *d_x, *d_y, *d_work;
    const uint16_t one = 0x3f80; /* bf16 */
    uint16_t y[4], *x;

    if (argc < 3) return fail("CHECKPOINT MODULE [TOKENS]");
    if (sw_tile_file_open(&file, argv[1], &err) || sw_tile_file_get(&weight, file, argv[2], &err) ||
        sw_cuda_device_query(&device, 0, &err) || cudaStreamCreate(&stream))
        return fail(err.text);

    const int64_t m = argc > 3 ? atol(argv[3]) : 1, n_x = m * weight.k_in, n_y = m * weight.n_out;

    x = malloc((size_t)n_x * sizeof one);
    for (int64_t i = 0; i < n_x; i++) x[i] = one;
    if (cudaMalloc(&d_block, sw_tiles_device_bytes(&weight)) ||
        cudaMalloc(&d_x, (size_t)n_x * 2) || cudaMalloc(&d_y, (size_t)n_y * 2) ||
        cudaMemcpy(d_x, x, (size_t)n_x * 2, cudaMemcpyHostToDevice))
        return fail("out of device memory");
    if (sw_tiles_upload(&d_weight, &weight, d_block, stream, &err)) return fail(err.text);

    sw_cuda_gemm product = {.m = m, .d_x = d_x, .x_stride = weight.k_in, .d_y = d_y,
                            .y_stride = weight.n_out, .dtype = SW_DTYPE_BF16, .tiles = d_weight,
                            .act = weight.spec.act};

    if (sw_cuda_gemm_plan(&plan, &product, &device, NULL, &err)) return fail(err.text);
    if (cudaMalloc(&d_work, sw_cuda_gemm_workspace_bytes(&product, &plan) + 1))
        return fail("out of device memory");
    if (sw_cuda_gemm_run(&product, &plan, d_work, stream, &err)) return fail(err.text);
    if (cudaStreamSynchronize(stream) || cudaMemcpy(y, d_y, sizeof y, cudaMemcpyDeviceToHost))
        return fail("the kernel failed");
    printf("%s, %lld x %lld:", sw_cuda_kernels[plan.kernel].name, (long long)weight.n_out,
           (long long)weight.k_in);
    for (int i = 0; i < 4; i++) {
        const uint32_t bits = (uint32_t)y[i] << 16;
        float value;

        memcpy(&value, &bits, sizeof value);
        printf(" %g", (double)value);
    }
    puts("");
    sw_tile_file_close(file);
    return 0;
}
