/* decode_speed.c - see decode_speed.h. */
#include "verify/speed/decode_speed.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/size.h"
#include "formats/io/profile.h"
#include "kernels/engine/device_engine.h"
#include "verify/speed/speed_data.h"

#define N_SHARED 7 /* q, k, v, o, gate, up, down: one weight of each serves all layers' copies */
#define HEAD_OFFSET 64 /* rows: the head is the embedding's buffer from there on */

static const struct {
    const char *name, *config;
} shapes[] = {
    {"1b", "{\"model_type\":\"llama\",\"hidden_size\":2048,\"intermediate_size\":8192,"
           "\"num_hidden_layers\":16,\"num_attention_heads\":32,\"num_key_value_heads\":8,"
           "\"head_dim\":64,\"vocab_size\":128256,\"max_position_embeddings\":131072,"
           "\"rms_norm_eps\":1e-5,\"rope_theta\":500000.0,\"torch_dtype\":\"bfloat16\"}"},
    {"8b", "{\"model_type\":\"llama\",\"hidden_size\":4096,\"intermediate_size\":14336,"
           "\"num_hidden_layers\":32,\"num_attention_heads\":32,\"num_key_value_heads\":8,"
           "\"vocab_size\":128256,\"max_position_embeddings\":131072,\"rms_norm_eps\":1e-5,"
           "\"rope_theta\":500000.0,\"torch_dtype\":\"bfloat16\"}"},
    {"70b", "{\"model_type\":\"llama\",\"hidden_size\":8192,\"intermediate_size\":28672,"
            "\"num_hidden_layers\":80,\"num_attention_heads\":64,\"num_key_value_heads\":8,"
            "\"vocab_size\":128256,\"max_position_embeddings\":131072,\"rms_norm_eps\":1e-5,"
            "\"rope_theta\":500000.0,\"torch_dtype\":\"bfloat16\"}"},
};
#define N_SHAPES ((int)(sizeof shapes / sizeof *shapes))

const char *sw_decode_shape_name(int i) { return i < N_SHAPES ? shapes[i].name : NULL; }

/* A made-up model and what its weights lie in. */
typedef struct made_up {
    sw_model model;
    sw_lm lm;
    sw_speed_weights linears[N_SHARED], table;
    sw_arena arena;
} made_up;

static void made_up_free(made_up *m)
{
    for (int i = 0; i < N_SHARED; i++) sw_speed_weights_free(&m->linears[i]);
    sw_speed_weights_free(&m->table);
    sw_arena_free(&m->arena);
}

static sw_code read_shape(sw_model *out, const char *name, sw_err *err)
{
    for (int i = 0; i < N_SHAPES; i++) {
        cJSON *config;
        sw_code rc;

        if (strcmp(shapes[i].name, name) != 0) continue;
        if ((config = cJSON_Parse(shapes[i].config)) == NULL)
            return SW_FAIL(err, SW_E_NOMEM, "the description of %s", name);
        rc = sw_model_read(out, config, err);
        cJSON_Delete(config);
        return rc;
    }
    return SW_FAIL(err, SW_E_USAGE, "no shape %s; there are 1b, 8b and 70b", name);
}

static sw_code make_linears(made_up *m, int store, int64_t group_elems, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int i = 0; i < N_SHARED && rc == SW_OK; i++) {
        sw_speed_options o = {.group_elems = group_elems};

        sw_model_slot_shape(&m->model, 0, (sw_slot)i, &o.n_out, &o.k_in);
        rc = sw_speed_weights_new(&m->linears[i], &o, store, 0, err);
    }
    return rc;
}

static int find_store(const char *name, size_t n)
{
    for (int i = 0; i < sw_n_speed_stores; i++)
        if (strlen(sw_speed_stores[i].name) == n && !strncmp(sw_speed_stores[i].name, name, n))
            return i;
    return -1;
}

static sw_code make_ends(made_up *m, sw_err *err)
{
    const sw_speed_options o = {.n_out = m->model.vocab + HEAD_OFFSET, .k_in = m->model.hidden};
    sw_code rc = sw_speed_weights_new(&m->table, &o, find_store("bf16", 4), 0, err);

    if (rc != SW_OK) return rc;
    m->lm.model = &m->model;
    m->lm.embed = m->table.weights[0];
    m->lm.embed.n_out = m->model.vocab;
    m->lm.head = m->lm.embed;
    m->lm.head.dense = (const char *)m->lm.embed.dense + HEAD_OFFSET * m->model.hidden * 2;
    if ((rc = SW_ARENA_TAKE(&m->lm.final_norm, &m->arena, m->model.hidden, err)) != SW_OK)
        return rc;
    for (int64_t i = 0; i < m->model.hidden; i++) m->lm.final_norm[i] = 1.0f;
    return SW_OK;
}

static sw_code make_model(made_up *m, const sw_decode_options *o, int store, sw_err *err)
{
    sw_code rc;

    if ((rc = read_shape(&m->model, o->shape, err)) != SW_OK ||
        (rc = make_linears(m, store, o->group_elems, err)) != SW_OK ||
        (rc = make_ends(m, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&m->lm.blocks, &m->arena, m->model.n_layers, err)) != SW_OK)
        return rc;
    for (int64_t l = 0; l < m->model.n_layers; l++) {
        sw_block *b = &m->lm.blocks[l];

        b->layer = l;
        b->kv = (sw_kv_form){o->keeps_e4m3, 1.0f, 1.0f};
        for (int i = 0; i < N_SHARED; i++) b->linear[i] = m->linears[i].weights[0];
        b->norm[SW_SLOT_NORM_ATTN] = b->norm[SW_SLOT_NORM_MLP] = m->lm.final_norm;
    }
    return SW_OK;
}

/* All that a step reads but the embedding, of which it reads a row a sequence. */
static int64_t bytes_of_weights(const sw_device_engine *e, const made_up *m)
{
    return sw_device_lm_bytes(e, &m->lm) - m->model.vocab * m->model.hidden * 2;
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

static sw_code fill_sequences(sw_device_session *s, const made_up *m, const sw_decode_options *o,
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

static sw_code measure(sw_decode_row *row, sw_device_engine *e, sw_device_lm *lm, const made_up *m,
                       const sw_decode_options *o, sw_err *err)
{
    const sw_model *model = &m->model;
    const int64_t batch = row->batch, capacity = o->context + (o->rounds + 1) * o->steps;
    const int64_t kv_elems = 2 * model->n_layers * model->n_kv_heads * model->head_dim;
    const int64_t kv_bytes = kv_elems * (o->keeps_e4m3 ? 1 : 2);
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
    row->weight_bytes = bytes_of_weights(e, m);
    row->step_bytes = row->weight_bytes + batch * held * kv_bytes;
    row->tokens_s = 1e6 * (double)batch / row->step_us;
done:
    sw_device_session_free(s);
    sw_mem_put(ids);
    return rc;
}

static sw_code run_weights(sw_decode_report *r, const sw_decode_options *o, int store, sw_err *err)
{
    made_up *m = NULL;
    sw_device_engine *engine = NULL;
    sw_device_lm *lm = NULL;
    int64_t max_tokens = o->context;
    sw_code rc = SW_MEM_GET(&m, 1, "model", err);

    if (rc != SW_OK) return rc;
    for (int i = 0; i < o->n_batches; i++) max_tokens = sw_max_i64(max_tokens, o->batches[i]);
    if ((rc = make_model(m, o, store, err)) != SW_OK ||
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
    made_up_free(m);
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
