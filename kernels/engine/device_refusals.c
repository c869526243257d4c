/* device_refusals.c - which models the engine of a device can run. See device_engine.h.
 *
 * The device's engine runs every operation, but not of every size. What it does not have is refused
 * here, before anything is computed.
 */
#include "kernels/engine/device_engine.h"
#include "kernels/engine/launch_plan.h"

#define STATE_KEYS_MAX 256 /* that fit the registers of a block of threads */

/* What of a layer's program the device does not have; NULL: nothing. */
static const char *missing_in(const sw_model *m, const sw_op *ops, int n_ops)
{
    for (int i = 0; i < n_ops; i++) {
        if (!sw_launch_plan_knows(ops[i].kind)) return "an operation of its layers";
        if (ops[i].kind >= SW_OP_GATED_DELTA && ops[i].kind <= SW_OP_SHORT_CONV &&
            m->mixer.d_state > STATE_KEYS_MAX)
            return "recurrent states of more than 256 keys";
    }
    return NULL;
}

sw_code sw_device_supports(const sw_model *m, sw_err *err)
{
    const char *missing = NULL;
    int64_t layer = 0;

    for (; layer < m->n_layers && !missing; layer++) {
        int n_ops;
        const sw_op *ops = sw_model_ops(m, layer, &n_ops);

        missing = missing_in(m, ops, n_ops);
    }
    if (!missing) return SW_OK;
    return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: layer %lld needs what the engine of the device does "
                   "not have (%s); use --device cpu", m->arch->name, (long long)layer - 1, missing);
}

/* Those of families with compressed keys stand for several tokens each. */
bool sw_device_chooses_keys(const sw_model *m)
{
    return m->indexer.top_k && !m->o_groups;
}
