/* needs.c - see needs.h. */
#include "tools/quantize/needs.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "formats/base/size.h"
#include "kernels/solver.h"

/* What BLAS and the threads' stacks touch once the work begins, per thread. */
#define THREAD_BYTES 6e6
/* The writer, the journal and what the allocator does not give back. */
#define RUN_BYTES 8e6
/* Reading back without an original (verify/checks/tensors.c): each thread holds the codes of one
 * linear, and pages of the file stay until so many linears a thread are done. */
#define CHECK_BYTES_PER_WEIGHT 1.0
#define CHECK_BATCH 4
#define CHECK_THREADS_MAX 64

double sw_peak_bytes(void)
{
    struct rusage usage;

    return getrusage(RUSAGE_SELF, &usage) == 0 ? (double)usage.ru_maxrss * 1024 : 0;
}

double sw_resident_bytes(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    long long total = 0, resident = 0;
    int n = f ? fscanf(f, "%lld %lld", &total, &resident) : 0;

    if (f) (void)fclose(f);
    return n == 2 ? (double)resident * (double)sysconf(_SC_PAGESIZE) : sw_peak_bytes();
}

static bool is_selected(void *self, const sw_linear_ref *ref, const char *path)
{
    (void)ref;
    return sw_selection_has(self, path);
}

static const sw_qspec *spec_of(void *self, const sw_linear_ref *ref, const char *path)
{
    (void)ref;
    return sw_selection_spec(self, path);
}

static double largest_copied(const sw_st *st, const sw_selection *selection)
{
    double largest = 0;

    for (int64_t i = 0; i < sw_st_count(st); i++) {
        const sw_st_tensor *t = sw_st_at(st, i);
        char path[256];
        size_t n = strlen(t->name), n_end = strlen(".weight");
        if (n > n_end && n - n_end < sizeof path && !strcmp(t->name + n - n_end, ".weight")) {
            (void)snprintf(path, sizeof path, "%.*s", (int)(n - n_end), t->name);
            if (sw_selection_has(selection, path)) continue;
        }
        if ((double)t->view.size_bytes > largest) largest = (double)t->view.size_bytes;
    }
    return largest;
}

static double largest_linear(const sw_selection *selection)
{
    double largest = 0;

    for (int64_t i = 0; i < selection->n_linears; i++) {
        double n = (double)selection->linears[i].n_out * (double)selection->linears[i].k_in;
        if (n > largest) largest = n;
    }
    return largest;
}

static double stored_bytes(const sw_ckpt_linear *l)
{
    return (double)l->n_out * (double)l->k_in * l->spec->num->bits / 8;
}

/* Of the file at most, while n linears are read one behind the other. */
static double most_read(const sw_selection *selection, int64_t n)
{
    double sum = 0, most = 0;

    for (int64_t i = 0; i < selection->n_linears; i++) {
        sum += stored_bytes(&selection->linears[i]);
        if (i >= n) sum -= stored_bytes(&selection->linears[i - n]);
        if (sum > most) most = sum;
    }
    return most;
}

static double read_back_bytes(const sw_selection *selection, int n_threads)
{
    const int64_t n = sw_min_i64(sw_min_i64(n_threads, CHECK_THREADS_MAX), selection->n_linears);

    return largest_linear(selection) * CHECK_BYTES_PER_WEIGHT * (double)n +
           most_read(selection, CHECK_BATCH * n);
}

static double larger(double a, double b) { return a > b ? a : b; }

sw_code sw_needs_new(sw_needs *out, const sw_needs_request *request, sw_err *err)
{
    const sw_selection *selection = request->selection;
    sw_forecast_request r = {.model = request->model, .options = request->options,
                             .calib = request->calib, .has_stats = request->has_stats,
                             .is_measured_on_stats = request->is_measured_on_stats,
                             .measured = request->measured, .n_ranks = request->n_ranks,
                             .self = (void *)(uintptr_t)selection, .is_selected = is_selected,
                             .spec_of = spec_of};
    double n_threads = request->options->n_threads, other;
    sw_needs needs = {0};
    sw_code rc = SW_OK;

    if (request->device_bytes)
        rc = sw_device_forecast_new(&needs.device, &r, request->device_bytes, err);
    r.has_device = needs.device.solves;
    r.has_device_streams = needs.device.has_streams;
    if (rc == SW_OK) rc = sw_forecast_new(&needs.forecast, &r, err);
    if (rc != SW_OK) return rc;
    needs.base_bytes = sw_resident_bytes();
    if (request->device_bytes) /* of the device and of its lanes */
        needs.base_bytes += (double)SW_DEVICE_PINNED_BYTES * (1 + SW_SOLVER_LANES);
    needs.copy_bytes = largest_copied(request->st, selection);
    needs.check_bytes = read_back_bytes(selection, request->options->n_threads);
    needs.solve_bytes = (double)sw_forecast_peak(&needs.forecast, false) + n_threads * THREAD_BYTES;
    needs.spilled_bytes = (double)sw_forecast_peak(&needs.forecast, true) +
                          n_threads * THREAD_BYTES;
    if (request->measured)
        needs.measure_bytes = (double)needs.forecast.measure_bytes + n_threads * THREAD_BYTES;
    other = larger(needs.copy_bytes, needs.check_bytes);
    needs.peak_bytes = needs.base_bytes + larger(needs.measure_bytes,
                                                 RUN_BYTES + larger(needs.solve_bytes, other));
    needs.peak_spilled_bytes =
        needs.base_bytes + larger(needs.measure_bytes,
                                  RUN_BYTES + larger(needs.spilled_bytes, other));
    *out = needs;
    return SW_OK;
}

/* The directory that will hold the output: a file there is on the same disk. */
static sw_code parent_of(const char **out, const char *path, sw_arena *arena, sw_err *err)
{
    char *dir = NULL, *slash;
    size_t n = strlen(path);
    sw_code rc = sw_arena_text(&dir, arena, path, n, err);

    if (rc != SW_OK) return rc;
    while (n > 1 && dir[n - 1] == '/') dir[--n] = '\0';
    slash = strrchr(dir, '/');
    if (slash) slash[slash == dir] = '\0';
    *out = slash ? dir : ".";
    return SW_OK;
}

sw_code sw_needs_bound(const char **spill_dir, const sw_needs *needs, uint64_t bound,
                       const char *out_dir, sw_arena *arena, const sw_progress *progress,
                       sw_err *err)
{
    char need[16], least[16], given[16];

    sw_term_bytes(need, needs->peak_bytes);
    sw_term_bytes(least, needs->peak_spilled_bytes);
    sw_term_bytes(given, (double)bound);
    if (needs->peak_bytes <= (double)bound) return SW_OK;
    if (needs->peak_spilled_bytes > (double)bound)
        return SW_FAIL(err, SW_E_USAGE,
                       "--memory %s is too little: layer %lld takes %s even with its activations "
                       "on disk; give at least that",
                       given, (long long)needs->forecast.worst_layer, least);
    sw_progress_note(progress, "%s needed, %s with the activations on disk: they are kept on "
                     "disk", need, least);
    *spill_dir = "."; /* of a plan that has no output */
    return out_dir ? parent_of(spill_dir, out_dir, arena, err) : SW_OK;
}
