/* linear_kinds.c - see linear_kinds.h. */
#include "verify/speed/linear_kinds.h"

#include <stdio.h>
#include <string.h>

/* "mlp.experts.*.up_proj" of "model.layers.3.mlp.experts.5.up_proj"; "lm_head" as it is. */
static void name_of(char out[64], const char *path)
{
    const char *at = path, *begin = path;
    size_t n = 0;
    bool is_inside = false;

    for (; *at; at += strcspn(at, "."), at += *at == '.')
        if (!is_inside && strspn(at, "0123456789") == strcspn(at, ".") && at != path) {
            is_inside = true;
            begin = at + strcspn(at, ".");
            begin += *begin == '.';
        }
    for (at = *begin ? begin : path; *at && n + 2 < 64;) {
        const size_t length = strcspn(at, ".");

        if (length && strspn(at, "0123456789") == length) {
            out[n++] = '*';
        } else {
            const size_t some = length < 64 - 2 - n ? length : 64 - 2 - n;

            memcpy(out + n, at, some);
            n += some;
        }
        at += length;
        if (*at == '.') {
            out[n++] = '.';
            at++;
        }
    }
    out[n] = '\0';
}

static bool is_alike(const sw_weight *a, const sw_weight *b)
{
    if (!a->tiles != !b->tiles || a->act.scope != b->act.scope) return false;
    return a->tiles ? sw_qspec_same(&a->tiles->spec, &b->tiles->spec)
                    : a->dense_dtype == b->dense_dtype;
}

static const sw_weight *weight_of(const sw_lm *lm, const sw_linear_ref *ref)
{
    const sw_block *b = &lm->blocks[ref->layer];

    if (ref->layer >= lm->model->n_layers) return &lm->head;
    return ref->expert < 0 ? &b->linear[ref->slot]
                           : &b->experts[ref->slot - SW_SLOT_GATE][ref->expert];
}

static sw_linear_kind *kind_of(sw_linear_kinds *kinds, const char *name, const sw_weight *w)
{
    for (int i = 0; i < kinds->n; i++) {
        sw_linear_kind *k = &kinds->at[i];

        if (!strcmp(k->name, name) && k->n_out == w->n_out && k->k_in == w->k_in &&
            is_alike(k->held[0][0], w))
            return k;
    }
    return kinds->n < SW_LINEAR_KINDS_MAX ? &kinds->at[kinds->n++] : NULL;
}

static void add(sw_linear_kinds *kinds, const sw_lm *lm, const sw_lm *original,
                const sw_linear_ref *ref)
{
    const sw_weight *w = weight_of(lm, ref);
    const sw_weight *other = original ? weight_of(original, ref) : NULL;
    char path[256], name[64];
    sw_linear_kind *k;

    if ((!w->dense && !w->tiles) || (other && ((!other->dense && !other->tiles) ||
                                               is_alike(w, other))))
        return;
    if (!sw_model_slot_path(path, lm->model, ref->layer, ref->slot, ref->expert))
        (void)snprintf(path, sizeof path, "lm_head");
    name_of(name, path);
    if (!(k = kind_of(kinds, name, w))) return;
    if (!k->count) {
        memcpy(k->name, name, sizeof k->name);
        k->n_out = w->n_out;
        k->k_in = w->k_in;
        k->is_routed = ref->expert >= 0;
        k->is_head = ref->layer >= lm->model->n_layers;
    }
    k->count++;
    if (k->n_held == SW_KIND_HELD) return;
    k->held[SW_SPEED_CHECKPOINT][k->n_held] = w;
    k->held[SW_SPEED_ORIGINAL][k->n_held++] = other;
}

sw_code sw_linear_kinds_of(sw_linear_kinds *out, sw_arena *arena, const sw_lm *lm,
                           const sw_lm *original, sw_err *err)
{
    sw_linear_kinds kinds = {.n = 0};
    sw_code rc = SW_ARENA_TAKE(&kinds.at, arena, SW_LINEAR_KINDS_MAX, err);

    for (int64_t l = 0; l <= lm->model->n_layers && rc == SW_OK; l++) {
        const int64_t n = sw_model_linears(lm->model, l, NULL, 0);
        sw_linear_ref *refs = NULL;

        if ((rc = SW_MEM_GET(&refs, n, "linears", err)) != SW_OK) break;
        (void)sw_model_linears(lm->model, l, refs, n);
        for (int64_t i = 0; i < n; i++) add(&kinds, lm, original, &refs[i]);
        sw_mem_put(refs);
    }
    if (rc == SW_OK) *out = kinds;
    return rc;
}
