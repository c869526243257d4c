/* exhibit_linears.c - the linears of an opened checkpoint: shapes, schemes, and the bytes of every
 * tensor by what it is for. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "formats/checkpoint/expert_stack.h"
#include "formats/gguf/gguf_model.h"
#include "formats/model/stored.h"
#include "tools/inspect/inspect_linears.h"
#include "tools/report/data/exhibit.h"

#define NAME_BYTES 600

const char *const sw_exhibit_part_names[SW_PART_COUNT] = {
    [SW_PART_CODES] = "codes", [SW_PART_BLOCKS] = "blocks of codes with their scales",
    [SW_PART_SCALES] = "scales", [SW_PART_ZEROS] = "zero points",
    [SW_PART_FLOAT_LINEARS] = "linears in floats", [SW_PART_ENDS] = "embedding and head",
    [SW_PART_SMALL] = "norms, biases, routers", [SW_PART_OTHER] = "other"};

typedef struct counter {
    sw_exhibit *x;
    bool *is_counted; /* [tensors] */
} counter;

/* "model.layers.3.mlp.experts.5.up_proj" is of kind "mlp.experts.*.up_proj". */
static sw_code add_kind(sw_exhibit *x, sw_exhibit_linear *l, sw_slot slot, sw_err *err)
{
    const char *layers = sw_model_end(&x->ckpt.model, SW_END_LAYERS);
    size_t n = layers ? strlen(layers) : 0;
    char name[256], other[256];
    const char *from = l->path;
    char *kept;
    sw_code rc;

    if (l->layer < x->ckpt.model.n_layers && n && !strncmp(from, layers, n) && from[n] == '.') {
        from += n + 1;
        from += strspn(from, "0123456789");
        from += *from == '.';
    }
    (void)snprintf(name, sizeof name, "%s", from);
    if (l->expert >= 0 && sw_model_slot_path(other, &x->ckpt.model, l->layer, slot,
                                             l->expert ? 0 : 1)) {
        /* what differs from the path of another expert is its number */
        const char *their = other + (from - l->path);
        size_t at = 0, mine, more;
        while (from[at] && from[at] == their[at]) at++;
        mine = strspn(from + at, "0123456789");
        more = strlen(from + at + mine);
        if (at + more + 2 < sizeof name) {
            name[at] = '*';
            memcpy(name + at + 1, from + at + mine, more + 1);
        }
    }
    for (l->kind = 0; l->kind < x->n_kinds; l->kind++)
        if (!strcmp(x->kinds[l->kind], name)) return SW_OK;
    if (x->n_kinds == SW_EXHIBIT_KINDS) {
        l->kind = -1;
        return SW_OK;
    }
    if ((rc = sw_arena_text(&kept, &x->arena, name, strlen(name), err)) != SW_OK) return rc;
    x->kinds[x->n_kinds++] = kept;
    return SW_OK;
}

static sw_code keep_scheme(sw_exhibit *x, sw_exhibit_linear *l, const sw_scheme_group *like,
                           sw_err *err)
{
    char text[160], *kept;
    sw_code rc;

    (void)sw_group_text(text, like);
    /* neighbours mostly have the same */
    if (l > x->linears && l[-1].scheme && !strcmp(l[-1].scheme, text)) {
        l->scheme = l[-1].scheme;
        return SW_OK;
    }
    rc = sw_arena_text(&kept, &x->arena, text, strlen(text), err);
    if (rc == SW_OK) l->scheme = kept;
    return rc;
}

static sw_code describe(sw_exhibit *x, sw_exhibit_linear *l, const sw_linear_ref *ref, sw_err *err)
{
    sw_scheme_group like = {.is_quantized = false};
    sw_block_type type;
    sw_stored stored;
    sw_err ignored = {0};

    if (sw_checkpoint_is_quantized(&x->ckpt, l->path)) {
        sw_code rc = sw_checkpoint_stored_spec(&l->spec, &x->ckpt, l->path, l->n_out, l->k_in,
                                               &ignored);
        if (rc == SW_E_NOMEM) return SW_FAIL(err, rc, "%s", ignored.text);
        l->is_quantized = true;
        if (rc != SW_OK) { /* for verify to say what is wrong with it */
            l->scheme = "not readable";
            return SW_OK;
        }
        like.is_quantized = l->has_codes = true;
        like.spec = l->spec;
        return keep_scheme(x, l, &like, err);
    }
    if (sw_stored_weight(&stored, &x->ckpt.model, x->ckpt.st, ref->layer, ref->slot, ref->expert,
                         &ignored) != SW_OK) {
        l->scheme = "missing";
        return SW_OK;
    }
    like.dense_dtype = stored.tensor->view.dtype;
    if (sw_gguf_decoded_type(&type, stored.tensor)) {
        like.blocks = sw_block_sizes[type].name;
        l->is_quantized = true;
    }
    return keep_scheme(x, l, &like, err);
}

static sw_code add_layer(sw_exhibit *x, int64_t layer, sw_err *err)
{
    const sw_model *m = &x->ckpt.model;
    int64_t n = sw_model_linears(m, layer, NULL, 0);
    sw_linear_ref *refs = NULL;
    sw_code rc = SW_MEM_GET(&refs, n, "linears of a layer", err);

    if (rc != SW_OK) return rc;
    n = sw_model_linears(m, layer, refs, n);
    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        sw_exhibit_linear *l = &x->linears[x->n_linears];
        double none = (double)NAN;
        char path[256], *kept;
        if (!sw_model_slot_path(path, m, layer, refs[i].slot, refs[i].expert)) continue;
        if ((rc = sw_arena_text(&kept, &x->arena, path, strlen(path), err)) != SW_OK) break;
        *l = (sw_exhibit_linear){
            .path = kept, .layer = layer, .expert = refs[i].expert, .n_out = refs[i].n_out,
            .k_in = refs[i].k_in, .calib_err = none, .calib_err_rtn = none, .n_tokens = none,
            .n_routed = none, .prior_weight = none, .damp = none, .n_damp_retries = none,
            .weight_err = none, .output_err = none, .over_rounding = none, .cosine = none,
            .group_misfit = none, .nearest_share = none, .scale_min = none, .scale_max = none};
        if ((rc = add_kind(x, l, refs[i].slot, err)) != SW_OK ||
            (rc = describe(x, l, &refs[i], err)) != SW_OK)
            break;
        x->n_linears++;
        x->n_quantized += l->is_quantized;
    }
    sw_mem_put(refs);
    return rc;
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp((*(sw_exhibit_linear *const *)a)->path, (*(sw_exhibit_linear *const *)b)->path);
}

sw_exhibit_linear *sw_exhibit_find(const sw_exhibit *x, const char *path)
{
    sw_exhibit_linear key = {.path = path}, *wanted = &key, **found = NULL;

    if (x->n_linears)
        found = bsearch(&wanted, x->by_path, (size_t)x->n_linears, sizeof *x->by_path,
                        compare_paths);
    return found ? *found : NULL;
}

static sw_code sort_linears(sw_exhibit *x, sw_err *err)
{
    sw_code rc = SW_ARENA_TAKE(&x->by_path, &x->arena, x->n_linears, err);

    if (rc != SW_OK) return rc;
    for (int64_t i = 0; i < x->n_linears; i++) x->by_path[i] = &x->linears[i];
    if (x->n_linears)
        qsort(x->by_path, (size_t)x->n_linears, sizeof *x->by_path, compare_paths);
    return SW_OK;
}

sw_code sw_exhibit_list_linears(sw_exhibit *x, sw_err *err)
{
    const sw_model *m = &x->ckpt.model;
    int64_t n = 0;
    sw_code rc;

    for (int64_t layer = 0; layer <= m->n_layers; layer++)
        n += sw_model_linears(m, layer, NULL, 0);
    if ((rc = SW_ARENA_TAKE(&x->linears, &x->arena, n, err)) != SW_OK) return rc;
    for (int64_t layer = 0; layer <= m->n_layers && rc == SW_OK; layer++)
        rc = add_layer(x, layer, err);
    return rc == SW_OK ? sort_linears(x, err) : rc;
}

static sw_exhibit_part part_of(const sw_part *part, bool is_file)
{
    if (is_file) return SW_PART_BLOCKS;
    if (part->is_scale || part->is_input) return SW_PART_SCALES;
    if (strstr(part->suffix, "zero")) return SW_PART_ZEROS;
    return part->is_g_idx || part->is_shape ? SW_PART_OTHER : SW_PART_CODES;
}

/* What belongs to a linear, tensor by tensor; several experts may share one. */
static void count_codes(counter *c, sw_exhibit_linear *l)
{
    sw_exhibit *x = c->x;
    const sw_st_tensor *first = sw_st_at(x->ckpt.st, 0);
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    int n = x->ckpt.dialect->declare(parts, &l->spec, l->n_out, l->k_in);

    for (int i = 0; i < n; i++) {
        char name[NAME_BYTES];
        sw_stack_place place;
        bool is_stacked = x->ckpt.dialect->is_stacked &&
                          sw_stack_find(&place, l->path, parts[i].suffix);
        const sw_st_tensor *t;
        uint64_t bytes = 0;
        (void)snprintf(name, sizeof name, "%s.%s", l->path, parts[i].suffix);
        t = sw_st_find(x->ckpt.st, is_stacked ? place.name : name);
        if (!t || sw_shape_bytes(&bytes, parts[i].dtype, parts[i].n_dims, parts[i].shape, NULL) !=
                      SW_OK)
            continue;
        if (!is_stacked) bytes = t->view.size_bytes;
        c->is_counted[t - first] = true;
        l->bytes += (double)bytes;
        x->part_bytes[part_of(&parts[i], x->ckpt.is_file)] += (double)bytes;
    }
}

static void count_floats(counter *c, sw_exhibit_linear *l, const sw_linear_ref *ref)
{
    sw_exhibit *x = c->x;
    sw_stored stored;
    sw_err ignored = {0};

    if (sw_stored_weight(&stored, &x->ckpt.model, x->ckpt.st, ref->layer, ref->slot, ref->expert,
                         &ignored) != SW_OK)
        return;
    /* its share of a tensor that experts have together */
    l->bytes = (double)sw_gguf_stored_bytes(stored.tensor) * (double)l->n_out * (double)l->k_in /
               (double)sw_max_i64(1, sw_view_elems(&stored.tensor->view));
    c->is_counted[stored.tensor - sw_st_at(x->ckpt.st, 0)] = true;
    x->part_bytes[l->is_quantized ? SW_PART_BLOCKS : SW_PART_FLOAT_LINEARS] += l->bytes;
}

static sw_code count_linears(counter *c, sw_err *err)
{
    sw_exhibit *x = c->x;
    const sw_model *m = &x->ckpt.model;
    sw_exhibit_linear *l = x->linears, *end = x->linears + x->n_linears;

    for (int64_t layer = 0; layer <= m->n_layers; layer++) {
        int64_t n = sw_model_linears(m, layer, NULL, 0);
        sw_linear_ref *refs = NULL;
        sw_code rc = SW_MEM_GET(&refs, n, "linears of a layer", err);
        if (rc != SW_OK) return rc;
        n = sw_model_linears(m, layer, refs, n);
        for (int64_t i = 0; i < n && l < end; i++) {
            char path[256];
            if (!sw_model_slot_path(path, m, layer, refs[i].slot, refs[i].expert)) continue;
            if (l->has_codes) count_codes(c, l);
            else count_floats(c, l, &refs[i]);
            l++;
        }
        sw_mem_put(refs);
    }
    return SW_OK;
}

static bool is_end(const sw_exhibit *x, const char *name)
{
    static const sw_end ends[] = {SW_END_EMBED, SW_END_HEAD, SW_END_POSITIONS, SW_END_SIDE_TABLE};

    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        const char *end = sw_model_end(&x->ckpt.model, ends[i]);
        size_t n = end ? strlen(end) : 0;
        if (n && !strncmp(name, end, n) && (name[n] == '.' || !name[n])) return true;
    }
    return false;
}

sw_code sw_exhibit_count_bytes(sw_exhibit *x, sw_err *err)
{
    counter c = {.x = x};
    int64_t n = sw_st_count(x->ckpt.st);
    sw_code rc = SW_MEM_GET(&c.is_counted, n, "tensors", err);

    if (rc == SW_OK) rc = count_linears(&c, err);
    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        const sw_st_tensor *t = sw_st_at(x->ckpt.st, i);
        double bytes = (double)sw_gguf_stored_bytes(t);
        sw_exhibit_part part = is_end(x, t->name)       ? SW_PART_ENDS
                               : t->view.n_dims <= 1    ? SW_PART_SMALL
                               : strstr(t->name, "gate") ? SW_PART_SMALL
                                                        : SW_PART_OTHER;
        if (!c.is_counted[i]) x->part_bytes[part] += bytes;
        x->bytes += bytes;
    }
    for (int64_t i = 0; i < x->n_linears; i++) {
        const sw_exhibit_linear *l = &x->linears[i];
        if (!l->is_quantized) continue;
        x->quantized_bytes += l->bytes;
        x->n_quantized_weights += (double)l->n_out * (double)l->k_in;
    }
    sw_mem_put(c.is_counted);
    return rc;
}
