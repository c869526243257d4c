/* stub_gpu.c - gpu.h in a build without CUDA: no card can be opened, and the error says why. */
#include <stddef.h>

#include "kernels/gpu.h"

static sw_code absent(sw_err *err)
{
    return SW_FAIL(err, SW_E_CUDA, "this build of swage has no CUDA; build it where nvcc is (make "
                                   "CUDA=1), or use --device cpu");
}

bool sw_gpu_is_built(void) { return false; }

int sw_gpu_count(void) { return 0; }

sw_code sw_gpu_open(sw_gpu **out, int index, int64_t cap_bytes, sw_err *err)
{
    (void)out;
    (void)index;
    (void)cap_bytes;
    return absent(err);
}

void sw_gpu_close(sw_gpu *gpu) { (void)gpu; }

const sw_gpu_info *sw_gpu_about(const sw_gpu *gpu)
{
    (void)gpu;
    return NULL;
}

void *sw_gpu_stream(const sw_gpu *gpu)
{
    (void)gpu;
    return NULL;
}

sw_code sw_gpu_room(const sw_gpu *gpu, int64_t size_bytes, const char *what, sw_err *err)
{
    (void)gpu;
    (void)size_bytes;
    (void)what;
    return absent(err);
}

sw_code sw_gpu_take(void **out, sw_gpu *gpu, int64_t n_elems, int64_t elem_bytes, const char *what,
                    sw_err *err)
{
    (void)out;
    (void)gpu;
    (void)n_elems;
    (void)elem_bytes;
    (void)what;
    return absent(err);
}

void sw_gpu_put(sw_gpu *gpu, void *taken)
{
    (void)gpu;
    (void)taken;
}

int64_t sw_gpu_taken_bytes(const sw_gpu *gpu)
{
    (void)gpu;
    return 0;
}

int64_t sw_gpu_left_bytes(const sw_gpu *gpu)
{
    (void)gpu;
    return 0;
}

int64_t sw_gpu_peak_bytes(const sw_gpu *gpu)
{
    (void)gpu;
    return 0;
}

sw_code sw_gpu_upload(sw_gpu *gpu, void *d_to, const void *from, int64_t size_bytes, sw_err *err)
{
    (void)gpu;
    (void)d_to;
    (void)from;
    (void)size_bytes;
    return absent(err);
}

sw_code sw_gpu_download(sw_gpu *gpu, void *to, const void *d_from, int64_t size_bytes, sw_err *err)
{
    (void)gpu;
    (void)to;
    (void)d_from;
    (void)size_bytes;
    return absent(err);
}

sw_code sw_gpu_fill(sw_gpu *gpu, void *d_to, int byte, int64_t size_bytes, sw_err *err)
{
    (void)gpu;
    (void)d_to;
    (void)byte;
    (void)size_bytes;
    return absent(err);
}

sw_code sw_gpu_sync(sw_gpu *gpu, sw_err *err)
{
    (void)gpu;
    return absent(err);
}

sw_code sw_gpu_copy_rate(sw_gpu *gpu, double *gb_s, sw_err *err)
{
    (void)gpu;
    (void)gb_s;
    return absent(err);
}
