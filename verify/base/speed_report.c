/* speed_report.c - see speed_report.h: what gates ask of the figures, and their JSON. */
#include "verify/base/speed_report.h"

#include <math.h>

/* The decoding cell whose figure is lowest. */
static const sw_speed_cell *least(const sw_report_speed *speed, bool is_speedup)
{
    const sw_speed_cell *found = NULL;
    double lowest = (double)INFINITY;

    for (int64_t i = 0; i < speed->n_cells; i++) {
        const sw_speed_cell *c = &speed->cells[i];
        const double at = is_speedup ? c->speedup.median.at
                                     : c->tokens_s[SW_SPEED_CHECKPOINT].median.at;

        if (c->is_prefill || !(at < lowest)) continue;
        lowest = at;
        found = c;
    }
    return found;
}

const sw_speed_cell *sw_speed_least_speedup(const sw_report_speed *speed)
{
    return speed->has_original ? least(speed, true) : NULL;
}

const sw_speed_cell *sw_speed_least_tokens(const sw_report_speed *speed)
{
    return least(speed, false);
}

bool sw_speed_is_undecided(const sw_speed_cell *cell, const sw_speed_figure *figure, double limit)
{
    return cell->is_noisy && figure->lowest / SW_SPEED_MARGIN <= limit &&
           figure->highest * SW_SPEED_MARGIN >= limit;
}

const sw_speed_cell *sw_speed_noisiest(const sw_report_speed *speed, double *spread)
{
    const sw_speed_cell *found = NULL;

    *spread = 0;
    for (int64_t i = 0; i < speed->n_cells; i++)
        for (int side = 0; side < (speed->has_original ? 2 : 1); side++) {
            if (found && !(speed->cells[i].spread[side] > *spread)) continue;
            found = &speed->cells[i];
            *spread = found->spread[side];
        }
    return found;
}

bool sw_speed_linear_loses(const sw_speed_linear *linear) { return linear->speedup.high < 1; }

/* ---- JSON: what cannot be added is remembered, and asked for once ---- */

static void put(bool *ok, cJSON *at, const char *key, double value)
{
    if (!at || !(isfinite(value) ? cJSON_AddNumberToObject(at, key, value)
                                 : cJSON_AddNullToObject(at, key)))
        *ok = false;
}

static void put_interval(bool *ok, cJSON *at, const char *key, const sw_interval *value)
{
    cJSON *i = at ? cJSON_AddObjectToObject(at, key) : NULL;

    put(ok, i, "value", value->at);
    put(ok, i, "low", value->low);
    put(ok, i, "high", value->high);
}

static cJSON *item_of(bool *ok, cJSON *array)
{
    cJSON *item = cJSON_CreateObject();

    if (item && array && cJSON_AddItemToArray(array, item)) return item;
    cJSON_Delete(item);
    *ok = false;
    return NULL;
}

static void put_side(bool *ok, cJSON *at, const sw_speed_cell *c, int side)
{
    cJSON *o = at ? cJSON_AddObjectToObject(at, side ? "original" : "checkpoint") : NULL;

    put_interval(ok, o, "tokens_per_second", &c->tokens_s[side].median);
    put(ok, o, "us", c->us[side]);
    put(ok, o, "spread", c->spread[side]);
    put(ok, o, "roof_share", c->roof_share[side]);
    if (!o || !cJSON_AddStringToObject(o, "roof", c->is_by_bytes[side] ? "memory" : "arithmetic"))
        *ok = false;
}

static void put_cell(bool *ok, cJSON *at, const sw_report_speed *s, const sw_speed_cell *c)
{
    if (!at || !cJSON_AddStringToObject(at, "what", c->is_prefill ? "prefill" : "decode") ||
        !cJSON_AddBoolToObject(at, "noisy", c->is_noisy))
        *ok = false;
    put(ok, at, "batch", (double)c->batch);
    put(ok, at, "sequences_at_once", (double)c->at_once);
    put(ok, at, "tokens_each", (double)c->n_steps);
    put_side(ok, at, c, SW_SPEED_CHECKPOINT);
    if (!s->has_original) return;
    put_side(ok, at, c, SW_SPEED_ORIGINAL);
    put_interval(ok, at, "speedup", &c->speedup.median);
}

static void put_linear(bool *ok, cJSON *at, const sw_report_speed *s, const sw_speed_linear *l)
{
    if (!at || !cJSON_AddStringToObject(at, "name", l->name) ||
        !cJSON_AddStringToObject(at, "what", l->is_prefill ? "prefill" : "decode") ||
        !cJSON_AddStringToObject(at, "kernel", l->kernel))
        *ok = false;
    put(ok, at, "n_out", (double)l->n_out);
    put(ok, at, "k_in", (double)l->k_in);
    put(ok, at, "count", (double)l->count);
    put(ok, at, "tokens", (double)l->m);
    put(ok, at, "us", l->us[SW_SPEED_CHECKPOINT]);
    put(ok, at, "bytes", l->bytes[SW_SPEED_CHECKPOINT]);
    put(ok, at, "roof_share", l->roof_share);
    put(ok, at, "spread", l->spread);
    if (!s->has_original) return;
    put(ok, at, "us_original", l->us[SW_SPEED_ORIGINAL]);
    put(ok, at, "bytes_original", l->bytes[SW_SPEED_ORIGINAL]);
    put_interval(ok, at, "speedup", &l->speedup);
    if (!at || !cJSON_AddBoolToObject(at, "loses", sw_speed_linear_loses(l))) *ok = false;
}

static void put_machine(bool *ok, cJSON *o, const sw_report_speed *s)
{
    double spread = 0;

    if (!o || !cJSON_AddStringToObject(o, "device", s->device[0] ? s->device : "cpu") ||
        !cJSON_AddStringToObject(o, "cpu", s->cpu) ||
        !cJSON_AddBoolToObject(o, "noisy",
                               sw_speed_noisiest(s, &spread) && spread > SW_SPREAD_MAX) ||
        !cJSON_AddBoolToObject(o, "sequences_in_turns", s->is_in_turns))
        *ok = false;
    put(ok, o, "spread", spread);
    put(ok, o, "threads", s->n_threads);
    put(ok, o, "rounds", s->n_rounds);
    put(ok, o, "prompt", (double)s->prompt);
    put(ok, o, "context", (double)s->context);
    put(ok, o, "memory_gb_s", s->read_gb_s);
    put(ok, o, "arithmetic_gflop_s", s->gflop_s);
    put(ok, o, "cache_bytes", (double)s->cache_bytes);
    put(ok, o, "weight_bytes", s->weight_bytes[SW_SPEED_CHECKPOINT]);
    put(ok, o, "blocks_in_host_memory", (double)s->n_streamed[SW_SPEED_CHECKPOINT]);
    if (!s->has_original) return;
    put(ok, o, "weight_bytes_original", s->weight_bytes[SW_SPEED_ORIGINAL]);
    put(ok, o, "blocks_in_host_memory_original", (double)s->n_streamed[SW_SPEED_ORIGINAL]);
}

sw_code sw_speed_json(cJSON *object, const sw_report_speed *s, sw_err *err)
{
    cJSON *o = s->is_measured ? cJSON_AddObjectToObject(object, "speed")
                              : cJSON_AddNullToObject(object, "speed");
    cJSON *cells, *linears;
    bool ok = o != NULL;

    if (ok && s->is_measured) {
        put_machine(&ok, o, s);
        cells = cJSON_AddArrayToObject(o, "cells");
        linears = cJSON_AddArrayToObject(o, "linears");
        for (int64_t i = 0; i < s->n_cells && ok; i++)
            put_cell(&ok, item_of(&ok, cells), s, &s->cells[i]);
        for (int64_t i = 0; i < s->n_linears && ok; i++)
            put_linear(&ok, item_of(&ok, linears), s, &s->linears[i]);
        ok = ok && cells && linears;
    }
    return ok ? SW_OK : SW_FAIL(err, SW_E_NOMEM, "no memory for the report");
}
