/* whole_block.cuh - where the blocks of tokens of a product begin. */
#ifndef SW_KERNELS_CUDA_PTX_WHOLE_BLOCK_CUH
#define SW_KERNELS_CUDA_PTX_WHOLE_BLOCK_CUH

/* Where a block of `size` tokens that would begin at `first` begins, so that it ends with the last
 * token: rows of a box that are not there are slow to bring. What two blocks have in common both
 * store, the same bytes. A block behind the last token stays there. */
__device__ __forceinline__ int sw_whole_block(int first, int n_tokens, int size)
{
    return first >= n_tokens ? first : max(0, min(first, n_tokens - size));
}

#endif
