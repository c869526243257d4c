/* kernel_choice.h - which kernel of this machine's table a linear will run on; nothing is run. */
#ifndef SW_TOOLS_DEVICE_KERNEL_CHOICE_H
#define SW_TOOLS_DEVICE_KERNEL_CHOICE_H

#include "formats/num/num.h"

typedef struct sw_kernel_shape {
    const sw_qspec *spec; /* NULL: floats of `dense` */
    sw_dtype dense;
    int64_t n_out, k_in;
    int n_threads;
} sw_kernel_shape;

/* The name of the row that is taken for m tokens. */
const char *sw_kernel_name_for(const sw_kernel_shape *shape, int64_t m);

#endif
