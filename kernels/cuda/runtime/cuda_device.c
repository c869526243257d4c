/* cuda_device.c - see device.h. */
#include "kernels/device.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "kernels/cuda/runtime/cuda_check.h"
#include "kernels/cuda/runtime/cuda_upload.h"
#include "kernels/cuda/runtime/device_hop.h"

#define RESERVE_BYTES ((int64_t)256 << 20) /* for the driver: modules, local memory, graphs */
#define OLDEST_ARCH 80
/* That copy into pinned memory: on a host of Hopper 8 do 48 GB/s, 4 do 36, 1 does 10. Of branches
 * several copy at once. */
#define UPLOAD_THREADS 8
#define BRANCH_UPLOAD_THREADS 2
#define UPLOAD_BYTES_MIN ((int64_t)1 << 20)

struct sw_device {
    sw_device_info info;
    cudaStream_t stream;
    cudaMemPool_t pool;
    bool is_branch;      /* the pool is another's */
    sw_upload *upload;
};

sw_code sw_device_check(int code, const char *what, sw_err *err)
{
    const cudaError_t e = (cudaError_t)code;

    if (e == cudaSuccess) return SW_OK;
    if (e == cudaErrorMemoryAllocation)
        return SW_FAIL(err, SW_E_NOMEM, "%s: the device is out of memory", what);
    return SW_FAIL(err, SW_E_CUDA, "%s: %s", what, cudaGetErrorString(e));
}

#define CHECK(call, err) sw_device_check((int)(call), #call, err)

bool sw_device_is_built(void) { return true; }

int sw_device_count(void)
{
    int n = 0;

    if (cudaGetDeviceCount(&n) == cudaSuccess) return n;
    (void)cudaGetLastError(); /* it would stick */
    return 0;
}

/* Why there is no device, and what helps. */
static sw_code explain_none(cudaError_t e, sw_err *err)
{
    int driver = 0, runtime = 0;

    (void)cudaGetLastError();
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    if (e == cudaErrorInsufficientDriver && driver == 0)
        return SW_FAIL(err, SW_E_CUDA, "no NVIDIA driver is loaded here; install one, or use "
                                       "--device cpu");
    if (e == cudaErrorInsufficientDriver)
        return SW_FAIL(err, SW_E_CUDA, "the NVIDIA driver serves CUDA %d.%d and this program was "
                       "built with %d.%d; update the driver, or use --device cpu", driver / 1000,
                       driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    return SW_FAIL(err, SW_E_CUDA, "no CUDA device can be used (%s); see nvidia-smi, or use "
                   "--device cpu", cudaGetErrorString(e));
}

sw_code sw_device_describe(sw_device_info *out, int index, sw_err *err)
{
    struct cudaDeviceProp p;
    const sw_code rc = CHECK(cudaGetDeviceProperties(&p, index), err);

    if (rc != SW_OK) {
        (void)cudaGetLastError(); /* it would stick */
        return rc;
    }
    *out = (sw_device_info){.index = index, .arch = 10 * p.major + p.minor,
                            .n_sms = p.multiProcessorCount, .l2_bytes = p.l2CacheSize,
                            .total_bytes = (int64_t)p.totalGlobalMem};
    (void)snprintf(out->name, sizeof out->name, "%s", p.name);
    return SW_OK;
}

/* With the memory that is free, and only what the kernels run on. */
static sw_code describe(sw_device_info *info, int index, int64_t cap_bytes, sw_err *err)
{
    size_t n_free = 0, n_total = 0;
    sw_code rc = sw_device_describe(info, index, err);

    if (rc != SW_OK) return rc;
    if (info->arch < OLDEST_ARCH)
        return SW_FAIL(err, SW_E_CUDA, "cuda:%d is a %s of compute capability %d.%d, and the "
                       "kernels need 8.0 (A100) or later; use another device or --device "
                       "cpu", index, info->name, info->arch / 10, info->arch % 10);
    if ((rc = CHECK(cudaSetDevice(index), err)) != SW_OK) return rc;
    if ((rc = CHECK(cudaMemGetInfo(&n_free, &n_total), err)) != SW_OK) return rc;
    info->total_bytes = (int64_t)n_total;
    info->cap_bytes = (int64_t)n_free - RESERVE_BYTES;
    if (info->cap_bytes <= 0)
        return SW_FAIL(err, SW_E_NOMEM, "cuda:%d has %lld MB free; other programs hold the rest",
                       index, (long long)(n_free >> 20));
    if (cap_bytes > info->cap_bytes)
        return SW_FAIL(err, SW_E_NOMEM, "cuda:%d has %lld MB free for the %lld MB asked for", index,
                       (long long)(info->cap_bytes >> 20), (long long)(cap_bytes >> 20));
    if (cap_bytes > 0) info->cap_bytes = cap_bytes;
    return SW_OK;
}

static sw_code make_pool(sw_device *gpu, sw_err *err)
{
    struct cudaMemPoolProps props = {.allocType = cudaMemAllocationTypePinned,
                                     .location = {.type = cudaMemLocationTypeDevice,
                                                  .id = gpu->info.index}};
    uint64_t keep = UINT64_MAX; /* what is put back stays in the pool */
    sw_code rc;

    if ((rc = CHECK(cudaMemPoolCreate(&gpu->pool, &props), err)) != SW_OK) return rc;
    return CHECK(cudaMemPoolSetAttribute(gpu->pool, cudaMemPoolAttrReleaseThreshold, &keep), err);
}

void sw_device_pool_show(const sw_device *of, const sw_device *to)
{
    const struct cudaMemAccessDesc access = {
        .location = {.type = cudaMemLocationTypeDevice, .id = to->info.index},
        .flags = cudaMemAccessFlagsProtReadWrite};
    int can = 0;

    if (of->info.index == to->info.index) return;
    if (cudaDeviceCanAccessPeer(&can, to->info.index, of->info.index) != cudaSuccess || !can ||
        cudaMemPoolSetAccess(of->pool, &access, 1) != cudaSuccess)
        (void)cudaGetLastError(); /* then copies go another way */
}

static int upload_threads(int most)
{
    const int n = sw_cpu_count();

    return n < most ? n : most;
}

sw_code sw_device_open(sw_device **out, int index, int64_t cap_bytes, sw_err *err)
{
    sw_device *gpu = NULL;
    int n = 0;
    const cudaError_t e = cudaGetDeviceCount(&n);
    sw_code rc;

    if (e != cudaSuccess || n == 0) return explain_none(e, err);
    if (index < 0 || index >= n)
        return SW_FAIL(err, SW_E_CUDA, "cuda:%d: this machine has cuda:0 to cuda:%d", index, n - 1);
    if ((rc = SW_MEM_GET(&gpu, 1, "device", err)) != SW_OK) return rc;
    if ((rc = describe(&gpu->info, index, cap_bytes, err)) != SW_OK) goto done;
    if ((rc = CHECK(cudaStreamCreateWithFlags(&gpu->stream, cudaStreamNonBlocking), err)) != SW_OK)
        goto done;
    if ((rc = make_pool(gpu, err)) != SW_OK) goto done;
    if ((rc = sw_upload_new(&gpu->upload, upload_threads(UPLOAD_THREADS), err)) != SW_OK)
        goto done;
    *out = gpu;
    gpu = NULL;
done:
    sw_device_close(gpu);
    return rc;
}

sw_code sw_device_use(const sw_device *gpu, sw_err *err)
{
    return CHECK(cudaSetDevice(gpu->info.index), err);
}

sw_code sw_device_branch(sw_device **out, const sw_device *of, sw_err *err)
{
    sw_device *gpu = NULL;
    sw_code rc = sw_device_use(of, err);

    if (rc != SW_OK || (rc = SW_MEM_GET(&gpu, 1, "device", err)) != SW_OK) return rc;
    gpu->info = of->info;
    gpu->pool = of->pool;
    gpu->is_branch = true;
    rc = CHECK(cudaStreamCreateWithFlags(&gpu->stream, cudaStreamNonBlocking), err);
    if (rc == SW_OK)
        rc = sw_upload_new(&gpu->upload, upload_threads(BRANCH_UPLOAD_THREADS), err);
    if (rc == SW_OK) *out = gpu;
    else sw_device_close(gpu);
    return rc;
}

void sw_device_close(sw_device *gpu)
{
    if (!gpu) return;
    if (gpu->stream) {
        (void)cudaStreamSynchronize(gpu->stream);
        (void)cudaStreamDestroy(gpu->stream);
    }
    sw_upload_free(gpu->upload);
    if (gpu->pool && !gpu->is_branch) (void)cudaMemPoolDestroy(gpu->pool);
    (void)cudaGetLastError();
    sw_mem_put(gpu);
}

const sw_device_info *sw_device_about(const sw_device *gpu) { return &gpu->info; }

void *sw_device_stream(const sw_device *gpu) { return gpu->stream; }

static int64_t pool_value(const sw_device *gpu, enum cudaMemPoolAttr what)
{
    uint64_t value = 0;

    (void)cudaMemPoolGetAttribute(gpu->pool, what, &value);
    return (int64_t)value;
}

int64_t sw_device_taken_bytes(const sw_device *gpu)
{
    return pool_value(gpu, cudaMemPoolAttrUsedMemCurrent);
}

int64_t sw_device_left_bytes(const sw_device *gpu)
{
    return gpu->info.cap_bytes - sw_device_taken_bytes(gpu);
}

int64_t sw_device_peak_bytes(const sw_device *gpu)
{
    return pool_value(gpu, cudaMemPoolAttrUsedMemHigh);
}

sw_code sw_device_room(const sw_device *gpu, int64_t size_bytes, const char *what, sw_err *err)
{
    const int64_t left = gpu->info.cap_bytes - sw_device_taken_bytes(gpu);

    if (size_bytes <= left) return SW_OK;
    return SW_FAIL(err, SW_E_NOMEM, "%s: %lld MB, and cuda:%d has %lld of %lld MB left; use a "
                   "larger device, fewer tokens at once, or --device cpu", what,
                   (long long)(size_bytes >> 20), gpu->info.index, (long long)(left >> 20),
                   (long long)(gpu->info.cap_bytes >> 20));
}

sw_code sw_device_take(void **out, sw_device *gpu, int64_t n_elems, int64_t elem_bytes,
                       const char *what, sw_err *err)
{
    uint64_t size_bytes;
    sw_code rc;

    if (n_elems < 0 || elem_bytes < 0 ||
        !sw_mul_u64(&size_bytes, (uint64_t)n_elems, (uint64_t)elem_bytes) ||
        size_bytes > (uint64_t)INT64_MAX)
        return SW_FAIL(err, SW_E_NOMEM, "%s: %lld elements of %lld bytes", what,
                       (long long)n_elems, (long long)elem_bytes);
    if ((rc = sw_device_room(gpu, (int64_t)size_bytes, what, err)) != SW_OK) return rc;
    return sw_device_check((int)cudaMallocFromPoolAsync(out, size_bytes ? size_bytes : 1, gpu->pool,
                                                        gpu->stream),
                           what, err);
}

void sw_device_put(sw_device *gpu, void *taken)
{
    if (taken) (void)cudaFreeAsync(taken, gpu->stream);
}

/* *is_read: `from` is not read any more. */
static sw_code begin_upload(bool *is_read, sw_device *gpu, void *d_to, const void *from,
                            int64_t size_bytes, sw_err *err)
{
    sw_code rc = SW_OK;

    *is_read = false;
    if (size_bytes >= UPLOAD_BYTES_MIN)
        rc = sw_upload_begin(is_read, gpu->upload, d_to, from, size_bytes, gpu->stream, err);
    if (rc != SW_OK || *is_read) return rc;
    return CHECK(cudaMemcpyAsync(d_to, from, (size_t)size_bytes, cudaMemcpyHostToDevice,
                                 gpu->stream), err);
}

sw_code sw_device_upload_begin(sw_device *gpu, void *d_to, const void *from, int64_t size_bytes,
                               sw_err *err)
{
    bool is_read;
    const sw_code rc = begin_upload(&is_read, gpu, d_to, from, size_bytes, err);

    return rc == SW_OK && !is_read ? sw_device_sync(gpu, err) : rc;
}

sw_code sw_device_upload(sw_device *gpu, void *d_to, const void *from, int64_t size_bytes,
                         sw_err *err)
{
    bool is_read;
    const sw_code rc = begin_upload(&is_read, gpu, d_to, from, size_bytes, err);

    return rc == SW_OK ? sw_device_sync(gpu, err) : rc;
}

sw_code sw_device_download(sw_device *gpu, void *to, const void *d_from, int64_t size_bytes,
                           sw_err *err)
{
    sw_code rc = CHECK(cudaMemcpyAsync(to, d_from, (size_t)size_bytes, cudaMemcpyDeviceToHost,
                                       gpu->stream), err);

    return rc == SW_OK ? sw_device_sync(gpu, err) : rc;
}

sw_code sw_device_fill(sw_device *gpu, void *d_to, int byte, int64_t size_bytes, sw_err *err)
{
    return CHECK(cudaMemsetAsync(d_to, byte, (size_t)size_bytes, gpu->stream), err);
}

sw_code sw_device_sync(sw_device *gpu, sw_err *err)
{
    return CHECK(cudaStreamSynchronize(gpu->stream), err);
}

#define COPY_BYTES ((int64_t)1 << 30)
#define N_COPIES 9

static sw_code time_copies(sw_device *gpu, char *d, int64_t size_bytes, float *best_ms, sw_err *err)
{
    cudaEvent_t begin = NULL, end = NULL;
    sw_code rc;

    if ((rc = CHECK(cudaEventCreate(&begin), err)) != SW_OK ||
        (rc = CHECK(cudaEventCreate(&end), err)) != SW_OK)
        goto done;
    for (int i = 0; i < N_COPIES && rc == SW_OK; i++) {
        float ms = 0;

        (void)cudaEventRecord(begin, gpu->stream);
        (void)cudaMemcpyAsync(d, d + size_bytes, (size_t)size_bytes, cudaMemcpyDeviceToDevice,
                              gpu->stream);
        (void)cudaEventRecord(end, gpu->stream);
        if ((rc = CHECK(cudaEventSynchronize(end), err)) != SW_OK ||
            (rc = CHECK(cudaEventElapsedTime(&ms, begin, end), err)) != SW_OK)
            break;
        if (i == 0 || ms < *best_ms) *best_ms = ms;
    }
done:
    if (begin) (void)cudaEventDestroy(begin);
    if (end) (void)cudaEventDestroy(end);
    return rc;
}

sw_code sw_device_copy_rate(sw_device *gpu, double *gb_s, sw_err *err)
{
    const int64_t left = gpu->info.cap_bytes - sw_device_taken_bytes(gpu);
    const int64_t size_bytes = sw_min_i64(COPY_BYTES, left / 4);
    float best_ms = 0;
    void *d = NULL;
    sw_code rc = sw_device_take(&d, gpu, 2, size_bytes, "copy", err);

    if (rc == SW_OK) rc = sw_device_fill(gpu, d, 0x5a, 2 * size_bytes, err);
    if (rc == SW_OK) rc = time_copies(gpu, d, size_bytes, &best_ms, err);
    if (rc == SW_OK) *gb_s = 2e-6 * (double)size_bytes / (double)best_ms;
    sw_device_put(gpu, d);
    return rc;
}
