/* launch_codes.c - where codes of inputs are made in a plan: see launch_plan.h. */
#include "kernels/engine/launch_plan.h"

/* Whether nothing from launch i on reads buffer b before it is written anew. Of launches that read
 * more than they name, it is taken that they do. */
static bool is_done_with(const sw_launch_plan *plan, int i, sw_buf b)
{
    for (; i < plan->n_launches; i++) {
        const sw_planned_launch *l = &plan->launch[i];

        switch (l->kind) {
            case SW_LAUNCH_SUM: break; /* of X and T */
            case SW_LAUNCH_NORM:
            case SW_LAUNCH_LINEAR:
            case SW_LAUNCH_TO_BF16:
            case SW_LAUNCH_FUSED: /* with a norm it reads X, not src */
                if (l->src == b && l->norm == SW_SLOT_COUNT) return false;
                if (l->dst == b) return true;
                break;
            case SW_LAUNCH_HEADS:
            case SW_LAUNCH_ROPE:
            case SW_LAUNCH_ATTENTION:
            case SW_LAUNCH_DECODE:
                if (b != SW_BUF_N && b != SW_BUF_G) return false;
                break;
            case SW_LAUNCH_GLU:
            case SW_LAUNCH_ACT:
                if (l->src == b || l->dst == b) return false;
                break;
            default: return false;
        }
    }
    return true;
}

/* A norm of the stream, or a gate, and the linear behind it. */
static bool leaves_codes(const sw_launch_plan *plan, const sw_launch_weights *weights, int i)
{
    const sw_planned_launch *l = &plan->launch[i], *next = l + 1;
    const bool is_norm = l->kind == SW_LAUNCH_NORM && l->src == SW_BUF_X &&
                         !weights->has_norm_bias[l->slot];

    return (is_norm || l->kind == SW_LAUNCH_GLU) && next->kind == SW_LAUNCH_LINEAR &&
           next->src == l->dst && !next->is_given && weights->takes_codes[next->slot] &&
           (l->dst == SW_BUF_N || l->dst == SW_BUF_G) && is_done_with(plan, i + 2, l->dst);
}

void sw_launch_plan_codes(sw_launch_plan *plan, const sw_launch_weights *weights,
                          const sw_launch_step *step)
{
    if (step->has_tap) return;
    for (int i = 0; i + 1 < plan->n_launches; i++) {
        if (!leaves_codes(plan, weights, i)) continue;
        plan->launch[i].coded_for = plan->launch[i + 1].slot;
        plan->launch[i + 1].has_codes = true;
    }
}
