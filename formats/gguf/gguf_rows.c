/* gguf_rows.c - see gguf_rows.h. */
#include "formats/gguf/gguf_rows.h"

#include <stdbool.h>

static bool is_same(const sw_gguf_order_of *a, const sw_gguf_order_of *b)
{
    return a->kind == b->kind && a->n_rows == b->n_rows && a->first == b->first &&
           a->groups == b->groups && a->per == b->per && a->width == b->width &&
           a->part == b->part;
}

static int64_t pairs(const sw_gguf_order_of *o, int64_t i)
{
    const int64_t at = i % o->width;

    return at < o->part ? i - at + at % 2 * (o->part / 2) + at / 2 : i;
}

static int64_t heads(const sw_gguf_order_of *o, int64_t i)
{
    const int64_t at = i - o->first, head = at / o->width;

    if (at < 0) return i;
    return o->first + (head % o->groups * o->per + head / o->groups) * o->width + at % o->width;
}

/* A group has its queries first, heads 0 to per - 1, then its key and its value. */
static int64_t qkv(const sw_gguf_order_of *o, int64_t i)
{
    const int64_t head = i / o->width, n_q = o->groups * o->per;
    const int64_t part = head < n_q ? 0 : 1 + (head - n_q) / o->groups;
    const int64_t group = part ? (head - n_q) % o->groups : head / o->per;
    const int64_t in_group = part ? o->per + part - 1 : head % o->per;

    return (group * (o->per + 2) + in_group) * o->width + i % o->width;
}

static int64_t delta_group(const sw_gguf_order_of *o)
{
    return 2 * o->part + 2 * o->per * o->width;
}

static int64_t delta_qkv(const sw_gguf_order_of *o, int64_t i)
{
    const int64_t keys = o->groups * o->part, values = o->per * o->width;

    if (i < 2 * keys)
        return i % keys / o->part * delta_group(o) + i / keys * o->part + i % o->part;
    return (i - 2 * keys) / values * delta_group(o) + 2 * o->part + (i - 2 * keys) % values;
}

static int64_t delta_z(const sw_gguf_order_of *o, int64_t i)
{
    const int64_t values = o->per * o->width;

    return i / values * delta_group(o) + 2 * o->part + values + i % values;
}

static int64_t tail(const sw_gguf_order_of *o, int64_t i)
{
    return i / o->width * (o->part + o->width) + o->part + i % o->width;
}

sw_code sw_gguf_order_rows(const int32_t **out, sw_gguf_orders *orders, const sw_gguf_order_of *of,
                           sw_arena *arena, sw_err *err)
{
    static int64_t (*const rules[])(const sw_gguf_order_of *, int64_t) = {
        [SW_GGUF_ROWS_PAIRS] = pairs, [SW_GGUF_ROWS_HEADS] = heads, [SW_GGUF_ROWS_QKV] = qkv,
        [SW_GGUF_ROWS_DELTA_QKV] = delta_qkv, [SW_GGUF_ROWS_DELTA_Z] = delta_z,
        [SW_GGUF_ROWS_TAIL] = tail,
    };
    int32_t *rows = NULL;
    sw_code rc;

    for (int i = 0; i < orders->n; i++) {
        if (!is_same(&orders->made[i].of, of)) continue;
        *out = orders->made[i].rows;
        return SW_OK;
    }
    if (of->n_rows > INT32_MAX)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "a tensor of %lld rows", (long long)of->n_rows);
    if ((rc = SW_ARENA_TAKE(&rows, arena, of->n_rows, err)) != SW_OK) return rc;
    for (int64_t i = 0; i < of->n_rows; i++) rows[i] = (int32_t)rules[of->kind](of, i);
    *out = rows;
    if (orders->n == SW_GGUF_ORDERS_MAX) return SW_OK;
    orders->made[orders->n].of = *of;
    orders->made[orders->n++].rows = rows;
    return SW_OK;
}
