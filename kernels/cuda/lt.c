/* lt.c - see lt.h. */
#include "kernels/cuda/lt.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "kernels/cuda/gpu_check.h"

#define WORK_BYTES ((int64_t)32 << 20) /* what the library asks for on this architecture */
#define N_PLANS 128
#define N_CARDS 64
#define ALIGN_MAX 256u

/* What is taken out of the library: the type of each is that of its declaration. */
#define FUNCTIONS(X)                                                                        \
    X(cublasLtCreate) X(cublasLtMatmul) X(cublasLtMatmulDescCreate)                         \
    X(cublasLtMatmulDescDestroy) X(cublasLtMatmulDescSetAttribute)                          \
    X(cublasLtMatrixLayoutCreate) X(cublasLtMatrixLayoutDestroy)                            \
    X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceDestroy)                    \
    X(cublasLtMatmulPreferenceSetAttribute) X(cublasLtMatmulAlgoGetHeuristic)

/* A shape, and how to compute it. */
typedef struct plan {
    sw_lt_gemm shape; /* without pointers */
    uint32_t align[3];
    cublasLtMatrixLayout_t w, x, y;
    cublasLtMatmulAlgo_t algo;
    bool is_set, is_loaded; /* loaded: it has run */
} plan;

/* Of the process, as is what it guards: which kernels are loaded, and the handle of each card.
 * Handles stay, and streams share them: to destroy one ends the captures of all other threads. */
static pthread_mutex_t loading = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static cublasLtHandle_t handles[N_CARDS];

void sw_lt_hold(void) { (void)pthread_mutex_lock(&loading); }
void sw_lt_release(void) { (void)pthread_mutex_unlock(&loading); }

struct sw_lt {
    sw_gpu *gpu;
    void *library, *d_work;
    cublasLtHandle_t handle; /* of the process */
    cublasLtMatmulDesc_t product;
    plan plans[N_PLANS];
    int n_next; /* the plan to give up next */
#define FUNCTION(name) __typeof__(&name) name##_at;
    FUNCTIONS(FUNCTION)
#undef FUNCTION
};

static sw_code lt_check(cublasStatus_t s, const char *what, sw_err *err)
{
    if (s == CUBLAS_STATUS_SUCCESS) return SW_OK;
    return SW_FAIL(err, s == CUBLAS_STATUS_ALLOC_FAILED ? SW_E_NOMEM : SW_E_CUDA,
                   "%s: cuBLASLt status %d (%s)", what, (int)s,
                   cudaGetErrorString(cudaPeekAtLastError()));
}

/* The library stays when the last user closes it: taking out and in what registers kernels with the
 * runtime is not safe beside threads that use it. */
static sw_code find_library(sw_lt *lt, sw_err *err)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12",
                                        "libcublasLt.so"};

    for (size_t i = 0; i < sizeof names / sizeof *names && !lt->library; i++)
        lt->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!lt->library)
        return SW_FAIL(err, SW_E_CUDA, "libcublasLt.so.13 is not to be found; install cuBLAS of "
                       "CUDA 12 or 13 (libcublas), or use --device cpu");
    /* POSIX says that a function's address passes through void * */
#define FUNCTION(name)                                                                       \
    *(void **)&lt->name##_at = dlsym(lt->library, #name);                                    \
    if (!lt->name##_at) return SW_FAIL(err, SW_E_CUDA, "libcublasLt has no %s", #name);
    FUNCTIONS(FUNCTION)
#undef FUNCTION
    return SW_OK;
}

/* The handle of the thread's card. */
static sw_code find_handle(sw_lt *lt, sw_err *err)
{
    int card = 0;
    sw_code rc = sw_gpu_check((int)cudaGetDevice(&card), "card", err);

    if (rc != SW_OK) return rc;
    if (card >= N_CARDS)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "card %d: there are no products on cards from %d on; "
                       "name it first in CUDA_VISIBLE_DEVICES", card, N_CARDS);
    sw_lt_hold();
    if (!handles[card]) {
        rc = lt_check(lt->cublasLtCreate_at(&handles[card]), "cublasLtCreate", err);
        if (rc != SW_OK) handles[card] = NULL;
    }
    lt->handle = handles[card];
    sw_lt_release();
    return rc;
}

sw_code sw_lt_open(sw_lt **out, sw_gpu *gpu, sw_err *err)
{
    const cublasOperation_t transposed = CUBLAS_OP_T;
    sw_lt *lt = NULL;
    sw_code rc;

    if ((rc = SW_MEM_GET(&lt, 1, "cuBLASLt", err)) != SW_OK) return rc;
    lt->gpu = gpu;
    if ((rc = find_library(lt, err)) != SW_OK ||
        (rc = find_handle(lt, err)) != SW_OK ||
        (rc = lt_check(lt->cublasLtMatmulDescCreate_at(&lt->product, CUBLAS_COMPUTE_32F,
                                                       CUDA_R_32F), "product", err)) != SW_OK ||
        (rc = lt_check(lt->cublasLtMatmulDescSetAttribute_at(
                           lt->product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                           sizeof transposed), "transpose", err)) != SW_OK ||
        (rc = sw_gpu_take(&lt->d_work, gpu, WORK_BYTES, 1, "cuBLASLt workspace", err)) != SW_OK)
        sw_lt_close(lt);
    else
        *out = lt;
    return rc;
}

static void drop_plan(sw_lt *lt, plan *p)
{
    const cublasLtMatrixLayout_t layouts[] = {p->w, p->x, p->y};

    for (int i = 0; i < 3; i++)
        if (layouts[i]) (void)lt->cublasLtMatrixLayoutDestroy_at(layouts[i]);
    memset(p, 0, sizeof *p);
}

void sw_lt_close(sw_lt *lt)
{
    if (!lt) return;
    for (int i = 0; i < N_PLANS; i++) drop_plan(lt, &lt->plans[i]);
    if (lt->product) (void)lt->cublasLtMatmulDescDestroy_at(lt->product);
    sw_gpu_put(lt->gpu, lt->d_work);
    if (lt->library) (void)dlclose(lt->library);
    sw_mem_put(lt);
}

static uint32_t alignment(const void *p)
{
    uint32_t align = ALIGN_MAX;

    while (align > 2 && (uintptr_t)p % align) align /= 2;
    return align;
}

static bool is_same(const plan *p, const sw_lt_gemm *q, const uint32_t align[3])
{
    return p->is_set && p->shape.m == q->m && p->shape.n_out == q->n_out &&
           p->shape.k_in == q->k_in && p->shape.x_stride == q->x_stride &&
           p->shape.y_stride == q->y_stride && p->shape.y_is_f32 == q->y_is_f32 &&
           !memcmp(p->align, align, sizeof p->align);
}

/* The library is column-major: to it W is [k_in, n_out], transposed, X [k_in, m], Y [n_out, m]. */
static sw_code lay_out(sw_lt *lt, plan *p, const sw_lt_gemm *q, sw_err *err)
{
    const cudaDataType_t y_type = q->y_is_f32 ? CUDA_R_32F : CUDA_R_16BF;
    const uint64_t m = (uint64_t)q->m, n = (uint64_t)q->n_out, k = (uint64_t)q->k_in;
    sw_code rc;

    if ((rc = lt_check(lt->cublasLtMatrixLayoutCreate_at(&p->w, CUDA_R_16BF, k, n, q->k_in), "W",
                       err)) != SW_OK ||
        (rc = lt_check(lt->cublasLtMatrixLayoutCreate_at(&p->x, CUDA_R_16BF, k, m, q->x_stride),
                       "X", err)) != SW_OK)
        return rc;
    return lt_check(lt->cublasLtMatrixLayoutCreate_at(&p->y, y_type, n, m, q->y_stride), "Y", err);
}

static sw_code choose(sw_lt *lt, plan *p, const uint32_t align[3], sw_err *err)
{
    static const cublasLtMatmulPreferenceAttributes_t keys[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
    };
    const uint32_t values[] = {align[0], align[1], align[2], align[2]};
    const uint64_t work = (uint64_t)WORK_BYTES;
    cublasLtMatmulPreference_t wish = NULL;
    cublasLtMatmulHeuristicResult_t found;
    int n_found = 0;
    sw_code rc = lt_check(lt->cublasLtMatmulPreferenceCreate_at(&wish), "preference", err);

    if (rc != SW_OK) return rc;
    rc = lt_check(lt->cublasLtMatmulPreferenceSetAttribute_at(
                      wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &work, sizeof work),
                  "preference", err);
    for (int i = 0; i < 4 && rc == SW_OK; i++)
        rc = lt_check(lt->cublasLtMatmulPreferenceSetAttribute_at(wish, keys[i], &values[i],
                                                                  sizeof values[i]),
                      "preference", err);
    if (rc == SW_OK)
        rc = lt_check(lt->cublasLtMatmulAlgoGetHeuristic_at(lt->handle, lt->product, p->w, p->x,
                                                            p->y, p->y, wish, 1, &found, &n_found),
                      "choice of an algorithm", err);
    if (rc == SW_OK && n_found == 0)
        rc = SW_FAIL(err, SW_E_UNSUPPORTED, "cuBLASLt has no product for %lld x %lld x %lld",
                     (long long)p->shape.m, (long long)p->shape.n_out, (long long)p->shape.k_in);
    if (rc == SW_OK) p->algo = found.algo;
    (void)lt->cublasLtMatmulPreferenceDestroy_at(wish);
    return rc;
}

static sw_code plan_for(sw_lt *lt, plan **out, const sw_lt_gemm *q, sw_err *err)
{
    const uint32_t align[3] = {alignment(q->d_w), alignment(q->d_x), alignment(q->d_y)};
    plan *p;
    sw_code rc;

    for (int i = 0; i < N_PLANS; i++)
        if (is_same(&lt->plans[i], q, align)) {
            *out = &lt->plans[i];
            return SW_OK;
        }
    p = &lt->plans[lt->n_next];
    drop_plan(lt, p);
    p->shape = *q;
    memcpy(p->align, align, sizeof align);
    if ((rc = lay_out(lt, p, q, err)) != SW_OK || (rc = choose(lt, p, align, err)) != SW_OK) {
        drop_plan(lt, p);
        return rc;
    }
    p->is_set = true;
    lt->n_next = (lt->n_next + 1) % N_PLANS;
    *out = p;
    return SW_OK;
}

static sw_code run_plan(sw_lt *lt, const plan *p, const sw_lt_gemm *q, sw_err *err)
{
    const float one = 1.0f, zero = 0.0f;
    char what[80];

    (void)snprintf(what, sizeof what, "product of %lld x %lld x %lld", (long long)q->m,
                   (long long)q->n_out, (long long)q->k_in);
    return lt_check(lt->cublasLtMatmul_at(lt->handle, lt->product, &one, q->d_w, p->w, q->d_x, p->x,
                                          &zero, q->d_y, p->y, q->d_y, p->y, &p->algo, lt->d_work,
                                          (size_t)WORK_BYTES, sw_gpu_stream(lt->gpu)),
                    what, err);
}

sw_code sw_lt_run(sw_lt *lt, const sw_lt_gemm *q, sw_err *err)
{
    plan *p = NULL;
    sw_code rc;

    if (q->m == 0 || q->n_out == 0) return SW_OK;
    if ((rc = plan_for(lt, &p, q, err)) != SW_OK) return rc;
    if (p->is_loaded) return run_plan(lt, p, q, err);
    sw_lt_hold();
    rc = run_plan(lt, p, q, err);
    sw_lt_release();
    p->is_loaded = rc == SW_OK;
    return rc;
}
