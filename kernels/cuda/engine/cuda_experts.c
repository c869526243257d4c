/* cuda_experts.c - the experts of a block onto the device: gates with ups where they lie alike, and
 * tables of where each expert's weights are.
 *
 * E2M1 has no product of single linears on the device, which decode it to BF16. Grouped products
 * (experts/routed.h) read its tiles, so where they take all experts of a block those stay as they
 * are stored, a quarter of the bytes; where one expert runs alone (a tap wants its rows),
 * sw_device_linear decodes it then. E4M3 with scales of channels it is to read in columns
 * (gemm/column_tiles.h); of an expert alone sw_device_linear undoes that.
 */
#include <math.h>

#include "formats/base/size.h"
#include "kernels/cuda/engine/cuda_engine_internal.h"
#include "kernels/cuda/experts/routed.h"
#include "kernels/cuda/gemm/column_tiles.h"

/* ---- those that stay in E2M1 ---- */

/* The largest bytes that the grouped products multiply by: 2^65; 448, as they take no sign. */
#define E8M0_MAX 192
#define E4M3_MAX 0x7e

/* Whether all scales, padding among them, are such that a product with them is a number. */
static bool has_usable_scales(const sw_tiles *t)
{
    const uint8_t *scales = t->scales;
    const bool is_e8m0 = t->spec.scale_dtype == SW_DTYPE_F8_E8M0;
    const int64_t n = sw_tiles_scales_bytes(t->spec.scale_dtype, t->n_out, t->n_groups);
    bool is_bad = false;

    for (int64_t i = 0; i < n; i++)
        is_bad |= scales[i] > (is_e8m0 ? E8M0_MAX : E4M3_MAX);
    return !is_bad && (!t->spec.has_global || (isfinite(t->global_scale) && t->global_scale != 0));
}

static bool is_e2m1(const sw_weight *w)
{
    return w->tiles && !w->tiles->is_marlin && w->tiles->spec.num == &sw_nums[SW_NUM_E2M1] &&
           w->act.scope == SW_ACT_NONE;
}

/* What a table of experts and the joining of gates and ups need alike. */
static bool stored_alike(const sw_weight *a, const sw_weight *b)
{
    return is_e2m1(b) && sw_qspec_same(&a->tiles->spec, &b->tiles->spec) && !a->bias == !b->bias;
}

static bool expert_stays(const sw_block *from, int64_t x)
{
    const sw_weight *gate = &from->experts[0][x], *up = &from->experts[1][x];
    const sw_weight *down = &from->experts[2][x];

    return stored_alike(&from->experts[0][0], gate) && stored_alike(gate, up) &&
           stored_alike(&from->experts[2][0], down) &&
           gate->tiles->global_scale == up->tiles->global_scale &&
           has_usable_scales(gate->tiles) && has_usable_scales(up->tiles) &&
           has_usable_scales(down->tiles);
}

/* Whether grouped products take these experts as they are stored: those of a format that single
 * linears decode. */
static bool stays_e2m1(const sw_device_engine *e, const sw_block *from)
{
    const sw_model *m = e->m;
    sw_routed probe = {.n_tokens = 1, .n_experts = (int)m->n_experts,
                       .top_k = (int)m->n_experts_used, .x = e->buf[SW_BUF_N],
                       .y = e->buf[SW_BUF_N], .act = (int)m->act};
    sw_routed_plan plan;
    sw_err ignored = {0};

    if (!from->experts[0] || !is_e2m1(&from->experts[0][0]) || !is_e2m1(&from->experts[2][0]))
        return false;
    probe.up = *from->experts[0][0].tiles;
    probe.up.n_out *= 2;
    probe.down = *from->experts[2][0].tiles;
    probe.up.is_e2m1_spread = probe.down.is_e2m1_spread = true;
    if (sw_routed_plan_for(&plan, &probe, &e->device, 0, &ignored) != SW_OK) return false;
    for (int64_t x = 0; x < m->n_experts; x++)
        if (!expert_stays(from, x)) return false;
    return true;
}

int64_t sw_device_experts_bytes(const sw_device_engine *e, const sw_block *from, int64_t beside)
{
    const bool stays = from->experts[1] && stays_e2m1(e, from);
    int64_t sum = 0;

    for (int i = 0; i < 3; i++)
        for (int64_t x = 0; from->experts[i] && x < e->m->n_experts; x++) {
            const sw_weight *w = &from->experts[i][x];

            if (w->n_out)
                sum += beside + (stays ? sw_device_tiles_bytes(w) : sw_device_expert_bytes(e, w));
        }
    return sum;
}

static sw_code load_stored(sw_device_block *b, const sw_block *from, int64_t x, sw_err *err)
{
    const sw_weight *parts[2] = {&from->experts[0][x], &from->experts[1][x]};
    const sw_weight *down = &from->experts[2][x];
    sw_code rc = sw_device_weight_load_tiles(&b->experts[0][x], b->e, &b->store, parts, 2, err);

    if (rc != SW_OK) return rc;
    return sw_device_weight_load_tiles(&b->experts[2][x], b->e, &b->store, &down, 1, err);
}

/* ---- all others ---- */

/* Whether the grouped products take the scales of an expert in int4. */
static bool has_small_scales(const sw_weight *w)
{
    const sw_tiles *t = w->tiles;

    return !t || t->is_marlin || t->spec.num != &sw_nums[SW_NUM_INT4] ||
           t->spec.scale_dtype != SW_DTYPE_BF16 ||
           sw_tiles_scales_within(t, 0, SW_ROUTED_SCALE_END);
}

static bool have_small_scales(const sw_block *from, int64_t n_experts)
{
    for (int i = 0; i < 3; i++)
        for (int64_t x = 0; from->experts[i] && x < n_experts; x++)
            if (!has_small_scales(&from->experts[i][x])) return false;
    return true;
}

static sw_code load_expert(sw_device_block *b, const sw_block *from, int64_t x, sw_err *err)
{
    const sw_weight *parts[2] = {from->experts[0] ? &from->experts[0][x] : NULL,
                                 &from->experts[1][x]};
    const sw_weight *down = &from->experts[2][x];
    sw_code rc;

    if (b->is_expert_ungated) {
        rc = sw_device_expert_load(&b->experts[0][x], b->e, &b->store, &parts[1], 1, err);
        if (rc != SW_OK) return rc;
    } else if (x == 0 || b->is_expert_fused) {
        rc = sw_device_expert_load(&b->experts[0][x], b->e, &b->store, parts, 2, err);
        if (rc != SW_OK) return rc;
        if (x == 0) b->is_expert_fused = b->experts[0][x].n_out > 0;
        if (b->is_expert_fused && !b->experts[0][x].n_out)
            return SW_FAIL(err, SW_E_UNSUPPORTED, "expert %lld is stored otherwise than the first",
                           (long long)x);
    }
    for (int i = 0; i < 2 && !b->is_expert_fused; i++)
        if ((rc = sw_device_expert_load(&b->experts[i][x], b->e, &b->store, &parts[i], 1, err)) !=
            SW_OK)
            return rc;
    return sw_device_expert_load(&b->experts[2][x], b->e, &b->store, &down, 1, err);
}

static bool is_like(const sw_device_weight *a, const sw_device_weight *b)
{
    const sw_qspec *one = &a->tiles.spec, *two = &b->tiles.spec;

    if (a->n_out != b->n_out || a->k_in != b->k_in || !a->d_bias != !b->d_bias ||
        !a->tiles.codes != !b->tiles.codes || a->act.scope != b->act.scope ||
        a->act.num != b->act.num || a->act.group_elems != b->act.group_elems ||
        a->act.scale_dtype != b->act.scale_dtype)
        return false;
    return !a->tiles.codes ||
           (one->num == two->num && one->is_symmetric == two->is_symmetric &&
            one->group_elems == two->group_elems && one->scale_dtype == two->scale_dtype &&
            one->has_global == two->has_global && !one->n_outliers == !two->n_outliers);
}

/* Where each expert's weights lie, for kernels that learn on the device which they need; nothing
 * where the experts differ in form. */
static sw_code load_table(sw_expert **out, sw_device_block *b, const sw_device_weight *w,
                          sw_err *err)
{
    const int64_t n = b->e->m->n_experts;
    sw_expert *table = NULL;
    void *d = NULL;
    sw_code rc;

    for (int64_t x = 1; x < n; x++)
        if (!is_like(&w[x], &w[0])) return SW_OK;
    if ((rc = SW_MEM_GET(&table, n, "experts", err)) != SW_OK) return rc;
    for (int64_t x = 0; x < n; x++)
        table[x] = (sw_expert){.codes = w[x].tiles.codes ? (const void *)w[x].tiles.codes
                                                         : w[x].d_dense,
                               .scales = w[x].tiles.scales, .zeros = w[x].tiles.zeros,
                               .bias = w[x].d_bias, .input_scale = w[x].input_scale,
                               .global_scale = w[x].tiles.spec.has_global
                                                   ? w[x].tiles.global_scale : 0};
    rc = sw_device_store_copy(&d, &b->store, table, n * (int64_t)sizeof *table, "experts", err);
    sw_mem_put(table);
    if (rc == SW_OK) *out = d;
    return rc;
}

/* Codes to the order that grouped products want, where these take the experts, else to that of
 * single products. */
static sw_code order_codes(sw_device_block *b, sw_err *err)
{
    const sw_device_engine *e = b->e;
    const bool are_grouped = sw_device_routed_can(b);
    sw_code rc = SW_OK;

    for (int i = 0; i < 3; i++)
        for (int64_t x = 0; x < e->m->n_experts && rc == SW_OK; x++) {
            sw_device_weight *w = &b->experts[i][x];

            rc = (are_grouped ? sw_column_tiles_order_expert : sw_column_tiles_order)(
                &w->tiles, &w->act, &e->device, e->how.stream, err);
        }
    return rc;
}

sw_code sw_device_experts_load(sw_device_block *b, const sw_block *from, sw_err *err)
{
    const int64_t n = b->e->m->n_experts;
    const bool stays = from->experts[1] && stays_e2m1(b->e, from);
    const bool is_small = from->experts[1] && have_small_scales(from, n);
    sw_code rc = SW_OK;

    if (!from->experts[1]) return SW_OK;
    b->is_expert_ungated = !from->experts[0];
    b->is_expert_fused = b->is_expert_ungated || stays;
    for (int i = 0; i < 3 && rc == SW_OK; i++)
        rc = SW_ARENA_TAKE(&b->experts[i], &b->store.arena, n, err);
    for (int64_t x = 0; x < n && rc == SW_OK; x++)
        rc = stays ? load_stored(b, from, x, err) : load_expert(b, from, x, err);
    for (int i = 0; i < 2 && rc == SW_OK && b->is_expert_fused && is_small; i++)
        rc = load_table(&b->d_experts[i], b, b->experts[2 * i], err);
    return rc == SW_OK ? order_codes(b, err) : rc;
}
