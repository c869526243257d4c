/* cublaslt_library.c - see cublaslt_library.h. */
#include "kernels/cuda/gemm/cublaslt/cublaslt_library.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "kernels/cuda/gemm/cublaslt/cublaslt.h"
#include "kernels/cuda/runtime/cuda_check.h"

#define N_DEVICES 64

/* Of the process, as is what it guards: which kernels are loaded, and the handle of each device.
 * Handles stay, and streams share them: to destroy one ends the captures of all other threads. */
static pthread_mutex_t loading = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static cublasLtHandle_t handles[N_DEVICES];

void sw_cublaslt_hold(void) { (void)pthread_mutex_lock(&loading); }
void sw_cublaslt_release(void) { (void)pthread_mutex_unlock(&loading); }

sw_code sw_cublaslt_check(cublasStatus_t s, const char *what, sw_err *err)
{
    if (s == CUBLAS_STATUS_SUCCESS) return SW_OK;
    return SW_FAIL(err, s == CUBLAS_STATUS_ALLOC_FAILED ? SW_E_NOMEM : SW_E_CUDA,
                   "%s: cuBLASLt status %d (%s)", what, (int)s,
                   cudaGetErrorString(cudaPeekAtLastError()));
}

/* The library stays when the last user closes it: taking out and in what registers kernels with the
 * runtime is not safe beside threads that use it. */
sw_code sw_cublaslt_library_open(sw_cublaslt_library *out, sw_err *err)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12",
                                        "libcublasLt.so"};
    sw_cublaslt_library lib = {0};

    for (size_t i = 0; i < sizeof names / sizeof *names && !lib.handle; i++)
        lib.handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!lib.handle)
        return SW_FAIL(err, SW_E_CUDA, "libcublasLt.so.13 is not to be found; install cuBLAS of "
                       "CUDA 12 or 13 (libcublas), or use --device cpu");
    /* POSIX says that a function's address passes through void * */
#define FUNCTION(name)                                                                             \
    *(void **)&lib.name##_at = dlsym(lib.handle, #name);                                           \
    if (!lib.name##_at) {                                                                          \
        sw_cublaslt_library_close(&lib);                                                           \
        return SW_FAIL(err, SW_E_CUDA, "libcublasLt has no %s", #name);                            \
    }
    SW_CUBLASLT_FUNCTIONS(FUNCTION)
#undef FUNCTION
    *out = lib;
    return SW_OK;
}

void sw_cublaslt_library_close(sw_cublaslt_library *lib)
{
    if (lib->handle) (void)dlclose(lib->handle);
    memset(lib, 0, sizeof *lib);
}

sw_code sw_cublaslt_library_handle(cublasLtHandle_t *out, const sw_cublaslt_library *lib,
                                   sw_err *err)
{
    int device = 0;
    sw_code rc = sw_device_check((int)cudaGetDevice(&device), "device", err);

    if (rc != SW_OK) return rc;
    if (device >= N_DEVICES)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "device %d: there are no products on devices from %d "
                       "on; name it first in CUDA_VISIBLE_DEVICES", device, N_DEVICES);
    sw_cublaslt_hold();
    if (!handles[device]) {
        rc = sw_cublaslt_check(lib->cublasLtCreate_at(&handles[device]), "cublasLtCreate", err);
        if (rc != SW_OK) handles[device] = NULL;
    }
    *out = handles[device];
    sw_cublaslt_release();
    return rc;
}
