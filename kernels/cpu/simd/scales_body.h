/* scales_body.h - a record of stored scales into floats, in the words of a vec_*.h. */
#ifndef SW_KERNELS_CPU_SIMD_SCALES_BODY_H
#define SW_KERNELS_CPU_SIMD_SCALES_BODY_H

#include "kernels/rows.h"

V_INLINE int64_t scale_bytes(sw_dtype dtype)
{
    if (dtype == SW_DTYPE_F8_E8M0 || dtype == SW_DTYPE_F8_E4M3) return 1;
    return dtype == SW_DTYPE_F32 ? 4 : 2;
}

/* V_LANES scales of one of the dtypes that tiles hold. */
V_INLINE vec v_scales(const uint8_t *raw, sw_dtype dtype)
{
    if (dtype == SW_DTYPE_F16) return v_from_f16((const uint16_t *)(const void *)raw);
    if (dtype == SW_DTYPE_BF16) return v_from_bf16((const uint16_t *)(const void *)raw);
    if (dtype == SW_DTYPE_F8_E8M0) return v_from_e8m0(raw);
    if (dtype == SW_DTYPE_F8_E4M3) return v_from_e4m3(raw);
    return v_load((const float *)(const void *)raw);
}

/* scales f32 [64] in slot order. */
static inline void load_scales(float *scales, const sw_tiles *t, int64_t record)
{
    int64_t bytes = scale_bytes(t->spec.scale_dtype);
    const uint8_t *raw = (const uint8_t *)t->scales + record * SW_TILE_N * bytes;

    for (int i = 0; i < SW_TILE_N; i += V_LANES)
        v_store(scales + i, v_scales(raw + i * bytes, t->spec.scale_dtype));
}

#endif
