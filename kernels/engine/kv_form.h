/* kv_form.h - how keys and values are kept between steps. C11 and C++17, as nvcc reads it too. */
#ifndef SW_KERNELS_ENGINE_KV_FORM_H
#define SW_KERNELS_ENGINE_KV_FORM_H

typedef enum sw_kv_kind {
    SW_KV_FLOATS, /* as they are computed: floats on the CPU and BF16 on a device */
    SW_KV_E4M3,
    SW_KV_INT8
} sw_kv_kind;

/* Of one layer. Codes of eight bits are those of value / scale that act.h has, and stand for code *
 * scale; attention reads what they stand for, in whole sequences as in steps. BF16 and F16 hold
 * every code, so that kernels multiply codes as they are and put the scales to their sums. */
typedef struct sw_kv_form {
    sw_kv_kind kind;
    float k_scale, v_scale; /* of codes */
} sw_kv_form;

#endif
