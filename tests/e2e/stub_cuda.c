/* stub_cuda.c - a CUDA half without CUDA, for spread.sh: cards of so many gigabytes as STUB_CARDS
 * lists (40,40; 14M: megabytes), on which every layer takes 10 GB and each end 5. Models are taken
 * there; who would run one is told where it lies, as an error. Every other function fails by its
 * name.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/engine/device_engine.h"
#include "kernels/engine/spread/spread_plan.h"
#include "kernels/solver.h"

#define GB ((int64_t)1000000000)

extern const char sw_cuda_abi[];
const char sw_cuda_abi[] = SW_ABI;

struct sw_device {
    sw_device_info info;
};
struct sw_device_engine {
    sw_device *gpu;
    const sw_model *m;
};
struct sw_device_lm {
    char text[256]; /* where it lies */
};

#define SW_CUDA_STEP(name, parameters, arguments)                       \
    __attribute__((weak)) sw_code name parameters                       \
    {                                                                   \
        return SW_FAIL(err, SW_E_CUDA, "stub: %s", #name);              \
    }
#define SW_CUDA_VOID(name, parameters, arguments) \
    __attribute__((weak)) void name parameters {}
#define SW_CUDA_VALUE(type, name, absent, parameters, arguments) \
    __attribute__((weak)) type name parameters { return absent; }
#ifdef STUB_DEFAULTS
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "kernels/cuda/forward.def"
#else

/* The size of card i; 0: there is none. */
static int64_t card_bytes(int i)
{
    const char *at = getenv("STUB_CARDS");

    for (; at && i > 0; i--) at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL;
    if (!at) return 0;
    return atoll(at) * (at[strspn(at, "0123456789")] == 'M' ? GB / 1000 : GB);
}

bool sw_device_is_built(void) { return true; }

int sw_device_count(void)
{
    int n = 0;

    while (card_bytes(n)) n++;
    return n;
}

sw_code sw_device_describe(sw_device_info *out, int index, sw_err *err)
{
    (void)err;
    *out = (sw_device_info){.name = "Stub", .index = index, .arch = 90, .n_sms = 1,
                            .total_bytes = card_bytes(index), .cap_bytes = card_bytes(index)};
    return SW_OK;
}

sw_code sw_device_open(sw_device **out, int index, int64_t cap_bytes, sw_err *err)
{
    if (!card_bytes(index)) return SW_FAIL(err, SW_E_CUDA, "stub: no cuda:%d", index);
    *out = calloc(1, sizeof **out);
    if (!*out) return SW_FAIL(err, SW_E_NOMEM, "stub");
    (void)!sw_device_describe(&(*out)->info, index, err);
    if (cap_bytes) (*out)->info.cap_bytes = cap_bytes;
    return SW_OK;
}

void sw_device_close(sw_device *gpu) { free(gpu); }

const sw_device_info *sw_device_about(const sw_device *gpu) { return &gpu->info; }

int64_t sw_device_left_bytes(const sw_device *gpu) { return gpu->info.cap_bytes; }

sw_code sw_device_engine_new(sw_device_engine **out, sw_device *gpu, const sw_model *m,
                             int64_t max_tokens, int64_t max_seq, sw_err *err)
{
    (void)max_tokens, (void)max_seq;
    *out = calloc(1, sizeof **out);
    if (!*out) return SW_FAIL(err, SW_E_NOMEM, "stub");
    **out = (sw_device_engine){gpu, m};
    return SW_OK;
}

void sw_device_engine_free(sw_device_engine *e) { free(e); }

void sw_device_lm_need(struct sw_spread_need *need, const sw_device_engine *e, const sw_lm *lm)
{
    (void)lm;
    need->n_layers = e->m->n_layers;
    for (int64_t l = 0; l < need->n_layers; l++) need->layer_bytes[l] = 10 * GB;
    need->first_bytes = need->last_bytes = 5 * GB;
}

sw_code sw_device_lm_spread(sw_device_lm **out, sw_device_engine *const *engines,
                            const int64_t *ends, int n_parts, const sw_lm *lm, sw_err *err)
{
    sw_device_lm *made = calloc(1, sizeof *made);

    (void)lm;
    if (!made) return SW_FAIL(err, SW_E_NOMEM, "stub");
    for (int i = 0; i < n_parts; i++)
        (void)snprintf(made->text + strlen(made->text), sizeof made->text - strlen(made->text),
                       " cuda:%d up to %lld", engines[i]->gpu->info.index, (long long)ends[i]);
    *out = made;
    return SW_OK;
}

sw_code sw_device_lm_new(sw_device_lm **out, sw_device_engine *e, const sw_lm *lm, sw_err *err)
{
    return sw_device_lm_spread(out, &e, &e->m->n_layers, 1, lm, err);
}

void sw_device_lm_free(sw_device_lm *lm) { free(lm); }

sw_code sw_device_session_new(sw_device_session **out, sw_device_lm *lm, int64_t n_seqs,
                              int64_t capacity, const sw_sampling *sampling, sw_err *err)
{
    (void)out, (void)n_seqs, (void)capacity, (void)sampling;
    return SW_FAIL(err, SW_E_CUDA, "stub:%s", lm->text);
}

sw_code sw_device_lm_forward(sw_device_lm *lm, const uint32_t *ids, int64_t n_seqs, int64_t seq_len,
                             sw_err *err)
{
    (void)ids, (void)n_seqs, (void)seq_len;
    return SW_FAIL(err, SW_E_CUDA, "stub:%s", lm->text);
}
#endif
