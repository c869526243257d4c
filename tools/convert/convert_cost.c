/* convert_cost.c - see convert_job.h. */
#include "tools/convert/convert_job.h"

#include <stdio.h>

#include "formats/dialect/conversions.h"

#define WIDER "W8A16"
#define COMMAND_BYTES (2 * SW_PATH_BYTES + 200)

/* Four bits that cannot say what the source says: eight come much nearer, where they are held. */
static const char *wider_scheme(const sw_convert_job *job, const sw_convert_linear *l)
{
    const sw_scheme *scheme = sw_scheme_find(WIDER);
    sw_qspec spec, to;
    sw_err ignored = {0};

    if (!scheme || l->to.num->kind != SW_NUM_INT || l->to.num->bits > 4) return NULL;
    spec = sw_scheme_spec(scheme);
    if (sw_conversion_nearest(&to, &l->from, job->options.target, &spec, 1, l->ref.n_out,
                              l->ref.k_in, job->source.model.dtype, &ignored) != SW_OK)
        return NULL;
    return scheme->name;
}

sw_convert_cost sw_convert_cost_of(const sw_convert_job *job)
{
    sw_convert_cost cost = {0};

    for (int64_t i = 0; i < job->n_linears; i++) {
        const sw_convert_linear *l = &job->linears[i];

        if (l->fate != SW_FATE_REQUANTIZED) continue;
        cost.mean += l->error;
        if (cost.n++ && l->error <= cost.worst) continue;
        cost.worst = l->error;
        cost.at = l;
    }
    if (!cost.n) return cost;
    cost.mean /= (double)cost.n;
    cost.wider = wider_scheme(job, cost.at);
    return cost;
}

static void measure_command(char out[COMMAND_BYTES], const sw_convert_job *job)
{
    (void)snprintf(out, COMMAND_BYTES, "swage verify %s --against %s --text TEXT",
                   job->options.out_dir, job->options.source_dir);
}

/* The width and the groups of the worst linear, found with calibration text instead. */
static void better_command(char out[COMMAND_BYTES], const sw_convert_job *job,
                           const sw_convert_linear *l)
{
    const sw_qspec *to = &l->to;
    int n = snprintf(out, COMMAND_BYTES, "swage quantize %s --format %s --calib TEXT",
                     job->options.source_dir, job->options.target->name);

    if (to->num->kind == SW_NUM_INT && to->num->bits == 4 && n > 0)
        n += snprintf(out + n, COMMAND_BYTES - (size_t)n, " --scheme %s",
                      to->is_symmetric ? "W4A16" : "W4A16_ASYM");
    if (to->num->kind == SW_NUM_INT && to->group_elems > 0 && n > 0)
        (void)snprintf(out + n, COMMAND_BYTES - (size_t)n, " --group-size %lld",
                       (long long)to->group_elems);
}

/* As small as what is lost where eight bits are written; nothing is much better. */
static bool is_small(const sw_convert_cost *cost) { return cost->worst < 0.01; }

void sw_convert_cost_print(const sw_convert_job *job)
{
    const sw_convert_cost cost = sw_convert_cost_of(job);
    char command[COMMAND_BYTES];

    if (!cost.n) return;
    (void)printf("  rounded again, to %s%s: this error is added to that of the source\n",
                 cost.at->to.num->name,
                 cost.at->to.num->kind != SW_NUM_INT ? ""
                 : cost.at->to.is_symmetric          ? " without zero points"
                                                     : " with zero points");
    (void)printf("  error of the weights %.2f %% on average, %.2f %% at worst, of %s: %s\n",
                 100 * cost.mean, 100 * cost.worst, cost.at->path, cost.at->why);
    measure_command(command, job);
    (void)printf("  to measure the effect on the model (KL divergence, perplexity): %s\n", command);
    if (is_small(&cost)) return;
    better_command(command, job, cost.at);
    (void)printf("  more accurate, since it rounds with calibration text: %s\n", command);
    if (cost.wider)
        (void)printf("  closer to the source, at about twice the size: --allow-requantize "
                     "--scheme %s\n", cost.wider);
}

bool sw_convert_cost_json(cJSON *root, const sw_convert_job *job)
{
    const sw_convert_cost cost = sw_convert_cost_of(job);
    char command[COMMAND_BYTES];
    cJSON *o;

    if (!cost.n) return true;
    o = cJSON_AddObjectToObject(root, "requantized_error");
    if (!o || !cJSON_AddNumberToObject(o, "mean", cost.mean) ||
        !cJSON_AddNumberToObject(o, "worst", cost.worst) ||
        !cJSON_AddStringToObject(o, "worst_tensor", cost.at->path))
        return false;
    measure_command(command, job);
    if (!cJSON_AddStringToObject(o, "measure", command)) return false;
    if (is_small(&cost)) return true;
    better_command(command, job, cost.at);
    return cJSON_AddStringToObject(o, "better", command) != NULL &&
           (!cost.wider || cJSON_AddStringToObject(o, "wider_scheme", cost.wider));
}
