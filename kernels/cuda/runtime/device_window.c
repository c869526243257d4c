/* device_window.c - memory of one device that processes with other devices of the host can copy
 * from (kernels/device.h).
 */
#include <cuda_runtime.h>
#include <string.h>

#include "kernels/cuda/runtime/cuda_check.h"
#include "kernels/device.h"

_Static_assert(sizeof(cudaIpcMemHandle_t) == SW_DEVICE_WINDOW_NAME_BYTES, "a window's name");

/* What could not be done is no error of what comes after it. */
static bool works(cudaError_t code)
{
    if (code == cudaSuccess) return true;
    (void)cudaGetLastError();
    return false;
}

/* Beside the pool: memory of pools has no such name. */
bool sw_device_window_new(void **d_window, void *name, sw_device *gpu, int64_t size_bytes)
{
    cudaIpcMemHandle_t handle;
    void *d = NULL;

    (void)gpu;
    if (!works(cudaMalloc(&d, (size_t)size_bytes))) return false;
    if (!works(cudaIpcGetMemHandle(&handle, d))) {
        (void)works(cudaFree(d));
        return false;
    }
    memcpy(name, &handle, sizeof handle);
    *d_window = d;
    return true;
}

void sw_device_window_free(sw_device *gpu, void *d_window)
{
    (void)gpu;
    if (d_window) (void)works(cudaFree(d_window));
}

bool sw_device_window_open(void **d_window, sw_device *gpu, const void *name)
{
    cudaIpcMemHandle_t handle;

    (void)gpu;
    memcpy(&handle, name, sizeof handle);
    return works(cudaIpcOpenMemHandle(d_window, handle, cudaIpcMemLazyEnablePeerAccess));
}

void sw_device_window_close(sw_device *gpu, void *d_window)
{
    (void)gpu;
    if (d_window) (void)works(cudaIpcCloseMemHandle(d_window));
}

sw_code sw_device_window_copy(sw_device *gpu, void *d_to, const void *d_from, int64_t size_bytes,
                              sw_err *err)
{
    sw_code rc = sw_device_check((int)cudaMemcpyAsync(d_to, d_from, (size_t)size_bytes,
                                                      cudaMemcpyDefault, sw_device_stream(gpu)),
                                 "copy between devices", err);

    return rc == SW_OK ? sw_device_sync(gpu, err) : rc;
}
