/* cuda_upload.c - see cuda_upload.h. */
#include "kernels/cuda/runtime/cuda_upload.h"

#include <pthread.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "kernels/cuda/runtime/cuda_check.h"
#include "kernels/device.h"

#define PIECES 4
#define PIECE_BYTES (SW_DEVICE_PINNED_BYTES / PIECES)
#define PART_BYTES ((int64_t)128 << 10) /* of a piece, that one thread copies */

struct sw_upload {
    pthread_mutex_t mutex;
    int n_threads;
    bool has_failed;      /* no memory could be pinned; it is not tried again */
    char *pinned;         /* [PIECES, PIECE_BYTES], or NULL before the first copy */
    cudaEvent_t is_sent[PIECES]; /* each piece, by the last copy that had it */
    int64_t n_sent;       /* pieces, of all copies: they take turns */
};

typedef struct part_job {
    char *to;
    const char *from;
} part_job;

sw_code sw_upload_new(sw_upload **out, int n_threads, sw_err *err)
{
    sw_upload *u = NULL;
    sw_code rc = SW_MEM_GET(&u, 1, "uploads", err);

    if (rc != SW_OK) return rc;
    u->n_threads = n_threads;
    (void)pthread_mutex_init(&u->mutex, NULL);
    *out = u;
    return SW_OK;
}

static void unpin(sw_upload *u)
{
    for (int i = 0; i < PIECES; i++) {
        if (u->is_sent[i]) (void)cudaEventDestroy(u->is_sent[i]);
        u->is_sent[i] = NULL;
    }
    if (u->pinned) (void)cudaFreeHost(u->pinned);
    u->pinned = NULL;
}

void sw_upload_free(sw_upload *u)
{
    if (!u) return;
    unpin(u);
    (void)pthread_mutex_destroy(&u->mutex);
    sw_mem_put(u);
}

/* With the mutex held. */
static bool is_ready(sw_upload *u)
{
    if (u->pinned || u->has_failed) return !u->has_failed;
    u->has_failed = cudaHostAlloc((void **)&u->pinned, PIECES * PIECE_BYTES,
                                  cudaHostAllocDefault) != cudaSuccess;
    for (int i = 0; i < PIECES && !u->has_failed; i++)
        u->has_failed =
            cudaEventCreateWithFlags(&u->is_sent[i], cudaEventDisableTiming) != cudaSuccess;
    if (!u->has_failed) return true;
    unpin(u);
    (void)cudaGetLastError(); /* it would stick */
    return false;
}

static void copy_part(void *ctx, int64_t begin, int64_t end, int thread)
{
    const part_job *job = ctx;

    (void)thread;
    memcpy(job->to + begin, job->from + begin, (size_t)(end - begin));
}

static sw_code send(sw_upload *u, char *d_to, const char *from, int64_t size_bytes,
                    cudaStream_t stream, sw_err *err)
{
    static const char what[] = "an upload through pinned memory";
    sw_code rc = SW_OK;

    for (int64_t at = 0; at < size_bytes && rc == SW_OK; at += PIECE_BYTES) {
        const int64_t n = sw_min_i64(PIECE_BYTES, size_bytes - at), i = u->n_sent++ % PIECES;
        part_job job = {u->pinned + i * PIECE_BYTES, from + at};

        rc = sw_device_check((int)cudaEventSynchronize(u->is_sent[i]), what, err);
        if (rc != SW_OK) break;
        sw_parallel_for(u->n_threads, n, PART_BYTES, copy_part, &job);
        rc = sw_device_check((int)cudaMemcpyAsync(d_to + at, job.to, (size_t)n,
                                                  cudaMemcpyHostToDevice, stream), what, err);
        if (rc == SW_OK)
            rc = sw_device_check((int)cudaEventRecord(u->is_sent[i], stream), what, err);
    }
    if (rc != SW_OK) (void)cudaStreamSynchronize(stream); /* what was sent reads the pieces */
    return rc;
}

sw_code sw_upload_begin(bool *is_done, sw_upload *u, void *d_to, const void *from,
                        int64_t size_bytes, cudaStream_t stream, sw_err *err)
{
    sw_code rc = SW_OK;

    *is_done = false;
    if (pthread_mutex_trylock(&u->mutex) != 0) return SW_OK;
    if ((*is_done = is_ready(u))) rc = send(u, d_to, from, size_bytes, stream, err);
    (void)pthread_mutex_unlock(&u->mutex);
    return rc;
}
