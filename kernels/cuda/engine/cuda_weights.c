/* cuda_weights.c - weights of a block onto the device. See cuda_engine_internal.h. */
#include <string.h>

#include "formats/base/size.h"
#include "kernels/cuda/engine/cuda_engine_internal.h"
#include "kernels/cuda/gemm/column_tiles.h"
#include "kernels/cuda/gemm/marlin_tiles.h"

#define PLACE_ALIGN 256 /* bytes */

/* ---- memory of one lifetime ---- */

typedef struct sw_device_taken {
    void *d;
    struct sw_device_taken *before;
} sw_device_taken;

/* What a place has for n_elems of elem_bytes: as aligned as what the pool gives. */
static sw_code take_in_place(void **out, sw_device_store *store, int64_t n_elems,
                             int64_t elem_bytes, const char *what, sw_err *err)
{
    const int64_t need = (n_elems * elem_bytes + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN;

    if (need > store->place_bytes - store->used_bytes)
        return SW_FAIL(err, SW_E_BUG, "%s: %lld bytes beyond the place of a block", what,
                       (long long)need);
    *out = store->d_place + store->used_bytes;
    store->used_bytes += need;
    return SW_OK;
}

sw_code sw_device_store_take(void **out, sw_device_store *store, int64_t n_elems,
                             int64_t elem_bytes, const char *what, sw_err *err)
{
    if (store->d_place) return take_in_place(out, store, n_elems, elem_bytes, what, err);
    sw_device_taken *entry = NULL;
    sw_code rc = SW_ARENA_TAKE(&entry, &store->arena, 1, err);

    if (rc == SW_OK) rc = sw_device_take(&entry->d, store->gpu, n_elems, elem_bytes, what, err);
    if (rc != SW_OK) return rc;
    entry->before = store->last;
    store->last = entry;
    *out = entry->d;
    return SW_OK;
}

sw_code sw_device_store_copy(void **out, sw_device_store *store, const void *from,
                             int64_t size_bytes, const char *what, sw_err *err)
{
    void *d = NULL;
    sw_code rc = sw_device_store_take(&d, store, size_bytes, 1, what, err);

    if (rc == SW_OK) rc = sw_device_upload(store->gpu, d, from, size_bytes, err);
    if (rc == SW_OK) *out = d;
    return rc;
}

void sw_device_store_free(sw_device_store *store)
{
    for (const sw_device_taken *t = store->last; t; t = t->before) sw_device_put(store->gpu, t->d);
    sw_arena_free(&store->arena);
    store->last = NULL;
}

/* ---- linears ---- */

/* Which container codes of 2 and 3 bits get: their own, or that of 4 bits, which kernels of experts
 * read alone. */
typedef enum tile_form { AS_STORED, WIDENED } tile_form;

/* 2- and 3-bit codes without zero points in a container of 4, whose products take another code for
 * 0, get zero points on the device. */
static bool lacks_zeros(const sw_tiles *t, int bits)
{
    return t->spec.is_symmetric && t->spec.num->kind == SW_NUM_INT && t->spec.num->bits < bits &&
           bits == 4;
}

/* Does a product of the device take these tiles, in a container of `bits`, and activations? */
static bool has_product(const sw_device_engine *e, const sw_weight *w, int bits)
{
    sw_cuda_gemm probe = {.m = 1, .x_stride = w->k_in, .y_stride = w->n_out,
                          .dtype = SW_DTYPE_BF16, .act = w->act};
    sw_cuda_plan plan;
    sw_err ignored = {0};

    if (!w->tiles || w->tiles->spec.n_outliers || w->tiles->spec.has_global) return false;
    probe.tiles = *w->tiles;
    probe.tiles.is_marlin = false; /* once it is on the device */
    probe.tiles.container_bits = bits;
    if (lacks_zeros(w->tiles, bits)) probe.tiles.spec.is_symmetric = false;
    return sw_cuda_gemm_plan(&plan, &probe, &e->device, NULL, &ignored) == SW_OK;
}

/* Bits of a container on the device: as stored where a product reads that and `form` allows it,
 * else 4 or 8; 0: no product takes these tiles. */
static int bits_on_device(const sw_device_engine *e, const sw_weight *w, tile_form form)
{
    if (!w->tiles) return 0;
    if (form == AS_STORED && has_product(e, w, w->tiles->container_bits))
        return w->tiles->container_bits;
    const int bits = sw_tiles_container_bits(w->tiles->spec.num);

    return has_product(e, w, bits) ? bits : 0;
}

static bool same_act(const sw_weight *a, const sw_weight *b)
{
    return a->act.scope == b->act.scope && a->act.num == b->act.num &&
           a->act.group_elems == b->act.group_elems &&
           a->act.scale_dtype == b->act.scale_dtype && a->input_scale == b->input_scale;
}

/* Rows of tiles can be put below each other where all but the last fill theirs. */
static bool can_join(const sw_device_engine *e, const sw_weight *const *parts, int n_parts,
                     tile_form form)
{
    for (int i = 0; i < n_parts; i++) {
        const sw_weight *w = parts[i], *first = parts[0];

        if (w->k_in != first->k_in || !w->tiles != !first->tiles || !w->bias != !first->bias ||
            !same_act(w, first))
            return false;
        if (!w->tiles) continue;
        if (bits_on_device(e, w, form) != bits_on_device(e, first, form) ||
            !sw_qspec_same(&w->tiles->spec, &first->tiles->spec) ||
            (i + 1 < n_parts && w->n_out % SW_TILE_N))
            return false;
    }
    return true;
}

/* The values of tiles with outliers or of a kind that only the host decodes. */
static sw_code decode_on_host(sw_device *gpu, sw_bf16 *d_to, const sw_weight *w, sw_err *err)
{
    sw_qtensor q = {0};
    float *values = NULL;
    sw_code rc = sw_qtensor_alloc(&q, &w->tiles->spec, w->n_out, w->k_in, err);

    if (rc == SW_OK) rc = sw_tiles_unpack(&q, w->tiles, err);
    if (rc == SW_OK) rc = SW_MEM_GET(&values, w->n_out * w->k_in, "decoded weight", err);
    if (rc == SW_OK) {
        sw_qtensor_decode(values, &q);
        rc = sw_device_copy_as_bf16(gpu, d_to, values, SW_DTYPE_F32, w->n_out * w->k_in,
                                    err);
    }
    sw_mem_put(values);
    sw_qtensor_free(&q);
    return rc;
}

/* ---- tiles ---- */

typedef enum tile_array { CODES, SCALES, ZEROS, TILE_ARRAYS } tile_array;

static const char *const array_names[TILE_ARRAYS] = {"codes", "scales", "zero points"};

/* Bytes on the device, where they are in our order and codes in a container of `bits`. */
static int64_t array_bytes(const sw_tiles *t, tile_array which, int bits)
{
    if (which == CODES) return sw_tiles_n(t->n_out) * sw_tiles_k(t->k_in) * sw_tile_bytes(bits);
    if (which == SCALES) return sw_tiles_scales_bytes(t->spec.scale_dtype, t->n_out, t->n_groups);
    return t->zeros || lacks_zeros(t, bits) ? sw_tiles_zeros_bytes(t->n_out, t->n_groups) : 0;
}

/* Bytes on the host; Marlin's zero points lie packed. */
static int64_t stored_bytes(const sw_tiles *t, tile_array which, int bits)
{
    const int64_t n_bytes = array_bytes(t, which, bits);

    return t->is_marlin && which == ZEROS ? n_bytes * t->container_bits / 8 : n_bytes;
}

/* Codes of 2 and 3 bits in the 4-bit container, for kernels that read no other. */
static sw_code upload_widened(sw_device *gpu, void *d_to, const sw_tiles *t, sw_err *err)
{
    const int64_t size_bytes = array_bytes(t, CODES, 4);
    uint8_t *wide = NULL;
    sw_code rc = SW_MEM_GET(&wide, size_bytes, "widened codes", err);

    if (rc != SW_OK) return rc;
    sw_tiles_widen(wide, t);
    rc = sw_device_upload(gpu, d_to, wide, size_bytes, err);
    sw_mem_put(wide);
    return rc;
}

/* The arrays of t at d[]; Marlin's order is copied unchanged and put in ours on the device. */
static sw_code place_tiles(void *const d[TILE_ARRAYS], sw_device_engine *e, const sw_tiles *t,
                           int bits, sw_err *err)
{
    const void *const from[TILE_ARRAYS] = {t->codes, t->scales, t->zeros};
    sw_device_store passing = {.gpu = e->gpu};
    void *at[TILE_ARRAYS] = {d[CODES], d[SCALES], d[ZEROS]};
    sw_tiles uploaded = *t;
    sw_code rc = SW_OK;

    for (int i = 0; i < TILE_ARRAYS && rc == SW_OK; i++) {
        const int64_t size_bytes = stored_bytes(t, (tile_array)i, bits);

        if (!size_bytes) continue;
        if (!from[i])
            rc = sw_device_fill(e->gpu, at[i], t->spec.num->sym_zero, size_bytes, err);
        else if (i == CODES && t->container_bits < bits)
            rc = upload_widened(e->gpu, at[i], t, err);
        else if (t->is_marlin)
            rc = sw_device_store_copy(&at[i], &passing, from[i], size_bytes, array_names[i], err);
        else
            rc = sw_device_upload(e->gpu, at[i], from[i], size_bytes, err);
    }
    uploaded.codes = at[CODES];
    uploaded.scales = at[SCALES];
    uploaded.zeros = at[ZEROS];
    if (rc == SW_OK && t->is_marlin)
        rc = sw_marlin_retile(d[CODES], d[SCALES], d[ZEROS], &uploaded, e->how.stream, err);
    sw_device_store_free(&passing);
    return rc;
}

/* Do rows that share their scales still begin at multiples of their number, one part below the
 * other? */
static bool has_whole_rows(const sw_weight *const *parts, int n_parts)
{
    for (int p = 0; p + 1 < n_parts; p++)
        if (parts[p]->tiles->spec.scale_rows == SW_ROWS_ALL ||
            parts[p]->n_out % sw_qspec_rows(&parts[p]->tiles->spec, parts[p]->n_out))
            return false;
    return true;
}

static bool have_usual_scales(const sw_weight *const *parts, int n_parts)
{
    for (int p = 0; p < n_parts; p++)
        if (!sw_tiles_has_usual_scales(parts[p]->tiles)) return false;
    return true;
}

/* The parts' tiles, one below the other, codes in a container of `bits`. */
static sw_code load_tiles(sw_device_weight *out, sw_device_engine *e, sw_device_store *store,
                          const sw_weight *const *parts, int n_parts, int bits, sw_err *err)
{
    char *d[TILE_ARRAYS] = {NULL};
    int64_t at[TILE_ARRAYS] = {0};
    sw_code rc = SW_OK;

    for (int i = 0; i < TILE_ARRAYS && rc == SW_OK; i++) {
        int64_t size_bytes = 0;

        for (int p = 0; p < n_parts; p++)
            size_bytes += array_bytes(parts[p]->tiles, (tile_array)i, bits);
        if (size_bytes)
            rc = sw_device_store_take((void **)&d[i], store, size_bytes, 1, array_names[i], err);
    }
    for (int p = 0; p < n_parts && rc == SW_OK; p++) {
        const sw_tiles *t = parts[p]->tiles;
        void *const places[TILE_ARRAYS] = {d[CODES] + at[CODES], d[SCALES] + at[SCALES],
                                           d[ZEROS] ? d[ZEROS] + at[ZEROS] : NULL};

        rc = place_tiles(places, e, t, bits, err);
        for (int i = 0; i < TILE_ARRAYS; i++) at[i] += array_bytes(t, (tile_array)i, bits);
    }
    if (rc != SW_OK) return rc;
    out->tiles = *parts[0]->tiles;
    out->tiles.is_marlin = false;
    out->tiles.has_usual_scales = have_usual_scales(parts, n_parts);
    out->tiles.container_bits = bits;
    out->tiles.n_out = out->n_out;
    if (!has_whole_rows(parts, n_parts)) out->tiles.spec.scale_rows = 0;
    out->tiles.codes = (const uint8_t *)d[CODES];
    out->tiles.scales = d[SCALES];
    out->tiles.zeros = (const uint8_t *)d[ZEROS];
    if (d[ZEROS]) out->tiles.spec.is_symmetric = false;
    return SW_OK;
}

static sw_code decode_tiles(sw_device_engine *e, sw_bf16 *d_to, const sw_weight *w, sw_err *err)
{
    sw_device_store store = {.gpu = e->gpu};
    sw_device_weight uploaded = {.n_out = w->n_out};
    sw_code rc;

    if (w->tiles->spec.n_outliers) return decode_on_host(e->gpu, d_to, w, err);
    rc = load_tiles(&uploaded, e, &store, &w, 1, sw_tiles_container_bits(w->tiles->spec.num), err);
    if (rc == SW_OK) rc = sw_cuda_tiles_decode(d_to, &uploaded.tiles, e->how, err);
    sw_device_store_free(&store);
    return rc;
}

static sw_code load_dense(sw_device_weight *out, sw_device_engine *e, sw_device_store *store,
                          const sw_weight *const *parts, int n_parts, sw_err *err)
{
    int64_t row = 0;
    sw_code rc = SW_STORE_TAKE(&out->d_dense, store, out->n_out * out->k_in, "weights", err);

    for (int i = 0; i < n_parts && rc == SW_OK; i++) {
        sw_bf16 *d_to = out->d_dense + row * out->k_in;

        rc = parts[i]->tiles ? decode_tiles(e, d_to, parts[i], err)
                             : sw_device_dense_load(d_to, store, parts[i], err);
        row += parts[i]->n_out;
    }
    return rc;
}

static sw_code load_bias(sw_device_weight *out, sw_device_store *store,
                         const sw_weight *const *parts, int n_parts, sw_err *err)
{
    int64_t at = 0;
    sw_code rc;

    if (!parts[0]->bias) return SW_OK;
    rc = SW_STORE_TAKE(&out->d_bias, store, out->n_out, "bias", err);
    for (int i = 0; i < n_parts && rc == SW_OK; i++) {
        rc = sw_device_upload(store->gpu, out->d_bias + at, parts[i]->bias,
                              parts[i]->n_out * (int64_t)sizeof(float), err);
        at += parts[i]->n_out;
    }
    return rc;
}

/* bits: of the container of codes on the device; 0: none, but BF16. */
static sw_code load_parts(sw_device_weight *out, sw_device_engine *e, sw_device_store *store,
                          const sw_weight *const *parts, int n_parts, int bits, sw_err *err)
{
    sw_device_weight w = {.k_in = parts[0]->k_in, .act = parts[0]->act,
                          .input_scale = parts[0]->input_scale};
    sw_code rc;

    if (!bits && w.act.scope != SW_ACT_NONE && parts[0]->tiles &&
        parts[0]->tiles->spec.n_outliers)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "outlier channels beside quantized activations are "
                       "not on the device yet; use --device cpu");
    for (int i = 0; i < n_parts; i++) w.n_out += parts[i]->n_out;
    w.n_coded = bits ? n_parts : 0;
    w.n_decoded = parts[0]->tiles && !bits ? n_parts : 0;
    rc = bits ? load_tiles(&w, e, store, parts, n_parts, bits, err)
              : load_dense(&w, e, store, parts, n_parts, err);
    if (rc == SW_OK) rc = load_bias(&w, store, parts, n_parts, err);
    if (rc == SW_OK) *out = w;
    return rc;
}

static sw_code load_in_form(sw_device_weight *out, sw_device_engine *e, sw_device_store *store,
                            const sw_weight *const *parts, int n_parts, tile_form form, sw_err *err)
{
    memset(out, 0, sizeof *out);
    if (n_parts > 1 && !can_join(e, parts, n_parts, form)) return SW_OK;
    return load_parts(out, e, store, parts, n_parts, bits_on_device(e, parts[0], form), err);
}

sw_code sw_device_weight_load(sw_device_weight *out, sw_device_engine *e, sw_device_store *store,
                              const sw_weight *const *parts, int n_parts, sw_err *err)
{
    const sw_code rc = load_in_form(out, e, store, parts, n_parts, AS_STORED, err);

    if (rc != SW_OK) return rc;
    return sw_column_tiles_order(&out->tiles, &out->act, &e->device, e->how.stream, err);
}

sw_code sw_device_expert_load(sw_device_weight *out, sw_device_engine *e, sw_device_store *store,
                              const sw_weight *const *parts, int n_parts, sw_err *err)
{
    return load_in_form(out, e, store, parts, n_parts, WIDENED, err);
}

sw_code sw_device_weight_load_dense(sw_device_weight *out, sw_device_engine *e,
                                    sw_device_store *store, const sw_weight *part, sw_err *err)
{
    memset(out, 0, sizeof *out);
    return load_parts(out, e, store, &part, 1, 0, err);
}

sw_code sw_device_weight_load_tiles(sw_device_weight *out, sw_device_engine *e,
                                    sw_device_store *store, const sw_weight *const *parts,
                                    int n_parts, sw_err *err)
{
    memset(out, 0, sizeof *out);
    return load_parts(out, e, store, parts, n_parts,
                      sw_tiles_container_bits(parts[0]->tiles->spec.num), err);
}

static int64_t bias_bytes(const sw_weight *w)
{
    return w->bias ? w->n_out * (int64_t)sizeof(float) : 0;
}

static int64_t bytes_in(const sw_weight *w, int bits)
{
    int64_t sum = bias_bytes(w);

    if (!bits) return sum + w->n_out * w->k_in * (int64_t)sizeof(sw_bf16);
    for (int which = CODES; which <= ZEROS; which++)
        sum += array_bytes(w->tiles, (tile_array)which, bits);
    return sum;
}

int64_t sw_device_tiles_bytes(const sw_weight *w)
{
    return bytes_in(w, sw_tiles_container_bits(w->tiles->spec.num));
}

int64_t sw_device_weight_bytes(const sw_device_engine *e, const sw_weight *w)
{
    return bytes_in(w, bits_on_device(e, w, AS_STORED));
}

int64_t sw_device_expert_bytes(const sw_device_engine *e, const sw_weight *w)
{
    return bytes_in(w, bits_on_device(e, w, WIDENED));
}

/* ---- blocks ---- */

/* Elements of a norm or of another vector; taps of a convolution are several rows. */
static int64_t vector_width(const sw_model *m, int64_t layer, sw_slot slot, bool is_bias)
{
    int64_t rows, width;
    int n_ops;
    const sw_op *ops = sw_model_ops(m, layer, &n_ops);

    for (int i = 0; i < n_ops; i++)
        if (ops[i].kind == SW_OP_HEAD_LAYER_NORM && ops[i].slot == slot)
            return sw_model_layer_buf_width(m, layer, ops[i].dst);
    sw_model_slot_shape(m, layer, slot, &rows, &width);
    return is_bias ? width : rows * width;
}

static sw_code load_vector(float **out, sw_device_block *b, const float *from, sw_slot slot,
                           bool is_bias, sw_err *err)
{
    const int64_t width = vector_width(b->e->m, b->layer, slot, is_bias);
    void *d = NULL;
    sw_code rc;

    if (!from) return SW_OK;
    rc = sw_device_store_copy(&d, &b->store, from, width * (int64_t)sizeof *from, "norms", err);
    if (rc == SW_OK) *out = d;
    return rc;
}

/* Linears of slots first .. first + n - 1 as one if they are there and can be. */
static sw_code load_joined(bool *is_joined, sw_device_block *b, const sw_block *from, sw_slot first,
                           int n, sw_err *err)
{
    const sw_weight *parts[3];
    sw_code rc;

    for (int i = 0; i < n; i++) {
        parts[i] = &from->linear[(int)first + i];
        if (!parts[i]->n_out) return SW_OK;
    }
    rc = sw_device_weight_load(&b->linear[first], b->e, &b->store, parts, n, err);
    *is_joined = rc == SW_OK && b->linear[first].n_out > 0;
    return rc;
}

static bool is_loaded(const sw_device_block *b, int slot)
{
    return b->linear[slot].n_out || (b->is_qkv_fused && (slot == SW_SLOT_K || slot == SW_SLOT_V)) ||
           (b->is_gate_fused && slot == SW_SLOT_UP);
}

/* What merges the copies of the residual stream. */
static sw_code load_copies_out(sw_device_block *b, const sw_block *from, sw_err *err)
{
    const int64_t n = b->e->m->n_copies - 1;
    sw_code rc;

    if (!from->copies_out) return SW_OK;
    rc = SW_ARENA_TAKE(&b->copies_out, &b->store.arena, n, err);
    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        const sw_weight *one = &from->copies_out[i];

        rc = sw_device_weight_load(&b->copies_out[i], b->e, &b->store, &one, 1, err);
    }
    return rc;
}

/* Linears whose weights a kernel reads as BF16, or whose output is FP32. */
static bool is_decoded(int slot)
{
    return slot == SW_SLOT_ROUTER || slot == SW_SLOT_SHARED_ROUTER ||
           slot == SW_SLOT_COPY_ROUTER || slot == SW_SLOT_COPY_PREDICT ||
           slot == SW_SLOT_COPY_CORRECT || slot == SW_SLOT_INDEX_WEIGHT || slot == SW_SLOT_O_A;
}

static sw_code load_block(sw_device_block *b, const sw_block *from, sw_err *err)
{
    sw_code rc = SW_OK;

    if (!b->e->m->has_query_gate) /* whose queries lie elsewhere than keys and values */
        rc = load_joined(&b->is_qkv_fused, b, from, SW_SLOT_Q, 3, err);
    if (rc != SW_OK ||
        (rc = load_joined(&b->is_gate_fused, b, from, SW_SLOT_GATE, 2, err)) != SW_OK ||
        (rc = sw_device_experts_load(b, from, err)) != SW_OK ||
        (rc = load_copies_out(b, from, err)) != SW_OK ||
        (rc = sw_device_hyper_load(b, from, err)) != SW_OK)
        return rc;
    for (int s = 0; s < SW_SLOT_COUNT && rc == SW_OK; s++) {
        const sw_weight *w = &from->linear[s];

        if (w->n_out && is_decoded(s))
            rc = sw_device_weight_load_dense(&b->linear[s], b->e, &b->store, w, err);
        else if (w->n_out && !is_loaded(b, s))
            rc = sw_device_weight_load(&b->linear[s], b->e, &b->store, &w, 1, err);
        if (rc == SW_OK) rc = load_vector(&b->norm[s], b, from->norm[s], (sw_slot)s, false, err);
        if (rc == SW_OK)
            rc = load_vector(&b->norm_bias[s], b, from->norm_bias[s], (sw_slot)s, true, err);
    }
    return rc == SW_OK ? sw_device_sync(b->store.gpu, err) : rc;
}

/* Into what `store` is at the beginning. */
static sw_code load_into(sw_device_block **out, sw_device_engine *e, const sw_block *from,
                         sw_device_store store, sw_err *err)
{
    sw_device_block *b = NULL;
    sw_code rc = SW_MEM_GET(&b, 1, "block", err);

    if (rc != SW_OK) return rc;
    b->e = e;
    b->layer = from->layer;
    b->kv = from->kv;
    sw_device_block_measure(b);
    b->store = store;
    rc = load_block(b, from, err);
    b->store.like = NULL; /* which may be gone before this one is */
    b->store.like_of = NULL;
    if (rc == SW_OK) *out = b;
    else sw_device_block_free(b);
    return rc;
}

sw_code sw_device_block_load_at(sw_device_block **out, sw_device_engine *e, const sw_block *from,
                                void *d_place, int64_t place_bytes, int64_t *n_bytes, sw_err *err)
{
    const sw_device_store store = {.gpu = e->gpu, .d_place = d_place, .place_bytes = place_bytes};
    const sw_code rc = load_into(out, e, from, store, err);

    if (rc == SW_OK && n_bytes) *n_bytes = (*out)->store.used_bytes;
    return rc;
}

sw_code sw_device_block_load_like(sw_device_block **out, sw_device_engine *e, const sw_block *from,
                                  const sw_device_block *like, const sw_block *like_of, sw_err *err)
{
    const sw_device_store store = {.gpu = e->gpu, .like = like, .like_of = like_of};

    return load_into(out, e, from, store, err);
}

/* From here on it is the engine's: what frees it follows what runs it. */
sw_code sw_device_block_load_beside(sw_device_block **out, sw_device_engine *e, sw_device *branch,
                                    const sw_block *from, sw_err *err)
{
    const sw_device_store store = {.gpu = branch};
    const sw_code rc = load_into(out, e, from, store, err);

    if (rc == SW_OK) (*out)->store.gpu = e->gpu;
    return rc;
}

sw_code sw_device_block_load(sw_device_block **out, sw_device_engine *e, const sw_block *from,
                             sw_err *err)
{
    return sw_device_block_load_at(out, e, from, NULL, 0, NULL, err);
}

/* Codes, scales, zero points and bias of a weight each begin where they are aligned. */
static int64_t room_of_weight(const sw_device_engine *e, const sw_weight *w)
{
    return w->n_out ? sw_device_weight_bytes(e, w) + 4 * PLACE_ALIGN : 0;
}

int64_t sw_device_block_bytes(const sw_device_engine *e, const sw_block *b)
{
    int64_t sum = sw_device_hyper_bytes(e->m, b);

    for (int s = 0; s < SW_SLOT_COUNT; s++) {
        sum += room_of_weight(e, &b->linear[s]);
        if (!b->norm[s] && !b->norm_bias[s]) continue;
        for (int i = 0; i < 2; i++)
            sum += vector_width(e->m, b->layer, (sw_slot)s, i) * (int64_t)sizeof(float) +
                   PLACE_ALIGN;
    }
    sum += sw_device_experts_bytes(e, b, 4 * PLACE_ALIGN);
    for (int64_t i = 0; b->copies_out && i < e->m->n_copies - 1; i++)
        sum += room_of_weight(e, &b->copies_out[i]);
    if (b->experts[1])
        sum += 2 * (e->m->n_experts * (int64_t)sizeof(sw_expert) + PLACE_ALIGN);
    return sum;
}

void sw_device_block_free(sw_device_block *block)
{
    if (!block) return;
    sw_device_store_free(&block->store);
    sw_mem_put(block);
}
