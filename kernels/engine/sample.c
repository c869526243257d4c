/* sample.c - the next token out of a row of logits. See engine.h.
 *
 * Order of the filters as everywhere in the field: temperature, top-k, top-p (Holtzman et al.,
 * The Curious Case of Neural Text Degeneration, 2020), then a draw by SplitMix64 (Steele, Lea and
 * Flood, 2014). Exponentials are our own, so two machines draw alike from the same logits.
 */
#include <math.h>
#include <stdlib.h>

#include "kernels/engine/engine.h"
#include "kernels/engine/vec/vec.h"

typedef struct candidate {
    float weight;
    uint32_t id;
} candidate;

static double draw_unit(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

static int heavier_first(const void *a, const void *b)
{
    const candidate *x = a, *y = b;

    if (x->weight != y->weight) return x->weight < y->weight ? 1 : -1;
    return x->id < y->id ? -1 : 1;
}

static int lower_id_first(const void *a, const void *b)
{
    const candidate *x = a, *y = b;

    return x->id < y->id ? -1 : 1;
}

static double sum_weights(const candidate *c, int64_t n)
{
    double sum = 0.0;

    for (int64_t i = 0; i < n; i++) sum += (double)c[i].weight;
    return sum;
}

/* How many of the heaviest candidates reach a share top_p of all: at least one. */
static int64_t nucleus(const candidate *c, int64_t n, double top_p)
{
    const double enough = top_p * sum_weights(c, n);
    double sum = 0.0;
    int64_t kept = 0;

    while (kept < n && (kept == 0 || sum < enough)) sum += (double)c[kept++].weight;
    return kept;
}

static int64_t filter(candidate *c, int64_t n, const sw_sampling *sampling)
{
    const bool has_top_k = sampling->top_k > 0 && sampling->top_k < n;
    int64_t kept = n;

    if (!has_top_k && sampling->top_p >= 1.0) return n;
    qsort(c, (size_t)n, sizeof *c, heavier_first);
    if (has_top_k) kept = sampling->top_k;
    if (sampling->top_p < 1.0) kept = nucleus(c, kept, sampling->top_p);
    qsort(c, (size_t)kept, sizeof *c, lower_id_first);
    return kept;
}

static uint32_t draw(const candidate *c, int64_t n, uint64_t *state)
{
    const double target = draw_unit(state) * sum_weights(c, n);
    double sum = 0.0;
    uint32_t last = c[0].id;

    for (int64_t i = 0; i < n; i++) {
        if (c[i].weight <= 0.0f) continue;
        last = c[i].id; /* a sum that rounds short ends on the last one possible */
        sum += (double)c[i].weight;
        if (target < sum) break;
    }
    return last;
}

static sw_code find_top(uint32_t *out, const float *logits, int64_t vocab, sw_err *err)
{
    int64_t best = 0;

    for (int64_t i = 0; i < vocab; i++) {
        if (isnan(logits[i]) || logits[i] == INFINITY)
            return SW_FAIL(err, SW_E_FORMAT, "the logit of token %lld is not finite",
                           (long long)i);
        if (logits[i] > logits[best]) best = i;
    }
    if (logits[best] == -INFINITY) return SW_FAIL(err, SW_E_FORMAT, "all logits are -infinity");
    *out = (uint32_t)best;
    return SW_OK;
}

static sw_code reserve(sw_scratch *scratch, int64_t vocab, sw_err *err)
{
    const size_t need = (size_t)vocab * sizeof(candidate);
    void *bytes = NULL;
    sw_code rc;

    if (scratch->size_bytes >= need) return SW_OK;
    rc = sw_mem_get(&bytes, vocab, sizeof(candidate), "sampling", err);
    if (rc != SW_OK) return rc;
    sw_scratch_free(scratch);
    scratch->bytes = bytes;
    scratch->size_bytes = need;
    return SW_OK;
}

sw_code sw_sample(uint32_t *out, const float *logits, int64_t vocab, const sw_sampling *sampling,
                  uint64_t *state, sw_scratch *scratch, sw_err *err)
{
    const double t = sampling->temperature;
    candidate *c;
    uint32_t top = 0;
    sw_code rc;

    if (!(t >= 0.0) || sampling->top_k < 0 || !(sampling->top_p > 0.0 && sampling->top_p <= 1.0))
        return SW_FAIL(err, SW_E_USAGE,
                       "temperature %g, top-k %lld, top-p %g: need at least 0, at least 0, and "
                       "above 0 up to 1",
                       t, (long long)sampling->top_k, sampling->top_p);
    if ((rc = find_top(&top, logits, vocab, err)) != SW_OK) return rc;
    if (t == 0.0) {
        *out = top;
        return SW_OK;
    }
    if ((rc = reserve(scratch, vocab, err)) != SW_OK) return rc;
    c = scratch->bytes;
    for (int64_t i = 0; i < vocab; i++) {
        float x = (float)(((double)logits[i] - (double)logits[top]) / t);

        sw_vec_any.exp(&x, &x, 1);
        c[i] = (candidate){x, (uint32_t)i};
    }
    *out = draw(c, filter(c, vocab, sampling), state);
    return SW_OK;
}
