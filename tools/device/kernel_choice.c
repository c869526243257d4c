/* kernel_choice.c - see kernel_choice.h. */
#include "tools/device/kernel_choice.h"

#include "kernels/kernel.h"

const char *sw_kernel_name_for(const sw_kernel_shape *shape, int64_t m)
{
    sw_tiles tiles = {.n_out = shape->n_out, .k_in = shape->k_in};
    sw_weight w = {.n_out = shape->n_out, .k_in = shape->k_in};
    sw_gemm p = {.m = m, .x_stride = shape->k_in, .y_stride = shape->n_out, .w = &w,
                 .n_threads = shape->n_threads};

    if (shape->spec) {
        tiles.spec = *shape->spec;
        tiles.n_groups = sw_qspec_groups(shape->spec, shape->k_in);
        tiles.container_bits = sw_tiles_stored_bits(shape->spec->num);
        w.tiles = &tiles;
        w.act = shape->spec->act;
    } else {
        w.dense_dtype = shape->dense;
    }
    return sw_kernel_select(&p, NULL)->name;
}
