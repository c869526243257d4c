/* found.c - see found.h. */
#include "formats/model/unknown/found.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/model/unknown/words.h"

#define NARROWEST 32 /* a linear with fewer inputs or outputs is a gate: nothing is won by codes */
#define DIGITS_MAX 6
#define WEIGHT ".weight"

static const char gate_up_end[] = ".experts.gate_up_proj", down_end[] = ".experts.down_proj";

/* What a run of sw_found_new gathers. */
typedef struct finder {
    sw_model *m;
    const sw_st *st;
    sw_arena *arena;
    int64_t limit; /* layers that count, by config.json; or SW_LAYERS_MAX */
    sw_found *found;
    sw_found_linear *linears;
    const char **kept;
    sw_unclear *unclear;
} finder;

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);

    return n > m && !strcmp(name + n - m, end);
}

/* The number that is all of this part of a name; -1: it is none. */
static int64_t number_of(const char *part, size_t n)
{
    int64_t value = 0;

    if (!n || n > DIGITS_MAX) return -1;
    for (size_t i = 0; i < n; i++) {
        if (part[i] < '0' || part[i] > '9') return -1;
        value = 10 * value + (part[i] - '0');
    }
    return value;
}

bool sw_found_in_layer(int64_t *layer, size_t *at, const char *name)
{
    bool is_after_list = false;

    for (size_t i = 0; name[i];) {
        const size_t n = strcspn(name + i, ".");

        if (is_after_list && (*layer = number_of(name + i, n)) >= 0 && name[i + n]) {
            *at = i + n + 1;
            return true;
        }
        if (sw_word_is_other(name + i, n)) return false;
        is_after_list = sw_word_is_list(name + i, n);
        i += n + (name[i + n] == '.');
    }
    return false;
}

/* Does any part of the layer's own name belong to a module that stays in floats? A convolution is
 * one by its last part: a mixer of that name has linears around it. */
static bool is_kept_by_name(const char *own)
{
    while (*own) {
        const size_t n = strcspn(own, ".");

        if (sw_word_is_kept(own, n)) return true;
        if ((!own[n] || !strcmp(own + n, WEIGHT)) && n >= 4 && !strncmp(own, "conv", 4))
            return true;
        own += n + (own[n] == '.');
    }
    return false;
}

static sw_code keep(finder *f, const char *name, sw_err *err)
{
    const size_t n = strlen(name) - (ends_with(name, WEIGHT) ? strlen(WEIGHT) : 0);
    char *path;
    sw_code rc = sw_arena_text(&path, f->arena, name, n, err);

    if (rc == SW_OK) f->kept[f->found->n_kept++] = path;
    return rc;
}

/* Some checkpoints store linears turned; a bias has one value for each output and tells. */
static bool is_turned(const sw_st *st, const sw_st_tensor *t)
{
    const int64_t rows = t->view.shape[0], columns = t->view.shape[1];
    const size_t n = strlen(t->name) - strlen(WEIGHT);
    const sw_st_tensor *bias;
    char name[300];

    if (n >= sizeof name - 8) return false;
    (void)snprintf(name, sizeof name, "%.*s.bias", (int)n, t->name);
    bias = sw_st_find(st, name);
    return bias && bias->view.n_dims == 1 && rows != columns && bias->view.shape[0] == columns;
}

static void add_unclear(finder *f, const char *name, const char *why)
{
    f->unclear[f->found->n_unclear++] = (sw_unclear){name, why};
}

static sw_code add_matrix(finder *f, const sw_st_tensor *t, int64_t layer, const char *own,
                          sw_err *err)
{
    const int64_t rows = t->view.shape[0], columns = t->view.shape[1];
    const bool is_routing = f->m->n_experts > 1 && rows == f->m->n_experts;
    char *path;
    sw_code rc;

    if (rows < NARROWEST || columns < NARROWEST || is_routing || is_kept_by_name(own))
        return keep(f, t->name, err);
    rc = sw_arena_text(&path, f->arena, t->name, strlen(t->name) - strlen(WEIGHT), err);
    if (rc != SW_OK) return rc;
    if (strlen(path) >= 256)
        add_unclear(f, t->name, "its name is too long");
    else if (is_turned(f->st, t))
        add_unclear(f, t->name, "its bias has a value for each column, so it is stored turned");
    else
        f->linears[f->found->n++] = (sw_found_linear){
            .path = path, .tensor = t->name, .layer = layer, .n_out = rows, .k_in = columns,
            .n_dims = 2, .shape = {rows, columns}, .row_step = columns, .col_step = 1};
    return SW_OK;
}

/* --- all experts in one tensor --- */

/* The other tensor of the same experts, or NULL. */
static const sw_st_tensor *sibling(const sw_st *st, const char *name, const char *end,
                                   const char *other)
{
    char text[300];
    const size_t n = strlen(name) - strlen(end);

    if (n + strlen(other) >= sizeof text) return NULL;
    (void)snprintf(text, sizeof text, "%.*s%s", (int)n, name, other);
    return sw_st_find(st, text);
}

/* Can the tensor be [experts, channels, inputs] (way -1) or [experts, inputs, channels] (way 1),
 * of gate and up or of down? *width is that of the experts, 0 as long as nobody knows it. */
static bool can_be(int64_t *width, const sw_model *m, const sw_st_tensor *t, bool is_down, int way)
{
    const int64_t a = t->view.shape[1], b = t->view.shape[2];
    const bool hidden_is_first = is_down == (way < 0);
    const int64_t hidden = hidden_is_first ? a : b, other = hidden_is_first ? b : a;
    const int64_t have = is_down ? other : other / 2;

    if (hidden != m->hidden || (!is_down && other % 2) || have < 1) return false;
    if (*width && *width != have) return false;
    *width = have;
    return true;
}

int sw_found_way_round(const char **why, const sw_model *m, const sw_st *st, const char *name)
{
    const bool is_down = ends_with(name, down_end);
    const char *end = is_down ? down_end : gate_up_end;
    const sw_st_tensor *both[2] = {sibling(st, name, end, gate_up_end),
                                   sibling(st, name, end, down_end)};
    bool fits[2];

    *why = "config.json does not say how many experts there are (num_experts)";
    if (!m->n_experts) return 0;
    *why = "its first size is not the number of experts that config.json gives";
    for (int i = 0; i < 2; i++)
        if (both[i] && (both[i]->view.n_dims != 3 || both[i]->view.shape[0] != m->n_experts))
            return 0;
    *why = "it has a bias, as where gate and up channels stand in turns";
    if (sibling(st, name, end, ".experts.gate_up_proj_bias")) return 0;
    for (int w = 0; w < 2; w++) {
        int64_t width = m->moe_intermediate;

        fits[w] = true;
        for (int i = 0; i < 2; i++)
            if (both[i]) fits[w] = fits[w] && can_be(&width, m, both[i], i == 1, w ? 1 : -1);
    }
    *why = fits[0] ? "its shape can be read either way round"
                   : "its shape fits hidden_size and moe_intermediate_size of config.json neither "
                     "way round";
    return fits[0] == fits[1] ? 0 : fits[0] ? -1 : 1;
}

/* One expert's part of the tensor: which is 0 for gate, 1 for up, 2 for down. */
static sw_code add_expert(finder *f, const sw_st_tensor *t, int64_t layer, int64_t expert,
                          int which, int way, sw_err *err)
{
    static const char *const leaves[] = {"gate_proj", "up_proj", "down_proj"};
    const int64_t a = t->view.shape[1], b = t->view.shape[2], turns = which == 2 ? 1 : 2;
    const int64_t n_out = (way < 0 ? a : b) / turns, k_in = way < 0 ? b : a;
    const size_t n = strlen(t->name) - strlen(which == 2 ? down_end : gate_up_end);
    sw_found_linear l = {.tensor = t->name, .layer = layer, .n_out = n_out, .k_in = k_in,
                         .n_dims = 3, .shape = {t->view.shape[0], a, b},
                         .row_step = way < 0 ? k_in : 1, .col_step = way < 0 ? 1 : b};
    char text[256], *path;
    sw_code rc;

    if (n + 40 > sizeof text) return SW_OK;
    (void)snprintf(text, sizeof text, "%.*s.experts.%lld.%s", (int)n, t->name, (long long)expert,
                   leaves[which]);
    if ((rc = sw_arena_text(&path, f->arena, text, strlen(text), err)) != SW_OK) return rc;
    l.path = path;
    l.first = expert * a * b + (which == 1 ? n_out * l.row_step : 0);
    f->linears[f->found->n++] = l;
    return SW_OK;
}

static sw_code add_experts(finder *f, const sw_st_tensor *t, int64_t layer, sw_err *err)
{
    const bool is_down = ends_with(t->name, down_end);
    const char *why;
    int way;
    sw_code rc = SW_OK;

    if (!is_down && !ends_with(t->name, gate_up_end)) {
        add_unclear(f, t->name, "tensors of all experts are known under the names gate_up_proj and "
                    "down_proj alone");
        return SW_OK;
    }
    if (!(way = sw_found_way_round(&why, f->m, f->st, t->name))) {
        add_unclear(f, t->name, why);
        return SW_OK;
    }
    for (int64_t e = 0; e < f->m->n_experts && rc == SW_OK; e++)
        for (int which = is_down ? 2 : 0; which < (is_down ? 3 : 2) && rc == SW_OK; which++)
            rc = add_expert(f, t, layer, e, which, way, err);
    return rc;
}

/* --- the whole --- */

static bool is_of_experts(const sw_model *m, const sw_st_tensor *t, const char *own)
{
    const int64_t *shape = t->view.shape;

    if (t->view.n_dims != 3 || ends_with(own, "_bias")) return false;
    return strstr(own, "expert") || (m->n_experts > 1 && shape[0] == m->n_experts &&
                                     shape[1] >= NARROWEST && shape[2] >= NARROWEST);
}

static sw_code add_tensor(finder *f, const sw_st_tensor *t, sw_err *err)
{
    int64_t layer;
    size_t at;

    if (!sw_dtype_is_float(t->view.dtype) || !sw_found_in_layer(&layer, &at, t->name) ||
        layer >= f->limit)
        return SW_OK;
    if (t->view.n_dims == 2 && ends_with(t->name, WEIGHT))
        return add_matrix(f, t, layer, t->name + at, err);
    if (is_of_experts(f->m, t, t->name + at)) return add_experts(f, t, layer, err);
    return t->view.n_dims > 1 && is_kept_by_name(t->name + at) ? keep(f, t->name, err) : SW_OK;
}

/* What is outside of the layers comes behind them, as the head does. */
static void add_coded(finder *f, const sw_coded_module *c)
{
    int64_t layer;
    size_t at;

    if (!sw_found_in_layer(&layer, &at, c->path) || layer >= f->limit) layer = SW_LAYERS_MAX;
    f->linears[f->found->n++] = (sw_found_linear){
        .path = c->path, .tensor = "", .layer = layer, .n_out = c->n_out, .k_in = c->k_in,
        .n_dims = 2, .shape = {c->n_out, c->k_in}, .row_step = c->k_in, .col_step = 1};
}

static int compare_found(const void *a, const void *b)
{
    const sw_found_linear *x = a, *y = b;
    const int order = strcmp(x->path, y->path);

    if (x->layer != y->layer) return x->layer < y->layer ? -1 : 1;
    return order ? order : strcmp(x->tensor, y->tensor);
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A module that is there in codes and in floats is one linear, in codes: those sort first. */
static void drop_doubles(sw_found *found)
{
    int64_t n = 0;

    for (int64_t i = 0; i < found->n; i++)
        if (!n || strcmp(found->linears[n - 1].path, found->linears[i].path))
            found->linears[n++] = found->linears[i];
    found->n = n;
}

/* Layers as config.json counts them, else as tensors do; and where each begins. */
static sw_code index_layers(finder *f, sw_err *err)
{
    sw_found *found = f->found;
    int64_t *first, n = 0;
    sw_code rc;

    for (int64_t i = 0; i < found->n && !f->m->n_layers; i++)
        if (found->linears[i].layer < SW_LAYERS_MAX && found->linears[i].layer >= n)
            n = found->linears[i].layer + 1;
    if (!f->m->n_layers) f->m->n_layers = n;
    if ((rc = SW_ARENA_TAKE(&first, f->arena, f->m->n_layers + 2, err)) != SW_OK) return rc;
    for (int64_t i = 0, layer = 0; layer <= f->m->n_layers; layer++) {
        first[layer] = i;
        while (i < found->n && (found->linears[i].layer <= layer || layer == f->m->n_layers)) i++;
        first[layer + 1] = i;
    }
    found->first_of = first;
    return SW_OK;
}

static bool is_beside_decoder(const char *name)
{
    while (*name) {
        const size_t n = strcspn(name, ".");

        if (sw_word_is_other(name, n)) return true;
        name += n + (name[n] == '.');
    }
    return false;
}

/* The ends that most families have, under the names that they have here. */
static void name_ends(sw_model *m, const sw_st *st)
{
    static const struct {
        sw_end end;
        const char *leaf;
    } rows[] = {{SW_END_EMBED, "embed_tokens.weight"},    {SW_END_EMBED, "wte.weight"},
                {SW_END_EMBED, "word_embeddings.weight"}, {SW_END_EMBED, "tok_embeddings.weight"},
                {SW_END_HEAD, "lm_head.weight"},          {SW_END_HEAD, "output.weight"},
                {SW_END_NORM, "norm.weight"},             {SW_END_NORM, "ln_f.weight"}};

    for (int64_t i = 0; i < sw_st_count(st); i++) {
        const char *name = sw_st_at(st, i)->name;
        const size_t n = strlen(name);
        int64_t layer;
        size_t at;

        if (is_beside_decoder(name)) continue;
        if (sw_found_in_layer(&layer, &at, name)) {
            while (at > 1 && name[at - 2] != '.') at--; /* back over the number */
            if (!m->ends[SW_END_LAYERS][0] && at < SW_END_BYTES)
                (void)snprintf(m->ends[SW_END_LAYERS], SW_END_BYTES, "%.*s", (int)at - 2, name);
            continue;
        }
        for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
            const size_t tail = strlen(rows[r].leaf);

            if (m->ends[rows[r].end][0] || n < tail || n >= SW_END_BYTES ||
                strcmp(name + n - tail, rows[r].leaf) ||
                (n > tail && name[n - tail - 1] != '.'))
                continue;
            (void)snprintf(m->ends[rows[r].end], SW_END_BYTES, "%.*s",
                           (int)(n - strlen(WEIGHT)), name);
        }
    }
}

static sw_code take_room(finder *f, int64_t n_coded, sw_err *err)
{
    int64_t n = sw_st_count(f->st), n_linears = n + n_coded;
    sw_code rc;

    for (int64_t i = 0; i < n; i++)
        if (sw_st_at(f->st, i)->view.n_dims == 3) n_linears += 2 * f->m->n_experts;
    if ((rc = SW_ARENA_TAKE(&f->found, f->arena, 1, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&f->linears, f->arena, n_linears + 1, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&f->kept, f->arena, n + 1, err)) != SW_OK)
        return rc;
    return SW_ARENA_TAKE(&f->unclear, f->arena, n + 1, err);
}

sw_code sw_found_new(sw_model *m, const sw_st *st, const sw_coded_module *coded, int64_t n_coded,
                     sw_arena *arena, sw_err *err)
{
    finder f = {.m = m, .st = st, .arena = arena,
                .limit = m->n_layers ? m->n_layers : SW_LAYERS_MAX};
    sw_code rc = take_room(&f, n_coded, err);

    for (int64_t i = 0; i < n_coded && rc == SW_OK; i++) add_coded(&f, &coded[i]);
    for (int64_t i = 0; i < sw_st_count(st) && rc == SW_OK; i++)
        rc = add_tensor(&f, sw_st_at(st, i), err);
    if (rc != SW_OK) return rc;
    f.found->linears = f.linears;
    if (f.found->n) qsort(f.linears, (size_t)f.found->n, sizeof *f.linears, compare_found);
    if (f.found->n_kept)
        qsort(f.kept, (size_t)f.found->n_kept, sizeof *f.kept, compare_texts);
    drop_doubles(f.found);
    f.found->kept = f.kept;
    f.found->unclear = f.unclear;
    if ((rc = index_layers(&f, err)) != SW_OK) return rc;
    memset(m->ends, 0, sizeof m->ends);
    name_ends(m, st);
    m->found = f.found;
    return SW_OK;
}
