/* blas.c - see blas.h. */
#include "kernels/blas.h"

#include <cblas.h>
#include <stdbool.h>
#include <sys/mman.h>

#define BUFFER_BYTES ((size_t)136 << 20) /* 128 MB as it is built, and room to align them */
#define BUFFERS_MAX 128                  /* that one process of it can hold in any build */

/* OpenBLAS gives a product its buffer by these, and keeps it mapped when the product is done. They
 * are in its library but in no header. */
void *blas_memory_alloc(int position) __attribute__((weak));
void blas_memory_free(void *buffer) __attribute__((weak));

void sw_blas_single_thread(void) { openblas_set_num_threads(1); }

const char *sw_blas_core_name(void) { return openblas_get_corename(); }

static bool has_room(void)
{
    void *room = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                      0);

    if (room == MAP_FAILED) return false;
    (void)munmap(room, BUFFER_BYTES);
    return true;
}

/* All are taken before any is put back, so that each is another one. */
static int take_buffers(int n_wanted, int n_mapped)
{
    void *buffers[BUFFERS_MAX];
    int n = 0;

    while (n < n_wanted && (n < n_mapped || has_room())) buffers[n++] = blas_memory_alloc(0);
    for (int i = 0; i < n; i++)
        if (buffers[i]) blas_memory_free(buffers[i]);
    return n;
}

sw_code sw_blas_reserve(int n_threads, sw_err *err)
{
    static int n_mapped; /* as many the library holds, which it keeps for the process as well */
    int n_wanted = n_threads < BUFFERS_MAX ? n_threads : BUFFERS_MAX, n_have = n_wanted;

    if (!blas_memory_alloc || !blas_memory_free) return SW_OK;
#pragma omp critical(blas_reserve)
    {
        if (n_wanted > n_mapped) {
            n_have = take_buffers(n_wanted, n_mapped);
            if (n_have > n_mapped) n_mapped = n_have;
        }
    }
    if (n_have >= n_wanted) return SW_OK;
    return SW_FAIL(err, SW_E_NOMEM, "OpenBLAS finds no room for the buffers of %d threads, %zu MB "
                   "of addresses each; give fewer --threads, or lift the limit (ulimit -v)",
                   n_threads, BUFFER_BYTES >> 20);
}
