/* device_hop.c - see device_hop.h.
 *
 * The side that takes enqueues the copies: the kernel behind them then follows a copy of its own
 * stream, which no kernel overtakes that may begin before the kernel in front of it has ended.
 */
#include "kernels/cuda/runtime/device_hop.h"

#include <cuda_runtime_api.h>

#include "formats/base/mem.h"
#include "kernels/cuda/runtime/cuda_check.h"

struct sw_device_hop {
    sw_device *from, *to;
    cudaEvent_t ready; /* on the stream of `from` */
    cudaEvent_t taken; /* on that of `to` */
};

#define CHECK(call, err) sw_device_check((int)(call), #call, err)

static cudaStream_t stream_of(const sw_device *gpu) { return sw_device_stream(gpu); }

static int index_of(const sw_device *gpu) { return sw_device_about(gpu)->index; }

/* An event belongs to the device that is current when it is made. */
static sw_code make_event(cudaEvent_t *out, const sw_device *gpu, sw_err *err)
{
    sw_code rc = sw_device_use(gpu, err);

    return rc == SW_OK ? CHECK(cudaEventCreateWithFlags(out, cudaEventDisableTiming), err) : rc;
}

sw_code sw_device_hop_new(sw_device_hop **out, sw_device *from, sw_device *to, sw_err *err)
{
    sw_device_hop *hop = NULL;
    sw_code rc = SW_MEM_GET(&hop, 1, "a way between devices", err);

    if (rc != SW_OK) return rc;
    hop->from = from;
    hop->to = to;
    sw_device_pool_show(from, to);
    rc = make_event(&hop->ready, from, err);
    if (rc == SW_OK) rc = make_event(&hop->taken, to, err);
    if (rc == SW_OK) *out = hop;
    else sw_device_hop_free(hop);
    return rc;
}

void sw_device_hop_free(sw_device_hop *hop)
{
    if (!hop) return;
    if (hop->ready) (void)cudaEventDestroy(hop->ready);
    if (hop->taken) (void)cudaEventDestroy(hop->taken);
    sw_mem_put(hop);
}

sw_code sw_device_hop_begin(sw_device_hop *hop, sw_err *err)
{
    sw_code rc = sw_device_use(hop->from, err);

    if (rc == SW_OK) rc = CHECK(cudaEventRecord(hop->ready, stream_of(hop->from)), err);
    if (rc == SW_OK) rc = sw_device_use(hop->to, err);
    return rc == SW_OK ? CHECK(cudaStreamWaitEvent(stream_of(hop->to), hop->ready, 0), err) : rc;
}

sw_code sw_device_hop_copy(sw_device_hop *hop, void *d_to, const void *d_from, int64_t size_bytes,
                           sw_err *err)
{
    return CHECK(cudaMemcpyPeerAsync(d_to, index_of(hop->to), d_from, index_of(hop->from),
                                     (size_t)size_bytes, stream_of(hop->to)),
                 err);
}

sw_code sw_device_hop_end(sw_device_hop *hop, sw_err *err)
{
    return CHECK(cudaEventRecord(hop->taken, stream_of(hop->to)), err);
}

sw_code sw_device_hop_await(sw_device_hop *hop, sw_err *err)
{
    return CHECK(cudaStreamWaitEvent(stream_of(hop->from), hop->taken, 0), err);
}
