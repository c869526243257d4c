/* evidence.c - see evidence.h. */
#include "quant/search/evidence.h"

#include <math.h>
#include <string.h>

#include "formats/base/size.h"

#define GAIN_MIN 0.005 /* a smaller one is not worth a fold, however certain */
/* One in a hundred changes that do nothing gets past this; a model has tens to hundreds of them
 * to try. */
#define STANDARD_ERRORS_MIN 2.33
#define SAMPLES_MIN 6 /* fewer give no standard error to speak of */

sw_code sw_evidence_new(sw_evidence *out, int64_t n_tokens_chosen_by, int64_t n_tokens_held,
                        int64_t n_windows, sw_err *err)
{
    int64_t n_chosen_by = sw_ceil_div(n_tokens_chosen_by, SW_EVIDENCE_TOKENS);
    int64_t n = n_chosen_by + sw_ceil_div(n_tokens_held, SW_EVIDENCE_TOKENS);
    double *pieces = NULL;
    sw_code rc = SW_MEM_GET(&pieces, 2 * n, "evidence", err);

    if (rc == SW_OK) *out = (sw_evidence){pieces, pieces + n, n, n_chosen_by, n_windows};
    return rc;
}

void sw_evidence_free(sw_evidence *e)
{
    sw_mem_put(e->before);
    memset(e, 0, sizeof *e);
}

void sw_evidence_add(double *pieces, const double *by_token, int64_t n_tokens)
{
    for (int64_t t = 0; t < n_tokens; t++) pieces[t / SW_EVIDENCE_TOKENS] += by_token[t];
}

/* The gain, in standard errors of its mean over n samples of neighbouring pieces. */
static double gain_in_errors(const sw_evidence *e, int64_t n)
{
    double mean = 0, spread = 0;

    if (n < SAMPLES_MIN || n > e->n) return 0;
    for (int64_t i = 0; i < e->n; i++) mean += (e->before[i] - e->after[i]) / (double)n;
    for (int64_t s = 0, i = 0; s < n; s++) {
        double d = -mean;
        for (; i < (s + 1) * e->n / n; i++) d += e->before[i] - e->after[i];
        spread += d * d;
    }
    spread = sqrt(spread / (double)(n - 1) / (double)n);
    return spread > 0 ? mean / spread : 0;
}

sw_verdict sw_evidence_judge(const sw_evidence *e)
{
    sw_verdict v = {false, 0, 0, 0};

    for (int64_t i = e->n_chosen_by; i < e->n; i++) {
        v.before += e->before[i];
        v.after += e->after[i];
    }
    v.standard_errors = fmax(gain_in_errors(e, e->n), gain_in_errors(e, e->n_windows));
    v.is_better = v.standard_errors > STANDARD_ERRORS_MIN && v.after < (1 - GAIN_MIN) * v.before;
    return v;
}
