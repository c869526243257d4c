/* kv_form.h - how keys and values are kept between steps. C11 and C++17, as nvcc reads it too. */
#ifndef SW_KERNELS_ENGINE_KV_FORM_H
#define SW_KERNELS_ENGINE_KV_FORM_H

#include <stdbool.h>

/* Of one layer. Zeroed: as they are computed, floats on the CPU and BF16 on a device. Else codes of
 * eight bits, E4M3 of value / scale, which stand for code * scale; attention reads what they stand
 * for, in whole sequences as in steps. */
typedef struct sw_kv_form {
    bool is_e4m3;
    float k_scale, v_scale;
} sw_kv_form;

#endif
