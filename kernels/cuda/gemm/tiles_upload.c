/* tiles_upload.c - tiles into device memory of the caller's. See tile_file.h. */
#include <cuda_runtime_api.h>

#include "formats/base/size.h"
#include "kernels/cuda/runtime/cuda_check.h"
#include "kernels/tile_file.h"

#define ALIGN_BYTES 256

typedef struct tile_arrays {
    int64_t size_bytes[3]; /* codes, scales, zero points */
} tile_arrays;

static tile_arrays arrays_of(const sw_tiles *t)
{
    return (tile_arrays){{sw_tiles_n(t->n_out) * sw_tiles_k(t->k_in) *
                              sw_tile_bytes(t->container_bits),
                          sw_tiles_scales_bytes(t->spec.scale_dtype, t->n_out, t->n_groups),
                          t->zeros ? sw_tiles_zeros_bytes(t->n_out, t->n_groups) : 0}};
}

size_t sw_tiles_device_bytes(const sw_tiles *tiles)
{
    const tile_arrays a = arrays_of(tiles);
    int64_t sum = 0;

    for (int i = 0; i < 3; i++) sum += sw_round_up(a.size_bytes[i], ALIGN_BYTES);
    return (size_t)sum;
}

sw_code sw_tiles_upload(sw_tiles *d_tiles, const sw_tiles *tiles, void *d_block, void *stream,
                        sw_err *err)
{
    const void *const from[3] = {tiles->codes, tiles->scales, tiles->zeros};
    const tile_arrays a = arrays_of(tiles);
    char *at = d_block, *d[3] = {NULL, NULL, NULL};
    sw_code rc = SW_OK;

    if (tiles->spec.n_outliers)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "tiles with %lld outlier channels",
                       (long long)tiles->spec.n_outliers);
    for (int i = 0; i < 3 && rc == SW_OK; i++) {
        if (!a.size_bytes[i]) continue;
        d[i] = at;
        rc = sw_device_check((int)cudaMemcpyAsync(at, from[i], (size_t)a.size_bytes[i],
                                                  cudaMemcpyHostToDevice, stream),
                             "tiles", err);
        at += sw_round_up(a.size_bytes[i], ALIGN_BYTES);
    }
    if (rc != SW_OK) return rc;
    *d_tiles = *tiles;
    d_tiles->has_usual_scales = sw_tiles_has_usual_scales(tiles);
    d_tiles->codes = (const uint8_t *)d[0];
    d_tiles->scales = d[1];
    d_tiles->zeros = (const uint8_t *)d[2];
    return SW_OK;
}
