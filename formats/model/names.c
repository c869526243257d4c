/* names.c - what tensors and modules of a model are called in its checkpoint. See model.h. */
#include <stdio.h>
#include <string.h>

#include "formats/model/model.h"
#include "formats/model/programs.h"

static bool is_mlp_slot(sw_slot slot)
{
    return slot == SW_SLOT_GATE || slot == SW_SLOT_UP || slot == SW_SLOT_DOWN;
}

static const char *arch_end(const sw_model *m, sw_end end) { return m->arch->ends.names[end]; }

const char *sw_model_end(const sw_model *m, sw_end end)
{
    return m->ends[end][0] ? m->ends[end] : arch_end(m, end);
}

/* Is there a tensor "<path>.<anything>"? */
static bool has_below(const sw_st *st, const char *path)
{
    const size_t n = strlen(path);

    for (int64_t i = 0; i < sw_st_count(st); i++) {
        const char *name = sw_st_at(st, i)->name;

        if (!strncmp(name, path, n) && name[n] == '.') return true;
    }
    return false;
}

/* The name of an end with another prefix than the family's. false: it is too long. */
static bool with_prefix(char out[SW_END_BYTES], const sw_model *m, sw_end end, const char *prefix,
                        size_t n_prefix)
{
    const char *name = arch_end(m, end) + strlen(m->arch->ends.prefix);

    return snprintf(out, SW_END_BYTES, "%.*s%s", (int)n_prefix, prefix, name) < SW_END_BYTES;
}

/* Does this prefix lead to the decoder's first block? */
static bool leads_to_layers(const sw_model *m, const sw_st *st, const char *prefix, size_t n_prefix)
{
    char layers[SW_END_BYTES], first[SW_END_BYTES + 4];

    if (!with_prefix(layers, m, SW_END_LAYERS, prefix, n_prefix)) return false;
    (void)snprintf(first, sizeof first, "%s.0", layers);
    return has_below(st, first);
}

/* What a tensor's name has before the embedding's own, in *n; false: it is no embedding. Both
 * "x.embed_tokens.weight" and "embed_tokens.weight" are. */
static bool before_embedding(size_t *n, const char *name, const char *leaf)
{
    static const char suffix[] = ".weight";
    const size_t whole = strlen(name), tail = strlen(leaf) + strlen(suffix);

    if (whole < tail) return false;
    *n = whole - tail;
    return !strncmp(name + *n, leaf, strlen(leaf)) &&
           !strcmp(name + whole - strlen(suffix), suffix) && (*n == 0 || name[*n - 1] == '.');
}

/* The prefix of the decoder: the family's own where it fits, else the shortest that does, so that
 * the copies of tables in extra heads do not count. NULL: none. */
static const char *find_prefix(size_t *n, const sw_model *m, const sw_st *st)
{
    const char *own = m->arch->ends.prefix, *found = NULL;
    const char *leaf = arch_end(m, SW_END_EMBED) + strlen(own);

    for (int64_t i = 0; i < sw_st_count(st); i++) {
        const char *name = sw_st_at(st, i)->name;
        size_t n_before;

        if (!before_embedding(&n_before, name, leaf) ||
            !leads_to_layers(m, st, name, n_before))
            continue;
        if (n_before == strlen(own) && !strncmp(name, own, n_before)) {
            *n = n_before;
            return own;
        }
        if (found && n_before >= *n) continue;
        found = name;
        *n = n_before;
    }
    return found;
}

/* The head is a sibling of the decoder or of any module that contains it. */
static void fit_head(sw_model *m, const sw_st *st, const char *prefix, size_t n_prefix)
{
    const char *head = arch_end(m, SW_END_HEAD);

    for (size_t n = 0; n <= n_prefix; n++) {
        char name[SW_END_BYTES];

        if (n && prefix[n - 1] != '.') continue;
        if (snprintf(name, sizeof name, "%.*s%s", (int)n, prefix, head) >= SW_END_BYTES) return;
        if (!has_below(st, name)) continue;
        (void)snprintf(m->ends[SW_END_HEAD], SW_END_BYTES, "%s", name);
        return;
    }
}

static void fit_kind(sw_model *m, const sw_st *st, int64_t layer)
{
    for (int i = 0; i < sw_n_stored_kinds; i++) {
        const sw_stored_kind *row = &sw_stored_kinds[i];
        char path[256];

        if (row->kinds != m->arch->kinds || row->from != m->kind[layer]) continue;
        if (!sw_model_slot_path(path, m, layer, row->slot, -1) || !has_below(st, path)) continue;
        m->kind[layer] = (uint8_t)row->to;
        return;
    }
}

/* What a config leaves open is as it is stored: loaders take the dtype of what they find. */
static void fit_dtype(sw_model *m, const sw_st *st)
{
    int64_t n_elems[SW_DTYPE_COUNT] = {0};
    static const sw_dtype floats[] = {SW_DTYPE_BF16, SW_DTYPE_F16, SW_DTYPE_F32};
    int64_t most = 0;

    for (int64_t i = 0; i < sw_st_count(st); i++) {
        const sw_cview *view = &sw_st_at(st, i)->view;

        n_elems[view->dtype] += sw_view_elems(view);
    }
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
        if (n_elems[floats[i]] <= most) continue;
        most = n_elems[floats[i]];
        m->dtype = floats[i];
    }
}

void sw_model_fit_names(sw_model *m, const sw_st *st)
{
    size_t n = 0;
    const char *prefix;

    if (m->is_dtype_open) fit_dtype(m, st);
    if (m->arch == &sw_arch_unknown) return; /* sw_found_new does it */
    prefix = find_prefix(&n, m, st);
    memset(m->ends, 0, sizeof m->ends);
    if (!prefix) return;
    for (int end = 0; end < SW_END_HEAD; end++)
        if (arch_end(m, (sw_end)end) &&
            !with_prefix(m->ends[end], m, (sw_end)end, prefix, n))
            m->ends[end][0] = '\0';
    fit_head(m, st, prefix, n);
    for (int64_t l = 0; l < m->n_layers; l++) fit_kind(m, st, l);
}

/* "<layers>.L.<name>", with the expert in the name's gap. */
static void slot_text(char out[256], const sw_model *m, int64_t layer, const char *name,
                      int64_t expert)
{
    const char *gap = strstr(name, "%d"), *layers = sw_model_end(m, SW_END_LAYERS);

    if (gap)
        (void)snprintf(out, 256, "%s.%lld.%.*s%lld%s", layers, (long long)layer,
                       (int)(gap - name), name, (long long)expert, gap + 2);
    else
        (void)snprintf(out, 256, "%s.%lld.%s", layers, (long long)layer, name);
}

const sw_found_linear *sw_found_at(const sw_model *m, int64_t layer, int64_t index)
{
    const sw_found *f = m->found;

    if (!f || layer < 0 || layer > m->n_layers || index < 0 ||
        index >= f->first_of[layer + 1] - f->first_of[layer])
        return NULL;
    return &f->linears[f->first_of[layer] + index];
}

bool sw_model_slot_path(char out[256], const sw_model *m, int64_t layer, sw_slot slot,
                        int64_t expert)
{
    const char *name = m->arch->slot_names[slot];

    if (slot == SW_SLOT_FOUND) {
        const sw_found_linear *found = sw_found_at(m, layer, expert);

        if (found) (void)snprintf(out, 256, "%s", found->path);
        return found != NULL;
    }
    if (slot == SW_SLOT_HEAD || slot == SW_SLOT_NORM_FINAL) {
        (void)snprintf(out, 256, "%s",
                       sw_model_end(m, slot == SW_SLOT_HEAD ? SW_END_HEAD : SW_END_NORM));
        return true;
    }
    if (expert >= 0) name = is_mlp_slot(slot) ? m->arch->expert_names[slot - SW_SLOT_GATE] : NULL;
    if (!name) return false;
    slot_text(out, m, layer, name, expert);
    return true;
}

bool sw_model_attention_path(char out[256], const sw_model *m, int64_t layer)
{
    char *dot;

    if (m->kv_rank || !sw_model_has_attention(m, layer) ||
        !sw_model_slot_path(out, m, layer, SW_SLOT_O, -1))
        return false;
    dot = strrchr(out, '.');
    if (dot) *dot = '\0';
    return dot;
}
