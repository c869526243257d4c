/* block_stream.c - see block_stream.h. */
#include "kernels/cuda/engine/block_stream.h"

#include <cuda_runtime_api.h>

#include "formats/base/size.h"
#include "kernels/cuda/runtime/cuda_check.h"

#define N_PLACES 2
#define EMPTY (-1)

typedef struct place {
    char *d;
    int64_t holds;      /* a block, or EMPTY */
    cudaEvent_t filled; /* on the copying stream */
    cudaEvent_t left;   /* on the engine's: what used it has ended */
} place;

typedef struct image {
    sw_device_block *block;
    void *bytes;        /* pinned */
    int64_t n_bytes;
} image;

struct sw_device_stream_blocks {
    sw_device_engine *e;
    int64_t first, n_blocks, place_bytes;
    cudaStream_t copies;
    place places[N_PLACES];
    image *images;      /* [n_blocks - first] */
};

#define CHECK(call, err) sw_device_check((int)(call), #call, err)

static place *place_of(sw_device_stream_blocks *s, int64_t l) { return &s->places[l % N_PLACES]; }

static sw_code make_places(sw_device_stream_blocks *s, sw_err *err)
{
    sw_code rc = sw_device_room(s->e->gpu, N_PLACES * s->place_bytes,
                                "two blocks of a model that does not fit", err);

    if (rc == SW_OK) rc = CHECK(cudaStreamCreateWithFlags(&s->copies, cudaStreamNonBlocking), err);
    for (int i = 0; i < N_PLACES && rc == SW_OK; i++) {
        place *p = &s->places[i];

        p->holds = EMPTY;
        if ((rc = sw_device_take((void **)&p->d, s->e->gpu, s->place_bytes, 1, "a block", err)) !=
                SW_OK ||
            (rc = CHECK(cudaMemsetAsync(p->d, 0, (size_t)s->place_bytes,
                                        sw_device_stream(s->e->gpu)),
                        err)) != SW_OK || /* an image has the gaps between arrays too */
            (rc = CHECK(cudaEventCreateWithFlags(&p->filled, cudaEventDisableTiming), err)) !=
                SW_OK)
            return rc;
        rc = CHECK(cudaEventCreateWithFlags(&p->left, cudaEventDisableTiming), err);
    }
    return rc;
}

/* Load a block where it will always lie, and keep its bytes. */
static sw_code make_image(sw_device_stream_blocks *s, const sw_block *from, int64_t l, sw_err *err)
{
    image *im = &s->images[l - s->first];
    place *p = place_of(s, l);
    cudaError_t e;
    sw_code rc;

    p->holds = EMPTY;
    rc = sw_device_block_load_at(&im->block, s->e, from, p->d, s->place_bytes, &im->n_bytes, err);
    if (rc != SW_OK) return rc;
    e = cudaHostAlloc(&im->bytes, (size_t)sw_max_i64(im->n_bytes, 1), cudaHostAllocDefault);
    if (e != cudaSuccess) {
        (void)cudaGetLastError();
        return SW_FAIL(err, SW_E_NOMEM, "%lld MB of pinned host memory for block %lld of a model "
                       "that does not fit the device: %s; use a larger device or --device cpu",
                       (long long)(im->n_bytes >> 20), (long long)l, cudaGetErrorString(e));
    }
    p->holds = l;
    return sw_device_download(s->e->gpu, im->bytes, p->d, im->n_bytes, err);
}

sw_code sw_device_stream_new(sw_device_stream_blocks **out, sw_device_engine *e,
                             const sw_block *from, int64_t first, int64_t n_blocks,
                             int64_t block_bytes, sw_err *err)
{
    sw_device_stream_blocks *s = NULL;
    sw_code rc = SW_MEM_GET(&s, 1, "blocks in host memory", err);

    if (rc != SW_OK) return rc;
    s->e = e;
    s->first = first;
    s->n_blocks = n_blocks;
    s->place_bytes = block_bytes;
    if ((rc = SW_MEM_GET(&s->images, n_blocks - first, "blocks in host memory", err)) == SW_OK)
        rc = make_places(s, err);
    for (int64_t l = first; l < n_blocks && rc == SW_OK; l++)
        rc = make_image(s, &from[l], l, err);
    if (rc == SW_OK)
        *out = s;
    else
        sw_device_stream_free(s);
    return rc;
}

void sw_device_stream_free(sw_device_stream_blocks *s)
{
    if (!s) return;
    if (s->copies) {
        (void)cudaStreamSynchronize(s->copies);
        (void)cudaStreamDestroy(s->copies);
    }
    for (int64_t i = 0; s->images && i < s->n_blocks - s->first; i++) {
        sw_device_block_free(s->images[i].block);
        if (s->images[i].bytes) (void)cudaFreeHost(s->images[i].bytes);
    }
    for (int i = 0; i < N_PLACES; i++) {
        if (s->places[i].filled) (void)cudaEventDestroy(s->places[i].filled);
        if (s->places[i].left) (void)cudaEventDestroy(s->places[i].left);
        sw_device_put(s->e->gpu, s->places[i].d);
    }
    sw_mem_put(s->images);
    sw_mem_put(s);
}

/* Ask for block l unless it is there. */
static sw_code ask(sw_device_stream_blocks *s, int64_t l, sw_err *err)
{
    const image *im = &s->images[l - s->first];
    place *p = place_of(s, l);
    sw_code rc;

    if (p->holds == l) return SW_OK;
    p->holds = EMPTY;
    if ((rc = CHECK(cudaStreamWaitEvent(s->copies, p->left, 0), err)) != SW_OK ||
        (rc = CHECK(cudaMemcpyAsync(p->d, im->bytes, (size_t)im->n_bytes, cudaMemcpyHostToDevice,
                                    s->copies), err)) != SW_OK ||
        (rc = CHECK(cudaEventRecord(p->filled, s->copies), err)) != SW_OK)
        return rc;
    p->holds = l;
    return SW_OK;
}

sw_code sw_device_stream_enter(const sw_device_block **out, sw_device_stream_blocks *s, int64_t l,
                               sw_err *err)
{
    const int64_t next = l + 1 < s->n_blocks ? l + 1 : s->first; /* of this pass or the one after */
    sw_code rc = ask(s, l, err);

    if (rc == SW_OK)
        rc = CHECK(cudaStreamWaitEvent(s->e->how.stream, place_of(s, l)->filled, 0), err);
    if (rc == SW_OK && place_of(s, next) != place_of(s, l)) rc = ask(s, next, err);
    if (rc == SW_OK) *out = s->images[l - s->first].block;
    return rc;
}

sw_code sw_device_stream_leave(sw_device_stream_blocks *s, int64_t l, sw_err *err)
{
    return CHECK(cudaEventRecord(place_of(s, l)->left, s->e->how.stream), err);
}

const sw_device_block *sw_device_stream_look(const sw_device_stream_blocks *s, int64_t l)
{
    return s->images[l - s->first].block;
}
