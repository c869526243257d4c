/* stored.c - see stored.h. */
#include "formats/model/stored.h"

#include <stdio.h>
#include <string.h>

static bool is_float_dtype(sw_dtype dtype)
{
    return dtype == SW_DTYPE_F32 || dtype == SW_DTYPE_F16 || dtype == SW_DTYPE_BF16;
}

static void describe_shape(char text[96], int32_t n_dims, const int64_t *shape)
{
    int used = snprintf(text, 96, "[");

    for (int32_t i = 0; i < n_dims; i++)
        used += snprintf(text + used, (size_t)(96 - used), "%s%lld", i ? ", " : "",
                         (long long)shape[i]);
    (void)snprintf(text + used, (size_t)(96 - used), "]");
}

sw_code sw_stored_tensor(const sw_st_tensor **out, const sw_st *st, const char *name,
                         int32_t n_dims, const int64_t *shape, sw_err *err)
{
    const sw_st_tensor *tensor = sw_st_find(st, name);
    char have[128], want[96];
    bool fits;

    if (!tensor) return SW_FAIL(err, SW_E_FORMAT, "%s: missing from the checkpoint", name);
    if (!is_float_dtype(tensor->view.dtype))
        return SW_FAIL(err, SW_E_FORMAT, "%s: %s, but the engine needs F32, F16 or BF16; is this "
                       "checkpoint quantized already?", name, sw_dtype_name(tensor->view.dtype));
    fits = tensor->view.n_dims == n_dims;
    for (int32_t i = 0; i < n_dims && fits; i++) fits = tensor->view.shape[i] == shape[i];
    if (!fits) {
        sw_view_describe(have, sizeof have, &tensor->view);
        describe_shape(want, n_dims, shape);
        return SW_FAIL(err, SW_E_FORMAT, "%s: %s, but config.json asks for %s", name, have, want);
    }
    *out = tensor;
    return SW_OK;
}

/* The tensor of all experts that holds this slot, or NULL: the family has none, or the checkpoint
 * keeps experts apart. */
static const char *fused_name(char out[300], const sw_model *m, const sw_st *st, int64_t layer,
                              sw_slot slot, int64_t expert, const char *suffix)
{
    const char *name = m->arch->fused_experts[slot == SW_SLOT_DOWN];
    char path[256], own[300];

    if (expert < 0 || !name) return NULL;
    if (!sw_model_slot_path(path, m, layer, slot, expert)) return NULL;
    (void)snprintf(own, sizeof own, "%s.%s", path, *suffix ? "bias" : "weight");
    if (sw_st_find(st, own)) return NULL;
    (void)snprintf(out, 300, "%s.%lld.%s%s", sw_model_end(m, SW_END_LAYERS),
                   (long long)layer, name, suffix);
    return out;
}

/* A tensor of all experts, with what its shape is either way round. */
typedef struct fused_shape {
    const char *name;
    int64_t n_experts, k_in, width; /* width: channels of gate and up, or of down */
} fused_shape;

/* -1: rows are channels; 1: rows are inputs; 0: it is square, of another shape, or not there. */
static int way_round(const sw_st *st, const fused_shape *want)
{
    const sw_st_tensor *t = sw_st_find(st, want->name);
    const int64_t *shape = t ? t->view.shape : NULL;

    if (!t || t->view.n_dims != 3 || want->k_in == want->width) return 0;
    if (shape[1] == want->width && shape[2] == want->k_in) return -1;
    return shape[1] == want->k_in && shape[2] == want->width ? 1 : 0;
}

/* Do the rows of the layer's fused tensors stand for inputs? One of the two tensors can be square,
 * but not both, so that their shapes say. */
static bool rows_are_inputs(const sw_model *m, const sw_st *st, int64_t layer)
{
    const sw_fused_order order = m->arch->fused_order;
    char path[2][300];
    int way = 0;

    if (order == SW_FUSED_TURNS) return true;
    for (int i = 0; i < 2 && !way; i++) {
        const fused_shape want = {path[i], m->n_experts, i ? m->moe_intermediate : m->hidden,
                                  i ? m->hidden : 2 * m->moe_intermediate};

        (void)snprintf(path[i], sizeof path[i], "%s.%lld.%s", sw_model_end(m, SW_END_LAYERS),
                       (long long)layer, m->arch->fused_experts[i]);
        way = way_round(st, &want);
    }
    return way ? way > 0 : order == SW_FUSED_COLUMNS;
}

static sw_code find_fused_bias(sw_stored *out, const sw_model *m, const sw_st *st,
                               const char *name, sw_slot slot, int64_t expert, sw_err *err)
{
    const int64_t turns = slot == SW_SLOT_DOWN ? 1 : 2, width = out->n_out * turns;
    const int64_t shape[] = {m->n_experts, width};
    const bool in_turns = m->arch->fused_order == SW_FUSED_TURNS;

    out->first = expert * width + (slot != SW_SLOT_UP ? 0 : in_turns ? 1 : out->n_out);
    out->row_step = in_turns ? turns : 1;
    out->col_step = width;
    return sw_stored_tensor(&out->tensor, st, name, 2, shape, err);
}

static sw_code find_fused(sw_stored *out, const sw_model *m, const sw_st *st, const char *name,
                          int64_t layer, sw_slot slot, int64_t expert, sw_err *err)
{
    const int64_t turns = slot == SW_SLOT_DOWN ? 1 : 2, width = out->n_out * turns;
    const bool in_turns = m->arch->fused_order == SW_FUSED_TURNS;
    const bool is_turned = rows_are_inputs(m, st, layer);
    const int64_t shape[] = {m->n_experts, is_turned ? out->k_in : width,
                             is_turned ? width : out->k_in};

    out->row_step = !is_turned ? out->k_in : in_turns ? turns : 1;
    out->col_step = is_turned ? width : 1;
    out->first = expert * width * out->k_in;
    if (slot == SW_SLOT_UP) out->first += in_turns ? 1 : out->n_out * out->row_step;
    return sw_stored_tensor(&out->tensor, st, name, 3, shape, err);
}

static sw_code plain_name(char out[300], const sw_model *m, int64_t layer, sw_slot slot,
                          int64_t expert, const char *leaf, sw_err *err)
{
    char path[256];

    if (!sw_model_slot_path(path, m, layer, slot, expert))
        return SW_FAIL(err, SW_E_BUG, "slot %d has no name in %s", (int)slot, m->arch->name);
    (void)snprintf(out, 300, "%s.%s", path, leaf);
    return SW_OK;
}

static sw_code found_weight(sw_stored *out, const sw_model *m, const sw_st *st, int64_t layer,
                            int64_t index, sw_err *err)
{
    const sw_found_linear *l = sw_found_at(m, layer, index);
    sw_stored s;
    char name[300];
    sw_code rc;

    if (!l) return SW_FAIL(err, SW_E_BUG, "layer %lld has no linear %lld", (long long)layer,
                           (long long)index);
    s = (sw_stored){.n_out = l->n_out, .k_in = l->k_in, .first = l->first,
                    .row_step = l->row_step, .col_step = l->col_step};
    (void)snprintf(name, sizeof name, "%s.weight", l->path);
    rc = sw_stored_tensor(&s.tensor, st, *l->tensor ? l->tensor : name, l->n_dims, l->shape, err);
    if (rc == SW_OK) *out = s;
    return rc;
}

sw_code sw_stored_weight(sw_stored *out, const sw_model *m, const sw_st *st, int64_t layer,
                         sw_slot slot, int64_t expert, sw_err *err)
{
    const bool is_turned = m->arch->has_transposed_linears && slot != SW_SLOT_HEAD;
    sw_stored s = {.row_step = 1, .col_step = 1};
    char name[300];
    sw_code rc;

    if (slot == SW_SLOT_FOUND) return found_weight(out, m, st, layer, expert, err);
    sw_model_slot_shape(m, layer, slot, &s.n_out, &s.k_in);
    if (fused_name(name, m, st, layer, slot, expert, "")) {
        rc = find_fused(&s, m, st, name, layer, slot, expert, err);
    } else if ((rc = plain_name(name, m, layer, slot, expert, "weight", err)) == SW_OK) {
        const int64_t shape[] = {is_turned ? s.k_in : s.n_out, is_turned ? s.n_out : s.k_in};

        *(is_turned ? &s.col_step : &s.row_step) = shape[1];
        rc = sw_stored_tensor(&s.tensor, st, name, 2, shape, err);
    }
    if (rc == SW_OK) *out = s;
    return rc;
}

sw_code sw_stored_bias(sw_stored *out, const sw_model *m, const sw_st *st, int64_t layer,
                       sw_slot slot, int64_t expert, sw_err *err)
{
    sw_stored s = {.row_step = 1, .col_step = 1};
    char name[300];
    sw_code rc;

    sw_model_slot_shape(m, layer, slot, &s.n_out, &s.k_in);
    if (fused_name(name, m, st, layer, slot, expert, "_bias")) {
        rc = find_fused_bias(&s, m, st, name, slot, expert, err);
    } else if ((rc = plain_name(name, m, layer, slot, expert, "bias", err)) == SW_OK) {
        rc = sw_stored_tensor(&s.tensor, st, name, 1, &s.n_out, err);
    }
    s.k_in = 1;
    if (rc == SW_OK) *out = s;
    return rc;
}

bool sw_stored_may_copy(const sw_model *m, const sw_linear_ref *ref)
{
    const sw_found_linear *found =
        ref->slot == SW_SLOT_FOUND ? sw_found_at(m, ref->layer, ref->expert) : NULL;

    if (found) return found->col_step != 1;
    return (m->arch->has_transposed_linears && ref->slot != SW_SLOT_HEAD) ||
           (ref->expert >= 0 && m->arch->fused_experts[0] &&
            m->arch->fused_order != SW_FUSED_ROWS);
}

bool sw_stored_is_plain(const sw_stored *s)
{
    return s->row_step == s->k_in && (s->col_step == 1 || s->k_in == 1);
}

/* By squares through a small turned copy, so that whole cache lines are read and written whatever
 * the strides; for elements of a size that the compiler knows. */
#define SQUARE 64
#define COPY_SQUARE(name, type)                                                            \
    static void name(char *to, const char *from, const sw_stored *s, int64_t n0, int64_t k0) \
    {                                                                                      \
        const int64_t size = (int64_t)sizeof(type), n_left = s->n_out - n0;                \
        const int64_t k_left = s->k_in - k0;                                               \
        const int64_t n_end = n_left < SQUARE ? n_left : SQUARE;                           \
        const int64_t k_end = k_left < SQUARE ? k_left : SQUARE;                           \
        type turned[SQUARE][SQUARE];                                                       \
                                                                                           \
        from += (s->first + n0 * s->row_step + k0 * s->col_step) * size;                   \
        for (int64_t k = 0; k < k_end; k++)                                                \
            for (int64_t n = 0; n < n_end; n++)                                            \
                memcpy(&turned[n][k], from + (n * s->row_step + k * s->col_step) * size,   \
                       sizeof(type));                                                      \
        for (int64_t n = 0; n < n_end; n++)                                                \
            memcpy(to + ((n0 + n) * s->k_in + k0) * size, turned[n], (size_t)(k_end * size)); \
    }
COPY_SQUARE(copy_halves, uint16_t)
COPY_SQUARE(copy_floats, uint32_t)

void sw_stored_copy(void *dst, const sw_stored *s)
{
    void (*const copy)(char *, const char *, const sw_stored *, int64_t, int64_t) =
        s->tensor->view.dtype == SW_DTYPE_F32 ? copy_floats : copy_halves;

    for (int64_t n = 0; n < s->n_out; n += SQUARE)
        for (int64_t k = 0; k < s->k_in; k += SQUARE) copy(dst, s->tensor->view.data, s, n, k);
}
