/* engine_launch.cuh - launching the engine's kernels, and what they share on the device. */
#ifndef SW_KERNELS_CUDA_OPS_ENGINE_LAUNCH_CUH
#define SW_KERNELS_CUDA_OPS_ENGINE_LAUNCH_CUH

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/ops/engine_ops.h"
#include "kernels/cuda/runtime/cuda_check.h"

/* Let the next kernel of the stream start. */
__device__ __forceinline__ void sw_let_next(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Wait for the kernel ahead, whose results must not be read, nor its inputs overwritten, before. */
__device__ __forceinline__ void sw_await_ahead(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Each kernel begins with both, and but for weights it asks for nothing before. */
__device__ __forceinline__ void sw_begin(void)
{
    sw_let_next();
    sw_await_ahead();
}

/* Eight neighbouring elements as floats. */
struct sw_eight {
    float v[8];
};

__device__ __forceinline__ sw_eight sw_unpack8(uint4 raw)
{
    const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
    sw_eight e;

#pragma unroll
    for (int i = 0; i < 4; i++) {
        e.v[2 * i] = __uint_as_float(words[i] << 16);
        e.v[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
    return e;
}

__device__ __forceinline__ sw_eight sw_load8(const sw_bf16 *p)
{
    return sw_unpack8(*(const uint4 *)p);
}

__device__ __forceinline__ sw_eight sw_load_floats(const float *from)
{
    const float4 low = *(const float4 *)from, high = *(const float4 *)(from + 4);

    return {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
}

/* Eight of the stream, to which the half before is added. */
__device__ __forceinline__ sw_eight sw_stream_at(const sw_norm_args &a, int64_t row, int64_t at)
{
    sw_eight e = sw_load_floats(a.x + row * a.width + at);

    if (!a.add.d) return e;
    const sw_eight more = sw_load8(a.add.d + row * a.add.stride + at);

#pragma unroll
    for (int i = 0; i < 8; i++) e.v[i] += a.factor * more.v[i];
    *(float4 *)(a.x + row * a.width + at) = make_float4(e.v[0], e.v[1], e.v[2], e.v[3]);
    *(float4 *)(a.x + row * a.width + at + 4) = make_float4(e.v[4], e.v[5], e.v[6], e.v[7]);
    return e;
}

__device__ __forceinline__ uint32_t sw_pack2(float low, float high)
{
    const __nv_bfloat162 two = __floats2bfloat162_rn(low, high);

    return *(const uint32_t *)&two;
}

__device__ __forceinline__ void sw_store8(sw_bf16 *p, const sw_eight &e)
{
    *(uint4 *)p = make_uint4(sw_pack2(e.v[0], e.v[1]), sw_pack2(e.v[2], e.v[3]),
                             sw_pack2(e.v[4], e.v[5]), sw_pack2(e.v[6], e.v[7]));
}

__device__ __forceinline__ float sw_float(sw_bf16 b) { return __uint_as_float((uint32_t)b << 16); }

__device__ __forceinline__ sw_bf16 sw_round16(float f)
{
    return __bfloat16_as_ushort(__float2bfloat16_rn(f));
}

__device__ __forceinline__ float sw_warp_sum(float x)
{
#pragma unroll
    for (int step = 16; step; step /= 2) x += __shfl_xor_sync(~0u, x, step);
    return x;
}

__device__ __forceinline__ float sw_warp_max(float x)
{
#pragma unroll
    for (int step = 16; step; step /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, step));
    return x;
}

/* The first COUNT threads of a block, which may have a warp more, wait for each other. */
template <int COUNT> __device__ __forceinline__ void sw_meet(void)
{
    asm volatile("bar.sync 1, %0;" ::"n"(COUNT) : "memory");
}

/* Over a block whose size is a multiple of 32; s_part has 32 floats. All threads get the sum. */
__device__ __forceinline__ float sw_block_sum(float x, float *s_part)
{
    float sum = 0;

    x = sw_warp_sum(x);
    __syncthreads(); /* s_part may be in use from the sum before */
    if (threadIdx.x % 32 == 0) s_part[threadIdx.x / 32] = x;
    __syncthreads();
    for (unsigned w = 0; w < blockDim.x / 32; w++) sum += s_part[w];
    return sum;
}

/* For a sum once a kernel over up to PARTS parts of a block: zeros for those that are not there,
 * before, and the sum of what was left in s_part. A loop of any length is more code, and most of a
 * norm of one row is its code being fetched. */
template <int PARTS> __device__ __forceinline__ void sw_clear_parts(float *s_part)
{
    if (threadIdx.x < PARTS) s_part[threadIdx.x] = 0;
    __syncthreads();
}

template <int PARTS> __device__ __forceinline__ float sw_sum_of_parts(const float *s_part)
{
    float sum = 0;

    __syncthreads();
#pragma unroll
    for (int i = 0; i < PARTS; i++) sum += s_part[i];
    return sum;
}

/* A kernel on `how` in clusters of so many CTAs, of which `grid` is a multiple; nothing at all for
 * an empty grid. */
template <typename... P, typename... A>
static sw_code sw_start_clusters(const char *what, void (*kernel)(P...), unsigned cluster,
                                 dim3 grid, unsigned n_threads, size_t shared_bytes,
                                 sw_launch how, sw_err *err, A... args)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attrs[2] = {};

    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return SW_OK;
    config.gridDim = grid;
    config.blockDim = dim3(n_threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = (cudaStream_t)how.stream;
    config.attrs = attrs;
    if (how.overlaps) {
        attrs[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attrs[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (cluster > 1) {
        attrs[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attrs[config.numAttrs++].val.clusterDim = {cluster, 1, 1};
    }
    return sw_device_check((int)cudaLaunchKernelEx(&config, kernel, P(args)...), what, err);
}

template <typename... P, typename... A>
static sw_code sw_start(const char *what, void (*kernel)(P...), dim3 grid, unsigned n_threads,
                        size_t shared_bytes, sw_launch how, sw_err *err, A... args)
{
    return sw_start_clusters(what, kernel, 1, grid, n_threads, shared_bytes, how, err, args...);
}

/* Devices that run code compiled for clusters: others run that of sm_80, which has none. */
static inline bool sw_has_clusters(void)
{
    int device = 0, major = 0, minor = 0;

    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ==
               cudaSuccess &&
           cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) ==
               cudaSuccess && major == 9 && minor == 0;
}

static inline unsigned sw_blocks(int64_t n, int64_t per_block)
{
    return (unsigned)((n + per_block - 1) / per_block);
}

#endif
