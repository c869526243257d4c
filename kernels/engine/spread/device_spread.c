/* device_spread.c - see device_spread.h; the same with and without CUDA. */
#include "kernels/engine/spread/device_spread.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/mem.h"

static sw_code open_one(sw_device_set *set, int i, sw_err *err)
{
    if (set->gpus[i]) return SW_OK;
    return sw_device_open(&set->gpus[i], set->indices[i], set->cap_bytes, err);
}

sw_code sw_device_set_open(sw_device_set *set, sw_err *err) { return open_one(set, 0, err); }

void sw_device_set_close(sw_device_set *set)
{
    for (int i = 0; i < set->n; i++) {
        sw_device_close(set->gpus[i]);
        set->gpus[i] = NULL;
    }
}

/* ---- several ---- */

static sw_code open_others(sw_device_model *m, sw_device_set *set, const sw_model *model,
                           int64_t max_tokens, int64_t max_seq, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int i = 1; i < set->n && rc == SW_OK; i++) {
        if ((rc = open_one(set, i, err)) == SW_OK)
            rc = sw_device_engine_new(&m->engines[i], set->gpus[i], model, max_tokens, max_seq,
                                      err);
        m->n_engines = i + 1;
    }
    return rc;
}

/* "layers 0-15 on cuda:0, 16-31 on cuda:2" */
static void tell_parts(sw_device_model *m, const int64_t *ends, sw_device_engine *const *engines,
                       const sw_device_set *set, int n)
{
    size_t used = 0;
    int at = 0;

    for (int i = 0; i < n && used + 1 < sizeof m->text; i++) {
        while (m->engines[at] != engines[i]) at++;
        (void)snprintf(m->text + used, sizeof m->text - used, "%s%lld-%lld on cuda:%d",
                       i ? ", " : "layers ", (long long)(i ? ends[i - 1] : 0),
                       (long long)ends[i] - 1, set->indices[at]);
        used = strlen(m->text);
    }
}

/* Without the devices that no layer lies on. */
static sw_code load_parts(sw_device_model *m, const sw_device_set *set, int64_t *ends,
                          const sw_lm *lm, sw_err *err)
{
    sw_device_engine *engines[SW_SPREAD_DEVICES_MAX];
    int n = 0;

    for (int i = 0; i < set->n; i++) {
        if (ends[i] == (n ? ends[n - 1] : 0)) continue;
        engines[n] = m->engines[i];
        ends[n++] = ends[i];
    }
    tell_parts(m, ends, engines, set, n);
    return sw_device_lm_spread(&m->lm, engines, ends, n, lm, err);
}

static sw_code spread(sw_device_model *m, sw_device_set *set, const sw_spread_need *need,
                      const sw_lm *lm, int64_t max_tokens, int64_t max_seq, sw_err *err)
{
    sw_spread_room rooms[SW_SPREAD_DEVICES_MAX];
    int64_t ends[SW_SPREAD_DEVICES_MAX];
    sw_code rc = open_others(m, set, lm->model, max_tokens, max_seq, err);

    for (int i = 0; i < set->n && rc == SW_OK; i++)
        rooms[i] = (sw_spread_room){set->indices[i], sw_device_left_bytes(set->gpus[i])};
    if (rc == SW_OK) rc = sw_spread_plan(ends, need, rooms, set->n, err);
    return rc == SW_OK ? load_parts(m, set, ends, lm, err) : rc;
}

/* ---- one, or several ---- */

/* What could not be spread, and may stream. */
static sw_code stay(sw_device_model *m, const sw_device_set *set, const sw_err *why,
                    const sw_lm *lm, sw_err *err)
{
    (void)snprintf(m->text, sizeof m->text, "all layers on cuda:%d, some of them in host memory "
                   "until their turn: the model %.400s", set->indices[0], why->text);
    return sw_device_lm_new(&m->lm, m->engines[0], lm, err);
}

static sw_code open_several(sw_device_model *m, sw_device_set *set, const sw_lm *lm,
                            int64_t max_tokens, int64_t max_seq, sw_err *err)
{
    sw_spread_need need = {.n_layers = lm->model->n_layers};
    sw_err why = {0};
    sw_code rc = SW_MEM_GET(&need.layer_bytes, need.n_layers, "sizes of layers", err);

    if (rc != SW_OK) return rc;
    sw_device_lm_need(&need, m->engines[0], lm);
    if (!set->spreads_all && sw_spread_whole_bytes(&need) <= sw_device_left_bytes(set->gpus[0])) {
        rc = sw_device_lm_new(&m->lm, m->engines[0], lm, err);
    } else {
        rc = spread(m, set, &need, lm, max_tokens, max_seq, &why);
        if (rc == SW_E_NOMEM && set->may_stream && !m->lm)
            rc = stay(m, set, &why, lm, err);
        else if (rc != SW_OK)
            *err = why;
    }
    sw_mem_put(need.layer_bytes);
    return rc;
}

sw_code sw_device_model_open(sw_device_model *out, sw_device_set *set, const sw_lm *lm,
                             int64_t max_tokens, int64_t max_seq, sw_err *err)
{
    sw_device_model m = {.n_engines = 1};
    sw_code rc = sw_device_engine_new(&m.engines[0], set->gpus[0], lm->model, max_tokens, max_seq,
                                      err);

    if (rc == SW_OK)
        rc = set->n > 1 ? open_several(&m, set, lm, max_tokens, max_seq, err)
                        : sw_device_lm_new(&m.lm, m.engines[0], lm, err);
    if (rc == SW_OK)
        *out = m;
    else
        sw_device_model_close(&m);
    return rc;
}

void sw_device_model_close(sw_device_model *m)
{
    sw_device_lm_free(m->lm);
    for (int i = 0; i < m->n_engines; i++) sw_device_engine_free(m->engines[i]);
    memset(m, 0, sizeof *m);
}
