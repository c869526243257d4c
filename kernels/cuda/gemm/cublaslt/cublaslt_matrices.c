/* cublaslt_matrices.c - see cublaslt_matrices.h. */
#include "kernels/cuda/gemm/cublaslt/cublaslt_matrices.h"

#include <string.h>

#define ALIGN_MAX 256u

uint32_t sw_cublaslt_alignment(const void *p)
{
    uint32_t align = ALIGN_MAX;

    while (align > 2 && (uintptr_t)p % align) align /= 2;
    return align;
}

/* What an algorithm may count on. */
static sw_code wish_for(cublasLtMatmulPreference_t wish, const sw_cublaslt_library *lib,
                        const sw_cublaslt_matrices *of, uint64_t work_bytes, sw_err *err)
{
    const struct {
        cublasLtMatmulPreferenceAttributes_t key;
        const void *value;
        size_t n_bytes;
    } wishes[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &work_bytes, sizeof work_bytes},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &of->align[0], sizeof of->align[0]},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &of->align[1], sizeof of->align[1]},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &of->align[2], sizeof of->align[2]},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &of->align[2], sizeof of->align[2]},
    };
    sw_code rc = SW_OK;

    for (size_t i = 0; i < sizeof wishes / sizeof *wishes && rc == SW_OK; i++)
        rc = sw_cublaslt_check(lib->cublasLtMatmulPreferenceSetAttribute_at(wish, wishes[i].key,
                                                                            wishes[i].value,
                                                                            wishes[i].n_bytes),
                               "preference", err);
    return rc;
}

sw_code sw_cublaslt_choose(cublasLtMatmulAlgo_t *out, const sw_cublaslt_library *lib,
                           cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                           const sw_cublaslt_matrices *of, int64_t work_bytes, const char *what,
                           sw_err *err)
{
    cublasLtMatmulPreference_t wish = NULL;
    cublasLtMatmulHeuristicResult_t found;
    int n_found = 0;
    sw_code rc =
        sw_cublaslt_check(lib->cublasLtMatmulPreferenceCreate_at(&wish), "preference", err);

    if (rc != SW_OK) return rc;
    if ((rc = wish_for(wish, lib, of, (uint64_t)work_bytes, err)) == SW_OK)
        rc = sw_cublaslt_check(lib->cublasLtMatmulAlgoGetHeuristic_at(handle, product, of->w, of->x,
                                                                      of->y, of->y, wish, 1, &found,
                                                                      &n_found),
                               "choice of an algorithm", err);
    if (rc == SW_OK && n_found == 0)
        rc = SW_FAIL(err, SW_E_UNSUPPORTED, "cuBLASLt has no %s", what);
    if (rc == SW_OK) *out = found.algo;
    (void)lib->cublasLtMatmulPreferenceDestroy_at(wish);
    return rc;
}

void sw_cublaslt_matrices_drop(sw_cublaslt_matrices *of, const sw_cublaslt_library *lib)
{
    const cublasLtMatrixLayout_t layouts[] = {of->w, of->x, of->y};

    for (int i = 0; i < 3; i++)
        if (layouts[i]) (void)lib->cublasLtMatrixLayoutDestroy_at(layouts[i]);
    memset(of, 0, sizeof *of);
}
