/* runtime.c - the CUDA runtime of a device that is the processor: memory is the host's, with the
 * red zones of ASan; streams and events are there in name, for everything is done when it is asked
 * for. A graph is a list of what was asked for while it was captured.
 */
#include <cuda_runtime_api.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/emulate/emulate.h"

#define DEVICE_BYTES ((size_t)64 << 30)
#define ENTRIES_MAX 1024
#define CHECK_ALIGN ((size_t)256)

struct CUstream_st {
    struct CUgraph_st *captures;
};

struct CUevent_st {
    struct timespec at;
};

struct CUmemPoolHandle_st {
    uint64_t used, most;
};

/* A launch, what the host does, or a copy; a fill where `from` is NULL. */
typedef struct step {
    struct step *next;
    emu_launch_args launch; /* of the host: without blocks */
    void *to;
    const void *from;
    size_t n_bytes;
    int byte;
} step;

struct CUgraph_st {
    step *first, **end;
    int n_owners; /* it and what was made of it */
};

static cudaError_t last_error;
static struct CUgraph_st *capturing; /* of whichever stream: tests capture one at a time */
static pthread_mutex_t pool_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
    const void *kernel;
    emu_caller *call;
    bool is_hopper;
} entries[ENTRIES_MAX];
static int n_entries;

cudaError_t emu_launched(const emu_launch_args *l); /* of cuda_on_cpu.h */
int emu_cluster_of(const cudaLaunchConfig_t *c);
const char *__asan_default_options(void);
/* What tests take from a pool lives until the device is closed, and with it the program. */
const char *__asan_default_options(void) { return "detect_leaks=0"; }

/* Compute capability: 8, or what SW_EMULATE_SM=90 says. */
static int emu_major(void)
{
    const char *sm = getenv("SW_EMULATE_SM");

    return sm && strcmp(sm, "90") == 0 ? 9 : 8;
}

size_t emu_shared_max(void) { return (size_t)(emu_major() >= 9 ? 227 : 163) << 10; }

static cudaError_t done(cudaError_t e)
{
    if (e != cudaSuccess) last_error = e;
    return e;
}

/* ---- launches ---- */

static cudaError_t keep_step(const step *s, const void *tail, size_t tail_bytes)
{
    step *kept = malloc(sizeof *kept + tail_bytes);

    if (!kept) return done(cudaErrorMemoryAllocation);
    *kept = *s;
    kept->next = NULL;
    if (tail_bytes) {
        memcpy(kept + 1, tail, tail_bytes);
        kept->launch.ctx = kept + 1;
    }
    *capturing->end = kept;
    capturing->end = &kept->next;
    return cudaSuccess;
}

cudaError_t emu_launched(const emu_launch_args *l)
{
    const step s = {.launch = *l};

    if (capturing) return keep_step(&s, l->ctx, l->ctx_bytes);
    return done(emu_run(l) ? cudaSuccess : cudaErrorInvalidConfiguration);
}

void emu_enqueue(void (*run)(const void *ctx), const void *ctx, size_t ctx_bytes)
{
    const step s = {.launch = {.call = run, .ctx = ctx, .ctx_bytes = ctx_bytes}};

    if (capturing) (void)keep_step(&s, ctx, ctx_bytes);
    else run(ctx);
}

void emu_remember(const void *kernel, emu_caller *call, bool is_hopper)
{
    for (int i = 0; i < n_entries; i++)
        if (entries[i].kernel == kernel) return;
    if (n_entries == ENTRIES_MAX) abort();
    entries[n_entries].kernel = kernel;
    entries[n_entries].is_hopper = is_hopper;
    entries[n_entries++].call = call;
}

typedef struct entry_call {
    const void *kernel;
    emu_caller *call;
    void *const *args;
} entry_call;

static void call_entry(const void *ctx)
{
    const entry_call *c = ctx;

    c->call(c->kernel, c->args);
}

/* In x; only such are had. */
int emu_cluster_of(const cudaLaunchConfig_t *c)
{
    for (unsigned i = 0; i < c->numAttrs; i++)
        if (c->attrs[i].id == cudaLaunchAttributeClusterDimension)
            return emu_major() >= 9 && c->attrs[i].val.clusterDim.y == 1 &&
                           c->attrs[i].val.clusterDim.z == 1
                       ? (int)c->attrs[i].val.clusterDim.x
                       : -1;
    return 0;
}

/* Arguments are read during the call, so such a launch cannot be captured. */
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *kernel, void **args)
{
    entry_call entry = {kernel, NULL, args};
    emu_launch_args l = {.grid = {c->gridDim.x, c->gridDim.y, c->gridDim.z},
                         .block = {c->blockDim.x, c->blockDim.y, c->blockDim.z},
                         .shared_bytes = c->dynamicSmemBytes, .call = call_entry, .ctx = &entry};

    for (int i = 0; i < n_entries; i++)
        if (entries[i].kernel == kernel) {
            entry.call = entries[i].call;
            l.is_hopper = entries[i].is_hopper;
        }
    l.cluster = emu_cluster_of(c);
    if (l.cluster < 0) return done(cudaErrorInvalidConfiguration);
    if (!entry.call || capturing) return done(cudaErrorInvalidDeviceFunction);
    return done(emu_run(&l) ? cudaSuccess : cudaErrorInvalidConfiguration);
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute what, int value)
{
    (void)kernel;
    if (what == cudaFuncAttributeMaxDynamicSharedMemorySize && (size_t)value > emu_shared_max())
        return done(cudaErrorInvalidValue);
    return cudaSuccess;
}

/* ---- the device ---- */

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    return done(device ? cudaErrorInvalidDevice : cudaSuccess);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    memset(p, 0, sizeof *p);
    if (device) return done(cudaErrorInvalidDevice);
    (void)snprintf(p->name, sizeof p->name, "an emulated device");
    p->major = emu_major();
    p->multiProcessorCount = EMU_MULTIPROCESSORS;
    p->l2CacheSize = 1 << 20;
    p->totalGlobalMem = DEVICE_BYTES;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr what, int device)
{
    (void)device;
    *value = what == cudaDevAttrComputeCapabilityMajor           ? emu_major()
             : what == cudaDevAttrMultiProcessorCount            ? EMU_MULTIPROCESSORS
             : what == cudaDevAttrMaxSharedMemoryPerBlockOptin   ? (int)emu_shared_max()
             : what == cudaDevAttrMaxSharedMemoryPerMultiprocessor
                 ? (int)emu_shared_max() + 1024
                 : 0;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *n_free, size_t *n_all)
{
    *n_free = *n_all = DEVICE_BYTES;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    (void)device, (void)peer;
    *can = 0;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) { return cudaDriverGetVersion(version); }

cudaError_t cudaDeviceSynchronize(void) { return cudaSuccess; }

cudaError_t cudaPeekAtLastError(void) { return last_error; }

cudaError_t cudaGetLastError(void)
{
    const cudaError_t e = last_error;

    last_error = cudaSuccess;
    return e;
}

const char *cudaGetErrorString(cudaError_t e)
{
    if (e == cudaErrorInvalidConfiguration) return "no such launch on an emulated device";
    if (e == cudaErrorNotSupported) return "not emulated";
    return e == cudaSuccess ? "no error" : "an error of the emulated runtime";
}

/* ---- memory ---- */

/* What is there at first is nothing that a kernel may use: NaNs, or ids that are none. */
static void *take(size_t n_bytes)
{
    void *p = NULL;

    if (n_bytes > DEVICE_BYTES) return NULL;
    if (posix_memalign(&p, CHECK_ALIGN, n_bytes ? n_bytes : 1)) return NULL;
    memset(p, 0xff, n_bytes);
    return p;
}

cudaError_t cudaMalloc(void **p, size_t n_bytes)
{
    return done((*p = take(n_bytes)) ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void *p)
{
    free(p);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **p, size_t n_bytes, unsigned flags)
{
    (void)flags;
    return cudaMalloc(p, n_bytes);
}

cudaError_t cudaFreeHost(void *p) { return cudaFree(p); }

/* Each allocation of a pool has its pool and size in front, in a line of its own. */
typedef struct pool_note {
    struct CUmemPoolHandle_st *pool;
    size_t n_bytes;
} pool_note;

typedef struct noted {
    struct noted *next;
    void *p;
    pool_note note;
} noted;

static noted *all_noted;

cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const struct cudaMemPoolProps *props)
{
    (void)props;
    return done((*pool = calloc(1, sizeof **pool)) ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool)
{
    noted **at = &all_noted;

    pthread_mutex_lock(&pool_mutex);
    while (*at) {
        noted *n = *at;

        if (n->note.pool == pool) {
            *at = n->next;
            free(n->p);
            free(n);
        } else at = &n->next;
    }
    pthread_mutex_unlock(&pool_mutex);
    free(pool);
    return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr what, void *value)
{
    (void)pool, (void)what, (void)value;
    return cudaSuccess;
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr what, void *value)
{
    pthread_mutex_lock(&pool_mutex);
    *(uint64_t *)value = what == cudaMemPoolAttrUsedMemHigh ? pool->most : pool->used;
    pthread_mutex_unlock(&pool_mutex);
    return cudaSuccess;
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *list, size_t n)
{
    (void)pool, (void)list, (void)n;
    return cudaSuccess;
}

cudaError_t cudaMallocFromPoolAsync(void **p, size_t n_bytes, cudaMemPool_t pool,
                                    cudaStream_t stream)
{
    noted *n = malloc(sizeof *n);

    (void)stream;
    *p = take(n_bytes);
    if (!n || !*p) {
        free(n);
        free(*p);
        return done(cudaErrorMemoryAllocation);
    }
    pthread_mutex_lock(&pool_mutex);
    *n = (noted){all_noted, *p, {pool, n_bytes}};
    all_noted = n;
    pool->used += n_bytes;
    if (pool->used > pool->most) pool->most = pool->used;
    pthread_mutex_unlock(&pool_mutex);
    return cudaSuccess;
}

cudaError_t cudaFreeAsync(void *p, cudaStream_t stream)
{
    noted **at = &all_noted, *n;

    (void)stream;
    pthread_mutex_lock(&pool_mutex);
    while (*at && (*at)->p != p) at = &(*at)->next;
    n = *at;
    if (n) {
        *at = n->next;
        n->note.pool->used -= n->note.n_bytes;
    }
    pthread_mutex_unlock(&pool_mutex);
    free(p);
    free(n);
    return cudaSuccess;
}

/* ---- copies ---- */

static void move(const step *s)
{
    if (s->from) memmove(s->to, s->from, s->n_bytes);
    else memset(s->to, s->byte, s->n_bytes);
}

static cudaError_t copy(void *to, const void *from, int byte, size_t n_bytes)
{
    const step s = {.to = to, .from = from, .n_bytes = n_bytes, .byte = byte};

    if (n_bytes == 0) return cudaSuccess;
    if (capturing) return keep_step(&s, NULL, 0);
    move(&s);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t n_bytes, enum cudaMemcpyKind kind)
{
    (void)kind;
    return copy(to, from, 0, n_bytes);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n_bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    (void)kind, (void)stream;
    return copy(to, from, 0, n_bytes);
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t n_bytes, cudaStream_t stream)
{
    (void)to_device, (void)from_device, (void)stream;
    return copy(to, from, 0, n_bytes);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    cudaError_t e = cudaSuccess;

    (void)kind, (void)stream;
    for (size_t i = 0; i < height && e == cudaSuccess; i++)
        e = copy((char *)to + i * to_pitch, (const char *)from + i * from_pitch, 0, width);
    return e;
}

cudaError_t cudaMemset(void *to, int byte, size_t n_bytes) { return copy(to, NULL, byte, n_bytes); }

cudaError_t cudaMemsetAsync(void *to, int byte, size_t n_bytes, cudaStream_t stream)
{
    (void)stream;
    return copy(to, NULL, byte, n_bytes);
}

cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int byte, size_t width, size_t height,
                              cudaStream_t stream)
{
    cudaError_t e = cudaSuccess;

    (void)stream;
    for (size_t i = 0; i < height && e == cudaSuccess; i++)
        e = copy((char *)to + i * pitch, NULL, byte, width);
    return e;
}

/* ---- streams, events, graphs ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    (void)flags;
    return done((*stream = calloc(1, sizeof **stream)) ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) { return cudaStreamCreateWithFlags(stream, 0); }

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    free(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    (void)stream;
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)stream, (void)event, (void)flags;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    (void)flags;
    return done((*event = calloc(1, sizeof **event)) ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    (void)stream;
    clock_gettime(CLOCK_MONOTONIC, &event->at);
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    (void)event;
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    *ms = (float)(1e3 * (double)(end->at.tv_sec - begin->at.tv_sec) +
                  1e-6 * (double)(end->at.tv_nsec - begin->at.tv_nsec));
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    (void)stream, (void)mode;
    if (capturing) return done(cudaErrorNotSupported);
    capturing = calloc(1, sizeof *capturing);
    if (!capturing) return done(cudaErrorMemoryAllocation);
    capturing->end = &capturing->first;
    capturing->n_owners = 1;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    (void)stream;
    *graph = capturing;
    capturing = NULL;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    (void)flags;
    graph->n_owners++;
    *exec = (cudaGraphExec_t)graph;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    if (--graph->n_owners > 0) return cudaSuccess;
    for (step *s = graph->first, *next; s; s = next) {
        next = s->next;
        free(s);
    }
    free(graph);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    return cudaGraphDestroy((cudaGraph_t)exec);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    cudaError_t e = cudaSuccess;

    (void)stream;
    for (const step *s = ((cudaGraph_t)exec)->first; s && e == cudaSuccess; s = s->next)
        if (s->launch.call && !s->launch.grid.x) s->launch.call(s->launch.ctx);
        else if (s->launch.call) e = emu_launched(&s->launch);
        else move(s);
    return e;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *p)
{
    (void)handle, (void)p;
    return done(cudaErrorNotSupported);
}

cudaError_t cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t handle, unsigned flags)
{
    (void)p, (void)handle, (void)flags;
    return done(cudaErrorNotSupported);
}

cudaError_t cudaIpcCloseMemHandle(void *p)
{
    (void)p;
    return done(cudaErrorNotSupported);
}
