/* device_opt.c - see device_opt.h. */
#include "tools/device/device_opt.h"

#include <string.h>

#include "kernels/solver.h"

#define CUDA "cuda"
#define INDEX_MAX 1023

const char *sw_device_word(int i)
{
    static const char *const words[] = {"cpu", CUDA, "auto", NULL};

    return words[i];
}

sw_code sw_device_option_index(int64_t *index, const char *word, sw_err *err)
{
    const size_t n = strlen(CUDA);
    const bool is_auto = word && !strcmp(word, "auto");

    *index = -1;
    if (!word || !strcmp(word, "cpu") || (is_auto && !sw_device_count())) return SW_OK;
    if (!is_auto && (strncmp(word, CUDA, n) || (word[n] && word[n] != ':')))
        return SW_FAIL(err, SW_E_USAGE, "--device %s: there are cpu, cuda, cuda:N and auto", word);
    *index = 0;
    if (is_auto || !word[n]) return SW_OK;
    return sw_opt_int(index, word + n + 1, 0, INDEX_MAX, "--device cuda:N", err);
}

sw_code sw_device_option_open(sw_device **out, const char *word, uint64_t cap_bytes, sw_err *err)
{
    int64_t index = -1;
    sw_code rc;

    *out = NULL;
    if ((rc = sw_device_option_index(&index, word, err)) != SW_OK || index < 0) return rc;
    if (cap_bytes > INT64_MAX)
        return SW_FAIL(err, SW_E_USAGE, "--device-memory %llu: more than any device has",
                       (unsigned long long)cap_bytes);
    return sw_device_open(out, (int)index, (int64_t)cap_bytes, err);
}

sw_code sw_device_option_open_set(sw_device_set *set, const char *word, uint64_t cap_bytes,
                                  const sw_device_list *devices, bool spreads_all,
                                  sw_err *err)
{
    sw_device *first = NULL;
    sw_code rc = sw_device_option_open(&first, word, cap_bytes, err);

    memset(set, 0, sizeof *set);
    if (rc != SW_OK || !first) return rc;
    set->n = 1;
    set->indices[0] = sw_device_about(first)->index;
    set->gpus[0] = first;
    set->cap_bytes = (int64_t)cap_bytes;
    set->spreads_all = spreads_all;
    set->may_stream = devices && devices->is_all && !spreads_all;
    for (int i = 1; devices && i < devices->n; i++) set->indices[set->n++] = devices->items[i];
    return SW_OK;
}

sw_code sw_device_option_open_backend(sw_device **gpu, sw_quant_options *options, const char *word,
                                      const sw_progress *progress, sw_err *err)
{
    sw_solver *solver = NULL;
    sw_code rc = sw_device_option_open(gpu, word, 0, err);

    if (rc != SW_OK || !*gpu) return rc;
    sw_progress_note(progress, "device: cuda:%d, %s", sw_device_about(*gpu)->index,
                     sw_device_about(*gpu)->name);
    if ((rc = sw_solver_open(&solver, *gpu, 0, err)) != SW_OK) return rc;
    options->backend = &sw_backend_cuda;
    options->device = solver;
    return SW_OK;
}

void sw_device_option_close_backend(sw_device *gpu, sw_quant_options *options)
{
    sw_solver_close(options->device);
    sw_device_close(gpu);
}
