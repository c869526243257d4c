/* devices.h - what a linear will run on and cost, with nothing run: devices that decoding speed is
 * predicted for, and the kernels of this machine. */
#ifndef SW_TOOLS_DEVICE_DEVICES_H
#define SW_TOOLS_DEVICE_DEVICES_H

#include "formats/num/num.h"

typedef struct sw_device_cost {
    double us, gb_s; /* per product, and for its bytes; gb_s 0: not measured */
} sw_device_cost;

typedef struct sw_device_figures {
    const char *name;
    double nominal_gb_s;
    sw_device_cost dense16, int4;
} sw_device_figures;

extern const sw_device_figures sw_device_figures_table[]; /* ends with a NULL name */
const char *sw_name_of_device(int i);
const sw_device_figures *sw_device_figures_find(const char *name); /* NULL when unknown */
/* Seconds of one product that reads `bytes` of weight: by the kernel's figures where `cost` has
 * them, else (or with NULL) by the nominal bandwidth alone. */
double sw_device_product_s(const sw_device_cost *cost, double nominal_gb_s, double bytes);

typedef struct sw_kernel_shape {
    const sw_qspec *spec; /* NULL: floats of `dense` */
    sw_dtype dense;
    int64_t n_out, k_in;
    int n_threads;
} sw_kernel_shape;
/* The name of the row of this machine's table that is taken for m tokens. */
const char *sw_kernel_name_for(const sw_kernel_shape *shape, int64_t m);

#endif
