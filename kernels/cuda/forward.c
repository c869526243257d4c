/* forward.c - the CUDA half of the program, opened when a device is asked for.
 *
 * The program is built without nvcc. Each function of forward.def is defined here once more, as a
 * call into libswage_cuda.so; without that library the call fails and says where it was looked for.
 * A program that links the CUDA objects themselves never pulls this file out of libswage.a.
 *
 * The table of addresses is written once, before its first use, by whichever thread comes first.
 * SW_ABI, what the program was built from, comes from the Makefile.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "formats/io/library.h"
#include "kernels/engine/device_engine.h"
#include "kernels/solver.h"

#define LIBRARY "libswage_cuda.so"

const char *const sw_stage_names[SW_STAGE_COUNT] = {"fit", "sweep", "update", "refine", "loss",
                                                    "copy"};

typedef struct calls {
#define SW_CUDA_STEP(name, parameters, arguments) sw_code (*name) parameters;
#define SW_CUDA_VOID(name, parameters, arguments) void (*name) parameters;
#define SW_CUDA_VALUE(type, name, absent, parameters, arguments) type (*name) parameters;
#include "kernels/cuda/forward.def"
#undef SW_CUDA_STEP
#undef SW_CUDA_VOID
#undef SW_CUDA_VALUE
} calls;

/* Where each address goes, by name. A pointer to a function and one to an object are alike in
 * POSIX, which is what dlsym needs. */
static const struct {
    const char *name;
    size_t offset;
} places[] = {
#define SW_CUDA_STEP(name, parameters, arguments) {#name, offsetof(calls, name)},
#define SW_CUDA_VOID(name, parameters, arguments) {#name, offsetof(calls, name)},
#define SW_CUDA_VALUE(type, name, absent, parameters, arguments) {#name, offsetof(calls, name)},
#include "kernels/cuda/forward.def"
#undef SW_CUDA_STEP
#undef SW_CUDA_VOID
#undef SW_CUDA_VALUE
};

static pthread_once_t is_opened = PTHREAD_ONCE_INIT;
static calls table;
static bool is_there;
static char reason[400];

static bool fill_table(calls *out, void *library)
{
    const char *built_as = dlsym(library, "sw_cuda_abi");

    if (!built_as || strcmp(built_as, SW_ABI) != 0) {
        (void)snprintf(reason, sizeof reason, LIBRARY " was built from other sources than this "
                       "program; build both anew");
        return false;
    }
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        void *address = dlsym(library, places[i].name);
        if (!address) {
            (void)snprintf(reason, sizeof reason, LIBRARY " has no %s; build it anew",
                           places[i].name);
            return false;
        }
        memcpy((char *)out + places[i].offset, &address, sizeof address);
    }
    return true;
}

static void open_once(void)
{
    const sw_library half = {.name = LIBRARY, .variable = "SWAGE_CUDA_LIBRARY",
                             .remedy = "build it where nvcc is (make cuda)"};
    void *library = sw_library_open(&half, reason, sizeof reason);

    is_there = library && fill_table(&table, library);
}

static const calls *opened(void)
{
    (void)pthread_once(&is_opened, open_once);
    return is_there ? &table : NULL;
}

static sw_code absent(sw_err *err)
{
    return SW_FAIL(err, SW_E_CUDA, "%s, or use --device cpu", reason);
}

#define SW_CUDA_STEP(name, parameters, arguments)                         \
    sw_code name parameters                                               \
    {                                                                     \
        return opened() ? table.name arguments : absent(err);             \
    }
#define SW_CUDA_VOID(name, parameters, arguments) \
    void name parameters                          \
    {                                             \
        if (opened()) table.name arguments;       \
    }
#define SW_CUDA_VALUE(type, name, without, parameters, arguments) \
    type name parameters                                          \
    {                                                             \
        return opened() ? table.name arguments : (without);       \
    }
#pragma GCC diagnostic ignored "-Wunused-parameter" /* sw_solver_rows alone answers with one */
#include "kernels/cuda/forward.def"
