/* window.c - see window.h. */
#include "formats/checkpoint/window.h"

#include <string.h>

#include "formats/base/size.h"

/* The one dimension in which two declarations of a tensor differ: n_dims when there is none, -1
 * when the tensors are not of a kind. */
static int cut_dim(const sw_part *whole, const sw_part *window)
{
    int at = whole->n_dims;

    if (whole->n_dims != window->n_dims || whole->dtype != window->dtype ||
        strcmp(whole->suffix, window->suffix) != 0)
        return -1;
    for (int d = whole->n_dims - 1; d >= 0; d--) {
        if (whole->shape[d] == window->shape[d]) continue;
        if (at < whole->n_dims) return -1;
        at = d;
    }
    return at;
}

static uint64_t elem_bytes(const sw_part *part) { return (uint64_t)sw_dtype_bits(part->dtype) / 8; }

static uint64_t product(const int64_t *shape, int n)
{
    uint64_t all = 1;

    for (int i = 0; i < n; i++) all *= (uint64_t)shape[i];
    return all;
}

/* false: the window is no cut of the whole. `full` is a window of SW_WINDOW_ROWS channels. */
static bool find_cut(sw_window_cut *out, const sw_part *whole, const sw_part *full,
                     const sw_part *window, int64_t at, int64_t n_windows)
{
    int d = cut_dim(whole, full);
    uint64_t inner, n;
    int64_t start;

    if (d < 0 || cut_dim(full, window) < 0) return false;
    if (d == whole->n_dims) {
        n = product(whole->shape, whole->n_dims) * elem_bytes(whole);
        *out = (sw_window_cut){.is_whole = true, .is_shape = whole->is_shape, .n_runs = 1,
                               .run_bytes = n, .step_bytes = n};
        return cut_dim(full, window) == d;
    }
    if (cut_dim(full, window) != whole->n_dims && cut_dim(full, window) != d) return false;
    start = at * full->shape[d];
    if (start + window->shape[d] > whole->shape[d] ||
        (at == n_windows - 1 && start + window->shape[d] != whole->shape[d]))
        return false;
    inner = product(whole->shape + d + 1, whole->n_dims - d - 1) * elem_bytes(whole);
    *out = (sw_window_cut){.n_runs = (int64_t)product(whole->shape, d),
                           .offset_bytes = (uint64_t)start * inner,
                           .run_bytes = (uint64_t)window->shape[d] * inner,
                           .step_bytes = (uint64_t)whole->shape[d] * inner};
    return true;
}

static int cuts_of(sw_window_cut cuts[SW_DIALECT_TENSORS_MAX],
                   sw_part parts[SW_DIALECT_TENSORS_MAX], const sw_dialect *dialect,
                   const sw_qspec *spec, int64_t n_out, int64_t k_in, int64_t at)
{
    int64_t n_windows = sw_ceil_div(n_out, SW_WINDOW_ROWS);
    sw_part whole[SW_DIALECT_TENSORS_MAX], full[SW_DIALECT_TENSORS_MAX];
    int n = dialect->declare(whole, spec, n_out, k_in);

    if (dialect->declare(full, spec, SW_WINDOW_ROWS, k_in) != n ||
        dialect->declare(parts, spec, sw_window_rows(at, n_out), k_in) != n)
        return 0;
    for (int i = 0; i < n; i++)
        if (!find_cut(&cuts[i], &whole[i], &full[i], &parts[i], at, n_windows)) return 0;
    return n;
}

int64_t sw_window_count(const sw_dialect *dialect, const sw_qspec *spec, int64_t n_out,
                        int64_t k_in)
{
    sw_window_cut cuts[SW_DIALECT_TENSORS_MAX];
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    int64_t n = sw_ceil_div(n_out, SW_WINDOW_ROWS);

    if (n < 2 || dialect->is_stacked) return 0;
    if (!cuts_of(cuts, parts, dialect, spec, n_out, k_in, 0) ||
        !cuts_of(cuts, parts, dialect, spec, n_out, k_in, n - 1))
        return 0;
    return n;
}

int sw_window_cuts(sw_window_cut cuts[SW_DIALECT_TENSORS_MAX],
                   sw_part parts[SW_DIALECT_TENSORS_MAX], const sw_dialect *dialect,
                   const sw_qspec *spec, int64_t n_out, int64_t k_in, int64_t window)
{
    return cuts_of(cuts, parts, dialect, spec, n_out, k_in, window);
}

void sw_window_gather(void *dst, const void *whole, const sw_window_cut *cut)
{
    const uint8_t *from = (const uint8_t *)whole + cut->offset_bytes;

    for (int64_t i = 0; i < cut->n_runs; i++)
        memcpy((uint8_t *)dst + (uint64_t)i * cut->run_bytes, from + (uint64_t)i * cut->step_bytes,
               cut->run_bytes);
}

void sw_window_scatter(void *whole, const void *src, const sw_window_cut *cut)
{
    uint8_t *to = (uint8_t *)whole + cut->offset_bytes;

    for (int64_t i = 0; i < cut->n_runs; i++)
        memcpy(to + (uint64_t)i * cut->step_bytes,
               (const uint8_t *)src + (uint64_t)i * cut->run_bytes, cut->run_bytes);
}
