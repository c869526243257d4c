/* expected_kl.h - whether the KL divergence from the original is one that the number of bits
 * explains, or a sign of a broken checkpoint.
 *
 * The limit is a table by bits. Models differ in what they make of errors: routers choose between
 * experts that are nearly equal, and errors in a recurrent state stay in it for many tokens. Above
 * the table's limit, the original is therefore run again with noise as large as rounding leaves,
 * and the KL of that run, which no damage of the checkpoint can affect, raises the limit.
 */
#ifndef SW_VERIFY_METRICS_EXPECTED_KL_H
#define SW_VERIFY_METRICS_EXPECTED_KL_H

#include "verify/metrics/perplexity.h"

/* Judge report->eval, which sw_evaluate filled for `job`; report->tensors tell how large the noise
 * is. `bits` are those of the weights with the fewest, 16 where none are quantized; `rounds_inputs`
 * is set where inputs of linears are quantized too. Findings: "not finite" and "implausible". Sets
 * is_probed, noise and noise_kl where job->original was run again, which happens on the CPU. */
sw_code sw_expected_kl_check(sw_report *report, const sw_eval_job *job, int bits,
                             bool rounds_inputs, sw_err *err) SW_MUST_USE;

#endif
