/* marlin_tiles.cu - see marlin_tiles.h.
 *
 * A tile of 64 channels x 64 inputs is four of Marlin's 64 x 16, a row of words apart. Both give
 * lane t the channels t / 4 and t / 4 + 8 of a sixteen at the inputs {2c, 2c + 8, 2c + 1, 2c + 9},
 * c = t % 4; Marlin lays the four sixteens w of a lane side by side, a tile its four k-steps s:
 *
 *   4 bits   word 4t + w of piece s                   -> word 128w + 4t + s
 *   8 bits   word 8t + 2w + h of piece s              -> word 512(s/2) + 128w + 4t + 2(s%2) + h
 *
 * With 4 bits nibbles 1 and 2 change places, and 5 and 6: Marlin has the inputs of one channel in
 * neighbours, a tile the channels of one input.
 */
#include <cuda_runtime.h>

#include "kernels/cuda/gemm/gemm_rows.h"
#include "kernels/cuda/gemm/marlin_tiles.h"

#define TILES 8     /* of a CTA, side by side along the channels: what it has in flight */
#define THREADS 128 /* a warp for each of a tile's four pieces */

__device__ __forceinline__ uint32_t swap_nibbles(uint32_t v)
{
    return (v & 0xf00ff00fu) | (v & 0x00f000f0u) << 4 | (v & 0x0f000f00u) >> 4;
}

/* Where in a tile the word `word` of lane t of piece s goes; words of 16 bytes are turned by the
 * lane, so that neither side of the exchange meets a bank twice. */
template <int BITS> __device__ __forceinline__ int place_of(int s, int t, int word)
{
    int low = BITS == 4 ? s : 2 * (s % 2) + word % 2;
    int at = BITS == 4 ? 128 * word : 512 * (s / 2) + 128 * (word / 2);

    return at + 4 * t + (low ^ (t >> 3));
}

/* grid (k_tiles, n_tiles / TILES rounded up), THREADS. */
template <int BITS>
__global__ void __launch_bounds__(THREADS)
    swk_marlin_codes(uint32_t *to, const uint32_t *from, int n_tiles, int k_tiles)
{
    constexpr int lane_words = BITS, tile_words = 128 * BITS, blocks = tile_words / 4 / THREADS;
    __shared__ uint32_t s_tile[TILES][tile_words];
    int s = (int)threadIdx.x / 32, t = (int)threadIdx.x % 32, n_tile0 = (int)blockIdx.y * TILES;
    int n_here = min(TILES, n_tiles - n_tile0);
    uint4 v[TILES][lane_words / 4];

    from += (((int64_t)blockIdx.x * 4 + s) * n_tiles + n_tile0) * (32 * lane_words) +
            t * lane_words;
#pragma unroll
    for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int j = 0; j < lane_words / 4; j++)
            if (i < n_here) v[i][j] = __ldcs((const uint4 *)(from + i * 32 * lane_words) + j);
#pragma unroll
    for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int w = 0; w < lane_words; w++) {
            uint4 four = v[i][w / 4];
            uint32_t word = w % 4 == 0 ? four.x : w % 4 == 1 ? four.y : w % 4 == 2 ? four.z
                                                                                  : four.w;

            if (i < n_here) s_tile[i][place_of<BITS>(s, t, w)] = BITS == 4 ? swap_nibbles(word)
                                                                           : word;
        }
    __syncthreads();
    for (int i = 0; i < n_here; i++)
#pragma unroll
        for (int b = 0; b < blocks; b++) {
            int at = b * THREADS + (int)threadIdx.x, turn = at % 32 >> 3;
            const uint32_t *four = s_tile[i] + 4 * at;

            ((uint4 *)to)[(((int64_t)(n_tile0 + i) * k_tiles) + blockIdx.x) * (tile_words / 4) +
                          at] = make_uint4(four[0 ^ turn], four[1 ^ turn], four[2 ^ turn],
                                           four[3 ^ turn]);
        }
}

/* Place in a row of Marlin's where the scale of channel n stands: it undoes itself. */
__device__ __forceinline__ int scale_place(int n, bool is_single)
{
    int chunk = is_single ? 32 : 64, in = n % chunk, i = in / 8, j = in % 8;

    /* of one group: 0, 1, 8, 9, 16, 17, 24, 25 beside twice the eighth */
    return n - in + (is_single ? 2 * i + j / 2 * 8 + j % 2 : i + 8 * j);
}

/* The code of a row of zero points that is channel n's: behind the order of scales, eights
 * (fours, of 8 bits) are dealt out evens first. */
__device__ __forceinline__ int zero_place(int n, int bits)
{
    int at = scale_place(n, false), per = 32 / bits, j = at % per;

    return at - j + (j % 2 ? per / 2 + j / 2 : j / 2);
}

/* grid (n_groups, n_tiles), 64 threads: a record, slot by slot. */
__global__ void __launch_bounds__(64)
    swk_marlin_records(uint16_t *scales, uint8_t *zeros, const uint16_t *from_scales,
                       const uint32_t *from_zeros, int bits)
{
    int group = (int)blockIdx.x, n_groups = (int)gridDim.x, n_out = (int)gridDim.y * 64;
    int slot = (int)threadIdx.x, in_tile = slot / 16 * 16 + slot % 16 / 2 + slot % 2 * 8;
    int n = (int)blockIdx.y * 64 + in_tile;
    int64_t to = ((int64_t)blockIdx.y * n_groups + group) * 64 + slot;

    scales[to] = from_scales[(int64_t)group * n_out + scale_place(n, n_groups == 1)];
    if (zeros) {
        int at = zero_place(n, bits), per = 32 / bits;
        uint32_t word = from_zeros[(int64_t)group * (n_out / per) + at / per];

        zeros[to] = (uint8_t)(word >> at % per * bits & ((1u << bits) - 1));
    }
}

static sw_code check(const sw_tiles *t, sw_err *err)
{
    if (!t->is_marlin || t->spec.num->kind != SW_NUM_INT ||
        (t->spec.num->bits != 4 && t->spec.num->bits != 8))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "no weight of 4 or 8 bits in Marlin's order");
    if (t->n_out % 64 || t->k_in % 64 || t->n_out > INT32_MAX || t->k_in > INT32_MAX)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%lld x %lld in Marlin's order, must be multiples "
                       "of 64", (long long)t->n_out, (long long)t->k_in);
    if (t->spec.scale_dtype != SW_DTYPE_F16 && t->spec.scale_dtype != SW_DTYPE_BF16)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "Marlin scales must be F16 or BF16");
    return SW_OK;
}

extern "C" sw_code sw_marlin_retile(void *d_codes, void *d_scales, void *d_zeros,
                                    const sw_tiles *from, void *stream, sw_err *err)
{
    int n_tiles = (int)sw_tiles_n(from->n_out), k_tiles = (int)sw_tiles_k(from->k_in);
    int bits = from->spec.num->bits;
    dim3 codes_grid((unsigned)k_tiles, (unsigned)sw_cuda_up(n_tiles, TILES));
    dim3 records_grid((unsigned)from->n_groups, (unsigned)n_tiles);
    sw_code rc = check(from, err);

    if (rc || n_tiles == 0 || k_tiles == 0) return rc;
    if (bits == 4)
        swk_marlin_codes<4><<<codes_grid, THREADS, 0, (cudaStream_t)stream>>>(
            (uint32_t *)d_codes, (const uint32_t *)from->codes, n_tiles, k_tiles);
    else
        swk_marlin_codes<8><<<codes_grid, THREADS, 0, (cudaStream_t)stream>>>(
            (uint32_t *)d_codes, (const uint32_t *)from->codes, n_tiles, k_tiles);
    if ((rc = sw_cuda_check(cudaGetLastError(), "swk_marlin_codes", err)) != SW_OK) return rc;
    swk_marlin_records<<<records_grid, 64, 0, (cudaStream_t)stream>>>(
        (uint16_t *)d_scales, from->spec.is_symmetric ? NULL : (uint8_t *)d_zeros,
        (const uint16_t *)from->scales, (const uint32_t *)from->zeros, bits);
    return sw_cuda_check(cudaGetLastError(), "swk_marlin_records", err);
}
