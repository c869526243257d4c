/* cuda_narrow.c - stored elements to BF16 on the device. See cuda_engine_internal.h. */
#include "formats/base/size.h"
#include "kernels/cuda/engine/cuda_engine_internal.h"
#include "kernels/cuda/runtime/cuda_upload.h"

#define CHUNK_ELEMS ((int64_t)1 << 20)
#define PIECE_ELEMS ((int64_t)4 << 20) /* of floats that pass through the device's memory */

/* Elements of another dtype through buffers of the host. */
static sw_code convert_on_host(sw_device *gpu, sw_bf16 *d_to, const char *from, sw_dtype dtype,
                               int64_t n, sw_err *err)
{
    const int64_t elem_bytes = sw_dtype_bits(dtype) / 8;
    float *values = NULL;
    uint16_t *rounded = NULL;
    sw_code rc = SW_OK;

    if ((rc = SW_MEM_GET(&values, CHUNK_ELEMS, "conversion", err)) != SW_OK ||
        (rc = SW_MEM_GET(&rounded, CHUNK_ELEMS, "conversion", err)) != SW_OK)
        goto done;
    for (int64_t at = 0; at < n && rc == SW_OK; at += CHUNK_ELEMS) {
        const int64_t some = sw_min_i64(CHUNK_ELEMS, n - at);

        rc = sw_float_decode_n(values, from + at * elem_bytes, dtype, some, err);
        if (rc == SW_OK) rc = sw_float_encode_n(rounded, SW_DTYPE_BF16, values, some, err);
        if (rc == SW_OK) rc = sw_device_upload_begin(gpu, d_to + at, rounded, 2 * some, err);
    }
done:
    sw_mem_put(values);
    sw_mem_put(rounded);
    return rc;
}

/* Floats as they are, rounded there, piece by piece: a thread that rounds them takes ten times as
 * long as the link. */
static sw_code round_on_device(sw_device *gpu, sw_bf16 *d_to, const float *from, int64_t n,
                               sw_err *err)
{
    const sw_launch how = {sw_device_stream(gpu), false};
    const int64_t n_most = sw_min_i64(n, PIECE_ELEMS);
    float *d_floats = NULL;
    sw_code rc = sw_device_take((void **)&d_floats, gpu, n_most, (int64_t)sizeof *d_floats,
                                "conversion", err);

    for (int64_t at = 0; at < n && rc == SW_OK; at += n_most) {
        const int64_t some = sw_min_i64(n_most, n - at);

        rc = sw_device_upload_begin(gpu, d_floats, from + at, some * (int64_t)sizeof *from, err);
        if (rc == SW_OK)
            rc = sw_cuda_narrow((sw_bf16_rows){d_to + at, some}, (sw_f32_rows){d_floats, some}, 1,
                                some, how, err);
    }
    sw_device_put(gpu, d_floats);
    return rc;
}

/* A device with no room for a piece gets them rounded. */
sw_code sw_device_copy_as_bf16(sw_device *gpu, sw_bf16 *d_to, const void *from, sw_dtype dtype,
                               int64_t n, sw_err *err)
{
    const int64_t piece_bytes = PIECE_ELEMS * (int64_t)sizeof(float);

    if (dtype == SW_DTYPE_BF16) return sw_device_upload_begin(gpu, d_to, from, 2 * n, err);
    if (dtype == SW_DTYPE_F32 && sw_device_left_bytes(gpu) > 2 * piece_bytes)
        return round_on_device(gpu, d_to, from, n, err);
    return convert_on_host(gpu, d_to, from, dtype, n, err);
}
