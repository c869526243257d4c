/* expected_kl.c - see expected_kl.h. */
#include "verify/metrics/expected_kl.h"

#include <math.h>

#include "verify/base/apart.h"

#define PROBE_WINDOWS 8  /* that the original runs again, with noise and without, on the CPU */
#define SHARE_MAX 0.04   /* of an output, from rounding weights to 8 bits: e4m3 leaves 0.026 */
#define NOISE_MARGIN 2.0 /* over the KL of noise, which is as large but not the same */

/* Mean KL beyond which a model of so many bits is broken, not quantized; nats per token. Plain
 * rounding of a small trained model measures 0.0005 (8), 0.14 (4) and 0.7 (3). */
static const struct {
    int bits;
    double kl;
} broken_kl[] = {{16, 0.05}, {8, 0.1}, {4, 1.5}, {3, 4.0}};

/* Mean KL that so many bits explain; infinite where nothing is known. */
static double explained_kl(int bits)
{
    for (size_t i = 0; i < sizeof broken_kl / sizeof *broken_kl; i++)
        if (broken_kl[i].bits == bits) return broken_kl[i].kl;
    return INFINITY;
}

/* What plain rounding leaves of the weights, mean over linears: the error of each over how much
 * larger than rounding's it is. Inputs that are rounded to as many bits leave as much again. */
static double rounding_share(const sw_report *r, bool rounds_inputs)
{
    double squares = 0;
    int64_t n = 0;

    for (int64_t i = 0; i < r->n_tensors; i++) {
        const sw_report_tensor *t = &r->tensors[i];
        if (!(t->step_rms > 0) || !(t->weight_err > 0)) continue;
        squares += t->weight_err * t->weight_err / (t->step_rms * t->step_rms);
        n++;
    }
    if (!n) return 0;
    squares = fmin(squares / (double)n, SHARE_MAX * SHARE_MAX);
    if (rounds_inputs) squares *= 2;
    return sqrt(squares);
}

/* The KL between the original and the same with noise, into *e. */
static sw_code probe_original(sw_report_eval *e, const sw_eval_job *job, double noise, sw_err *err)
{
    sw_report_eval probe = {.n_tokens = 0};
    sw_eval_job again = *job;
    sw_code rc;

    if (!(noise > 0)) return SW_OK;
    again.noise = noise;
    again.checkpoint = job->original;
    again.gpu = NULL;
    again.states = NULL;
    again.kept = NULL;
    again.ranks = NULL;
    if (again.windows.n > PROBE_WINDOWS) again.windows.n = PROBE_WINDOWS;
    if ((rc = sw_evaluate(&probe, &again, err)) != SW_OK) return rc;
    e->is_probed = true;
    e->noise_kl = probe.kl.at;
    e->noise = noise;
    return SW_OK;
}

sw_code sw_expected_kl_check(sw_report *report, const sw_eval_job *job, int bits,
                             bool rounds_inputs, sw_err *err)
{
    sw_report_eval *e = &report->eval;
    double most = explained_kl(bits);
    sw_apart a;
    sw_code rc;

    if (!isfinite(e->nll.at) || (e->has_original && !isfinite(e->kl.at)))
        return sw_report_find(report, "not finite", "logits", err, "the checkpoint's NLL is "
                              "%g and its KL %g", e->nll.at, e->kl.at);
    if (!e->has_original || e->kl.at <= most) return SW_OK;
    rc = probe_original(e, job, rounding_share(report, rounds_inputs), err);
    if (rc != SW_OK) return rc;
    if (e->is_probed) most = fmax(most, NOISE_MARGIN * e->noise_kl);
    if (e->kl.at <= most) return SW_OK;
    a = sw_apart_digits(e->kl.at, most, 4);
    return sw_report_find(report, "implausible", "logits", err, "mean KL %s, want at most "
                          "%s: more than %d bits explain", a.have, a.limit, bits);
}
