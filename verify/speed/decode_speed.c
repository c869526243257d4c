/* decode_speed.c - see decode_speed.h. */
#include "verify/speed/decode_speed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/size.h"
#include "formats/io/profile.h"
#include "kernels/engine/device_engine.h"
#include "verify/speed/decode_model.h"
#include "verify/speed/speed_data.h"

static int find_store(const char *name, size_t n)
{
    for (int i = 0; i < sw_n_speed_stores; i++)
        if (strlen(sw_speed_stores[i].name) == n && !strncmp(sw_speed_stores[i].name, name, n))
            return i;
    return -1;
}

/* All that a step of a batch reads but the embedding, of which it reads a row a sequence; of
 * experts, as many as its tokens reach where each is as likely as any other. */
static int64_t bytes_of_weights(const sw_device_engine *e, const sw_made_up *m, int64_t batch)
{
    const sw_model *model = &m->model;
    const double n = (double)model->n_experts;
    const double missed = n > 0 ? pow(1 - (double)model->n_experts_used / n, (double)batch) : 0;

    return sw_device_lm_bytes(e, &m->lm) - model->vocab * model->hidden * 2 -
           (int64_t)(missed * (double)sw_device_lm_expert_bytes(e, &m->lm));
}

/* Keys and values that a step of a sequence of `held` tokens reads. */
static int64_t kv_elems(const sw_model *m, int64_t held)
{
    int64_t sum = 0;

    for (int64_t l = 0; l < m->n_layers; l++)
        sum += 2 * m->n_kv_heads * m->head_dim *
               (m->sliding_window && m->is_window_layer[l] ? sw_min_i64(held, m->sliding_window)
                                                           : held);
    return sum;
}

static double now_us(void) { return 1e6 * sw_clock_s(); }

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* us of a step: o->steps steps a round, after a first round that is thrown away. */
static sw_code time_steps(double *step_us, sw_device_session *s, const sw_decode_options *o,
                          uint32_t *ids, sw_err *err)
{
    double us[SW_DECODE_BATCHES_MAX];
    const int rounds = (int)sw_min_i64(sw_max_i64(o->rounds, 1), SW_DECODE_BATCHES_MAX);

    for (int i = -1; i < rounds; i++) {
        const double start = now_us();
        sw_code rc = sw_device_session_step(s, ids, o->steps, err);

        if (rc != SW_OK || (rc = sw_progress_check(o->progress, err)) != SW_OK) return rc;
        if (i >= 0) us[i] = (now_us() - start) / (double)o->steps;
    }
    qsort(us, (size_t)rounds, sizeof *us, by_value);
    *step_us = us[rounds / 2];
    return SW_OK;
}

static sw_code fill_sequences(sw_device_session *s, const sw_made_up *m, const sw_decode_options *o,
                              int64_t batch, uint32_t *ids, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < batch && rc == SW_OK; i++) {
        for (int64_t t = 0; t < o->context; t++)
            ids[t] = (uint32_t)((t * 7919 + i * 104729 + 17) % m->model.vocab);
        rc = sw_device_session_feed(s, i, ids, o->context, err);
    }
    return rc;
}

static sw_code measure(sw_decode_row *row, sw_device_engine *e, sw_device_lm *lm,
                       const sw_made_up *m, const sw_decode_options *o, sw_err *err)
{
    const int64_t batch = row->batch, capacity = o->context + (o->rounds + 1) * o->steps;
    const int64_t held = o->context + (o->rounds + 1) * o->steps / 2; /* on average */
    const sw_sampling greedy = {0, 0, 1, 0};
    sw_device_session *s = NULL;
    uint32_t *ids = NULL;
    sw_code rc;

    if ((rc = SW_MEM_GET(&ids, sw_max_i64(o->context, o->steps * batch), "tokens", err)) ||
        (rc = sw_device_session_new(&s, lm, batch, capacity, &greedy, err)) != SW_OK ||
        (rc = fill_sequences(s, m, o, batch, ids, err)) != SW_OK ||
        (rc = time_steps(&row->step_us, s, o, ids, err)) != SW_OK)
        goto done;
    row->weight_bytes = bytes_of_weights(e, m, batch);
    row->step_bytes =
        row->weight_bytes + batch * kv_elems(&m->model, held) * (o->kv_kind ? 1 : 2);
    row->tokens_s = 1e6 * (double)batch / row->step_us;
done:
    sw_device_session_free(s);
    sw_mem_put(ids);
    return rc;
}

static sw_code run_weights(sw_decode_report *r, const sw_decode_options *o, int store, sw_err *err)
{
    sw_made_up *m = NULL;
    sw_device_engine *engine = NULL;
    sw_device_lm *lm = NULL;
    int64_t max_tokens = o->context;
    sw_code rc = SW_MEM_GET(&m, 1, "model", err);

    if (rc != SW_OK) return rc;
    for (int i = 0; i < o->n_batches; i++) max_tokens = sw_max_i64(max_tokens, o->batches[i]);
    if ((rc = sw_made_up_new(m, o, store, err)) != SW_OK ||
        (rc = sw_device_engine_new(&engine, o->gpu, &m->model, max_tokens,
                                   o->context + (o->rounds + 1) * o->steps, err)) != SW_OK ||
        (rc = sw_device_lm_new(&lm, engine, &m->lm, err)) != SW_OK)
        goto done;
    for (int i = 0; i < o->n_batches && rc == SW_OK; i++) {
        sw_decode_row *row = &r->rows[r->n_rows];

        row->weights = sw_speed_stores[store].name;
        row->batch = o->batches[i];
        sw_progress_step(o->progress, row->weights, i, o->n_batches);
        if ((rc = measure(row, engine, lm, m, o, err)) != SW_OK) break;
        row->bound_tokens_s = 1e9 * r->copy_gb_s * (double)row->batch / (double)row->step_bytes;
        row->bound_share = row->tokens_s / row->bound_tokens_s;
        r->n_rows++;
    }
done:
    sw_device_lm_free(lm);
    sw_device_engine_free(engine);
    sw_made_up_free(m);
    sw_mem_put(m);
    return rc;
}

sw_code sw_decode_speed_run(sw_decode_report *out, const sw_decode_options *o, sw_err *err)
{
    const char *at = o->weights ? o->weights : "bf16,w4a16";
    sw_decode_report r = {.n_rows = 0};
    sw_code rc;

    if (o->n_batches > SW_DECODE_BATCHES_MAX)
        return SW_FAIL(err, SW_E_USAGE, "%d batches; at most %d", o->n_batches,
                       SW_DECODE_BATCHES_MAX);
    memcpy(r.device, sw_device_about(o->gpu)->name, sizeof r.device);
    rc = SW_ARENA_TAKE(&r.rows, &r.arena, SW_SPEED_STORES_MAX * SW_DECODE_BATCHES_MAX, err);
    if (rc == SW_OK) rc = sw_device_copy_rate(o->gpu, &r.copy_gb_s, err);
    while (rc == SW_OK && *at) {
        const size_t n = strcspn(at, ",");
        const int store = find_store(at, n);

        if (store < 0 || sw_speed_stores[store].dense_dtype == SW_DTYPE_F32)
            rc = SW_FAIL(err, SW_E_USAGE, "no weights \"%.*s\" to decode with", (int)n, at);
        else
            rc = run_weights(&r, o, store, err);
        at += n + (at[n] == ',');
    }
    if (rc == SW_OK)
        *out = r;
    else
        sw_decode_report_free(&r);
    return rc;
}

void sw_decode_report_free(sw_decode_report *report)
{
    sw_arena_free(&report->arena);
    memset(report, 0, sizeof *report);
}
