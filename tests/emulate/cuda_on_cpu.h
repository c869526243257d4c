/* cuda_on_cpu.h - CUDA C for a host compiler, read before every rewritten .cu file (rewrite.c).
 *
 * Types, vectors and the conversions of 16- and 8-bit floats are CUDA's own, whose headers have
 * them for the host too. What only a device has is here, in the meaning that the CUDA C++
 * Programming Guide and the CUDA Math API give it; what it does to memory is in the C files beside.
 * As on a device of compute capability 8.0 __CUDA_ARCH__ is below 890: it is not defined, but for
 * kernels of Hopper, which are compiled with EMU_ARCH as 900.
 */
#ifndef SW_TESTS_EMULATE_CUDA_ON_CPU_H
#define SW_TESTS_EMULATE_CUDA_ON_CPU_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <utility>

#include "tests/emulate/emulate.h"

#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __launch_bounds__
#undef __grid_constant__
#define __global__
#define __device__
#define __host__
#define __constant__
#define __launch_bounds__(...)
#define __grid_constant__
#define __builtin_assume(what) ((void)0)
#define __noinline__ __attribute__((noinline))
#ifdef EMU_ARCH
#define __CUDA_ARCH__ EMU_ARCH
#define EMU_IS_HOPPER true
#else
#define EMU_IS_HOPPER false
#endif


/* ---- launches ---- */

extern "C" cudaError_t emu_launched(const emu_launch_args *l); /* kept for cudaGetLastError too */

template <typename... P, typename... A>
static cudaError_t emu_launch_with(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes,
                                   int cluster, A... args)
{
    const auto call = [=]() { kernel(P(args)...); };
    emu_launch_args l = {};

    l.grid = {grid.x, grid.y, grid.z};
    l.block = {block.x, block.y, block.z};
    l.cluster = cluster;
    l.is_hopper = EMU_IS_HOPPER;
    l.shared_bytes = shared_bytes;
    l.call = [](const void *ctx) { (*(decltype(call) *)ctx)(); };
    l.ctx = &call;
    l.ctx_bytes = sizeof call;
    return emu_launched(&l);
}

/* kernel<<<grid, block, shared_bytes, stream>>> of which the arguments follow. */
template <typename... P>
static auto emu_launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes = 0,
                       cudaStream_t stream = 0)
{
    (void)stream;
    return [=](auto... args) {
        (void)emu_launch_with(kernel, grid, block, shared_bytes, 0, args...);
    };
}

extern "C" int emu_cluster_of(const cudaLaunchConfig_t *c); /* blocks; -1: the device has none */

template <typename... P, typename... A>
static cudaError_t emu_launch_ex(const cudaLaunchConfig_t *c, void (*kernel)(P...), A... args)
{
    const int cluster = emu_cluster_of(c);

    if (cluster < 0) return cudaErrorInvalidConfiguration;
    return emu_launch_with(kernel, c->gridDim, c->blockDim, c->dynamicSmemBytes, cluster, args...);
}
#define cudaLaunchKernelEx emu_launch_ex

/* A kernel as a pointer without type, for cudaLaunchKernelExC. */
template <typename... P, size_t... I>
static void emu_call(void (*kernel)(P...), void *const *args, std::index_sequence<I...>)
{
    kernel(*(const P *)args[I]...);
}

template <typename... P> static const void *emu_entry(void (*kernel)(P...))
{
    emu_remember((const void *)kernel, [](const void *entry, void *const *args) {
        emu_call((void (*)(P...))(uintptr_t)entry, args, std::index_sequence_for<P...>());
    }, EMU_IS_HOPPER);
    return (const void *)kernel;
}

template <typename... P>
static cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute what, int value)
{
    return cudaFuncSetAttribute((const void *)kernel, what, value);
}

/* ---- shared memory, instructions ---- */

template <typename T> static T &emu_shared(const void *key, const char *name, size_t align)
{
    return *(T *)emu_shared_take(key, sizeof(T), align, name);
}

static inline size_t __cvta_generic_to_shared(const void *p) { return emu_shared_address(p); }

#define EMU_OUT(x) {(void *)&(x), 0}
#define EMU_IN_r(x) {NULL, (uint64_t)(uint32_t)(x)}
#define EMU_IN_n(x) {NULL, (uint64_t)(x)}
#define EMU_IN_h(x) {NULL, (uint64_t)(uint16_t)(x)}
#define EMU_IN_l(x) {NULL, (uint64_t)(x)}
#define EMU_IN_f(x) {NULL, (uint64_t)__float_as_uint(x)}
#define EMU_PTX(text, ...)                                        \
    do {                                                          \
        static emu_instruction *const emu_run_it = emu_find text; \
        const emu_operand emu_operands[] = {__VA_ARGS__{NULL, 0}}; \
        emu_text = text;                                          \
        emu_run_it(emu_operands);                                 \
    } while (0)

/* ---- bits ---- */

template <typename TO, typename FROM> static inline TO emu_bits(FROM from)
{
    TO to;

    static_assert(sizeof to == sizeof from, "the same bits");
    memcpy(&to, &from, sizeof to);
    return to;
}

static inline float __uint_as_float(unsigned v) { return emu_bits<float>(v); }
static inline float __int_as_float(int v) { return emu_bits<float>(v); }
static inline unsigned __float_as_uint(float v) { return emu_bits<unsigned>(v); }
static inline int __float_as_int(float v) { return emu_bits<int>(v); }
static inline double __longlong_as_double(long long v) { return emu_bits<double>(v); }
static inline long long __double_as_longlong(double v) { return emu_bits<long long>(v); }

static inline int __popc(unsigned v) { return __builtin_popcount(v); }
static inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
static inline int __clz(int v) { return v ? __builtin_clz((unsigned)v) : 32; }
static inline int __ffs(int v) { return __builtin_ffs(v); }
static inline int __ffsll(long long v) { return __builtin_ffsll(v); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (uint64_t)a * b >> 32; }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by)
{
    return (unsigned)(((uint64_t)high << 32 | low) << (by & 31) >> 32);
}

static inline unsigned __brev(unsigned v)
{
    unsigned r = 0;

    for (int i = 0; i < 32; i++) r |= (v >> i & 1) << (31 - i);
    return r;
}

static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s)
{
    const uint64_t both = (uint64_t)y << 32 | x;
    unsigned r = 0;

    for (int i = 0; i < 4; i++) {
        const unsigned pick = s >> 4 * i & 15, byte = (unsigned)(both >> 8 * (pick & 7)) & 0xff;

        r |= (pick & 8 ? (byte & 0x80 ? 0xffu : 0) : byte) << 8 * i;
    }
    return r;
}

static inline int __dp4a(int a, int b, int c)
{
    for (int i = 0; i < 32; i += 8) c += (int)(int8_t)(a >> i) * (int8_t)(b >> i);
    return c;
}

static inline unsigned __vmaxu2(unsigned a, unsigned b)
{
    const unsigned high = (a >> 16) > (b >> 16) ? a >> 16 : b >> 16;

    return high << 16 | ((a & 0xffff) > (b & 0xffff) ? a & 0xffff : b & 0xffff);
}

/* ---- arithmetic, rounded once each (compiled with -ffp-contract=off) ---- */

static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __frcp_rn(float a) { return 1 / a; }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dsub_rn(double a, double b) { return a - b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline double __drcp_rn(double a) { return 1 / a; }
static inline double __dsqrt_rn(double a) { return sqrt(a); }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
#define __expf expf
#define __logf logf
static inline float __fdividef(float a, float b) { return a / b; }
static inline float rsqrtf(float a) { return 1 / sqrtf(a); }
static inline int __float2int_rn(float a) { return (int)rintf(a); }
static inline int __float2int_rz(float a) { return (int)a; }
static inline float __saturatef(float a) { return a > 0 ? (a < 1 ? a : 1) : 0; }

template <typename T> static inline T emu_min(T a, T b) { return b < a ? b : a; }
template <typename T> static inline T emu_max(T a, T b) { return a < b ? b : a; }
#define EMU_MIN_MAX(type)                                        \
    static inline type min(type a, type b) { return emu_min(a, b); } \
    static inline type max(type a, type b) { return emu_max(a, b); }
EMU_MIN_MAX(int)
EMU_MIN_MAX(unsigned)
EMU_MIN_MAX(long)
EMU_MIN_MAX(unsigned long)
EMU_MIN_MAX(long long)
EMU_MIN_MAX(unsigned long long)
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }

/* ---- memory ---- */

template <typename T> static inline T __ldg(const T *p) { return *p; }
template <typename T> static inline T __ldcg(const T *p) { return *p; }
template <typename T> static inline T __ldcs(const T *p) { return *p; }
template <typename T> static inline void __stcg(T *p, T v) { *p = v; }
static inline void __threadfence(void) {}
[[noreturn]] static inline void __trap(void) { emu_fault("__trap()"); }
static inline void __threadfence_block(void) {}

/* As one step: nobody else runs meanwhile. `emu_atomic` checks, and the access itself does not. */
#define EMU_UNSEEN __attribute__((noinline, no_sanitize("address")))
template <typename T> static EMU_UNSEEN T emu_swap(T *p, T value)
{
    const T old = *p;

    *p = value;
    return old;
}
template <typename T> static EMU_UNSEEN T emu_look(T *p) { return *p; }

#define EMU_ATOMIC(name, value)                                           \
    template <typename T> static T name(T *p, decltype(T(0) + T(0)) v)    \
    {                                                                     \
        emu_atomic(p, sizeof *p);                                         \
        const T old = emu_look(p), by = (T)v;                             \
        return emu_swap(p, (T)(value));                                   \
    }
EMU_ATOMIC(atomicAdd, old + by)
EMU_ATOMIC(atomicSub, old - by)
EMU_ATOMIC(atomicMax, old < by ? by : old)
EMU_ATOMIC(atomicMin, by < old ? by : old)
EMU_ATOMIC(atomicOr, old | by)
EMU_ATOMIC(atomicAnd, old & by)
EMU_ATOMIC(atomicExch, (void(old), by))
EMU_ATOMIC(atomicInc, old >= by ? 0 : old + 1)

template <typename T> static T atomicCAS(T *p, T compare, T value)
{
    emu_atomic(p, sizeof *p);
    const T old = emu_look(p);

    return emu_swap(p, old == compare ? value : old);
}

/* ---- threads that meet ---- */

static inline void __syncthreads(void) { emu_barrier(0, 0); }
static inline void __syncwarp(unsigned mask = ~0u)
{
    emu_meet(mask, "__syncwarp()", NULL, NULL, true);
}

template <typename T> static inline uint64_t emu_widen(T v)
{
    uint64_t bits = 0;

    static_assert(sizeof v == 4 || sizeof v == 8, "a shuffle of 32 or 64 bits");
    memcpy(&bits, &v, sizeof v);
    return bits;
}

template <typename T> static inline T emu_shuffled(unsigned mask, T v, int from)
{
    const uint64_t bits = emu_shuffle(mask, emu_widen(v), from);

    memcpy(&v, &bits, sizeof v);
    return v;
}

/* A lane out of its part of `width` lanes keeps its own. */
template <typename T> static inline T __shfl_sync(unsigned mask, T v, int from, int width = 32)
{
    const int lane = emu_id % 32;

    return emu_shuffled(mask, v, lane / width * width + (from & (width - 1)));
}
template <typename T> static inline T __shfl_xor_sync(unsigned mask, T v, int by, int width = 32)
{
    const int lane = emu_id % 32, from = lane ^ by;

    return emu_shuffled(mask, v, from / width > lane / width ? lane : from);
}
template <typename T>
static inline T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32)
{
    const int lane = emu_id % 32, from = lane - (int)by;

    return emu_shuffled(mask, v, from < lane / width * width ? lane : from);
}
template <typename T>
static inline T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32)
{
    const int lane = emu_id % 32, from = lane + (int)by;

    return emu_shuffled(mask, v, from >= (lane / width + 1) * width ? lane : from);
}
static inline unsigned __ballot_sync(unsigned mask, int is_set)
{
    return emu_ballot(mask, is_set != 0);
}
static inline int __any_sync(unsigned mask, int is_set) { return emu_ballot(mask, is_set) != 0; }
static inline int __all_sync(unsigned mask, int is_set) { return emu_ballot(mask, !is_set) == 0; }
static inline unsigned __reduce_add_sync(unsigned mask, unsigned v)
{
    return emu_reduce(mask, v, '+');
}
static inline int __reduce_add_sync(unsigned mask, int v)
{
    return (int)emu_reduce(mask, (unsigned)v, '+');
}
static inline unsigned __reduce_max_sync(unsigned mask, unsigned v)
{
    return emu_reduce(mask, v, 'u');
}
static inline unsigned __reduce_min_sync(unsigned mask, unsigned v)
{
    return ~emu_reduce(mask, ~v, 'u');
}
static inline int __reduce_max_sync(unsigned mask, int v)
{
    return (int)emu_reduce(mask, (unsigned)v, 'i');
}
template <typename T> static inline unsigned __match_any_sync(unsigned mask, T v)
{
    return emu_match(mask, emu_widen(v));
}

#endif
