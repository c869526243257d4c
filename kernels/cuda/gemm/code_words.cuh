/* code_words.cuh - codes of 4 bits to another order, each word of eight by itself: on the device,
 * in place. MAP::of(word) is the word in that order. */
#ifndef SW_KERNELS_CUDA_GEMM_CODE_WORDS_CUH
#define SW_KERNELS_CUDA_GEMM_CODE_WORDS_CUH

#include "formats/pack/tiles.h"
#include "kernels/cuda/gemm/gemm_rows.h"

#define SW_CODE_WORDS_THREADS 256

/* grid: count / SW_CODE_WORDS_THREADS, rounded up; `count` of 16 bytes. */
template <class MAP>
static __global__ void __launch_bounds__(SW_CODE_WORDS_THREADS)
    swk_map_words(uint4 *codes, int64_t count)
{
    int64_t i = (int64_t)blockIdx.x * SW_CODE_WORDS_THREADS + threadIdx.x;
    uint4 v;

    if (i >= count) return;
    v = codes[i];
    codes[i] = make_uint4(MAP::of(v.x), MAP::of(v.y), MAP::of(v.z), MAP::of(v.w));
}

/* Enqueue it for the codes of d_tiles, which are aligned to 16, and say so in *is_done, a member of
 * them; where there are none, neither. */
template <class MAP>
static sw_code sw_map_words(const sw_tiles *d_tiles, bool *is_done, void *stream, sw_err *err)
{
    const int64_t count = sw_tiles_n(d_tiles->n_out) * sw_tiles_k(d_tiles->k_in) *
                          (sw_tile_bytes(4) / 16);
    const unsigned n_ctas = (unsigned)sw_cuda_up(count, SW_CODE_WORDS_THREADS);

    if (count == 0) return SW_OK;
    *is_done = true;
    swk_map_words<MAP><<<n_ctas, SW_CODE_WORDS_THREADS, 0, (cudaStream_t)stream>>>(
        (uint4 *)(uintptr_t)d_tiles->codes, count);
    return sw_cuda_check(cudaGetLastError(), "swk_map_words", err);
}

#endif
