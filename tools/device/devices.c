/* devices.c - see devices.h and devices.def. */
#include "tools/device/devices.h"

#include <stddef.h>
#include <string.h>

#include "kernels/kernel.h"

const sw_device_figures sw_device_figures_table[] = {
#define SW_DEVICE(name, nominal, us16, rate16, us4, rate4) \
    {name, nominal, {us16, rate16}, {us4, rate4}},
#include "tools/device/devices.def"
#undef SW_DEVICE
    {0},
};

const char *sw_name_of_device(int i) { return sw_device_figures_table[i].name; }

const sw_device_figures *sw_device_figures_find(const char *name)
{
    for (const sw_device_figures *d = sw_device_figures_table; d->name; d++)
        if (!strcmp(d->name, name)) return d;
    return NULL;
}

double sw_device_product_s(const sw_device_cost *cost, double nominal_gb_s, double bytes)
{
    return cost && cost->gb_s > 0 ? 1e-6 * cost->us + bytes / (1e9 * cost->gb_s)
                                  : bytes / (1e9 * nominal_gb_s);
}

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
