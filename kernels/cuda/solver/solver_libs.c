/* solver_libs.c - see solver_libs.cuh. */
#include <dlfcn.h>
#include <string.h>

#include "kernels/cuda/solver/solver_libs.cuh"

/* The newest first; the plain name is what a toolkit's development files add. */
static const char *const blas_names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so"};
static const char *const lapack_names[] = {"libcusolver.so.12", "libcusolver.so.11",
                                           "libcusolver.so"};

static sw_code open_first(void **out, const char *const *names, int n, sw_err *err)
{
    const char *why = "";

    for (int i = 0; i < n; i++) {
        if ((*out = dlopen(names[i], RTLD_NOW | RTLD_LOCAL))) return SW_OK;
        if (i == 0) why = dlerror();
    }
    return SW_FAIL(err, SW_E_CUDA,
                   "calibration on a GPU needs cuBLAS and cuSOLVER of CUDA 12 or 13 (%s); install "
                   "them, name their folder in LD_LIBRARY_PATH, or use --device cpu", why);
}

static sw_code find(void **fn, void *file, const char *name, sw_err *err)
{
    if ((*fn = dlsym(file, name))) return SW_OK;
    return SW_FAIL(err, SW_E_CUDA, "the CUDA libraries are too old: they have no %s", name);
}

sw_code sw_solver_libs_load(sw_solver_libs *out, sw_err *err)
{
    sw_solver_libs libs;
    sw_code rc;

    memset(&libs, 0, sizeof libs);
    if ((rc = open_first(&libs.blas_file, blas_names, 3, err)) != SW_OK) goto done;
    if ((rc = open_first(&libs.lapack_file, lapack_names, 3, err)) != SW_OK) goto done;
#define SW_FN(name) \
    if ((rc = find((void **)&libs.name##_fn, libs.blas_file, #name, err)) != SW_OK) goto done;
    SW_CUBLAS_FNS(SW_FN)
#undef SW_FN
#define SW_FN(name) \
    if ((rc = find((void **)&libs.name##_fn, libs.lapack_file, #name, err)) != SW_OK) goto done;
    SW_CUSOLVER_FNS(SW_FN)
#undef SW_FN
    *out = libs;
    return SW_OK;
done:
    sw_solver_libs_unload(&libs);
    return rc;
}

void sw_solver_libs_unload(sw_solver_libs *libs)
{
    if (libs->lapack_file) (void)dlclose(libs->lapack_file);
    if (libs->blas_file) (void)dlclose(libs->blas_file);
    memset(libs, 0, sizeof *libs);
}
