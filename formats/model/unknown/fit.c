/* fit.c - whether a checkpoint is what another family's row says of it. See model.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/model/model.h"
#include "formats/model/stored.h"

static bool has_ending(const char *name, const char *const *endings)
{
    for (; *endings; endings++) {
        size_t n = strlen(name), m = strlen(*endings);

        if (n >= m && !strcmp(name + n - m, *endings)) return true;
    }
    return false;
}

bool sw_model_names(const sw_model *m, const char *module, const char *tensor)
{
    static const char *const buffers[] = {
        ".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias", ".k_scale", ".v_scale",
        ".experts.gate_up_proj", ".experts.gate_up_proj_bias", ".experts.down_proj",
        ".experts.down_proj_bias", NULL};
    const char *layers = sw_model_end(m, SW_END_LAYERS);
    size_t n = strlen(layers);
    long layer;
    char path[256], *end;

    for (int i = SW_END_EMBED; i < SW_END_COUNT; i++) {
        const char *name = sw_model_end(m, (sw_end)i);
        if (name && (!strcmp(name, module) || !strcmp(name, tensor))) return true;
    }
    if (has_ending(tensor, buffers)) return true;
    if (strncmp(tensor, layers, n) != 0 || tensor[n] != '.') return false;
    layer = strtol(tensor + n + 1, &end, 10);
    if (*end != '.' || layer < 0 || layer >= m->n_layers) return false;
    for (int s = 0; s < SW_SLOT_COUNT; s++) {
        bool is_per_expert = sw_model_is_sparse(m, layer) &&
                             (s == SW_SLOT_GATE || s == SW_SLOT_UP || s == SW_SLOT_DOWN);
        const char *experts = strstr(module, ".experts.");
        int64_t expert = is_per_expert && experts ? strtol(experts + 9, NULL, 10) : -1;
        if (expert >= m->n_experts) continue;
        if (sw_model_slot_path(path, m, layer, (sw_slot)s, expert) &&
            (!strcmp(path, module) || !strcmp(path, tensor)))
            return true;
    }
    return false;
}

/* Is there anything below the module but floats under its own name? Then it is in codes. */
static bool is_coded(const sw_st *st, const char *path)
{
    const size_t n = strlen(path);

    for (int64_t i = 0; i < sw_st_count(st); i++) {
        const sw_st_tensor *t = sw_st_at(st, i);
        const bool is_float = t->view.dtype == SW_DTYPE_F32 || t->view.dtype == SW_DTYPE_F16 ||
                              t->view.dtype == SW_DTYPE_BF16;

        if (!strncmp(t->name, path, n) && t->name[n] == '.' &&
            (!is_float || strstr(t->name + n, "scale")))
            return true;
    }
    return false;
}

static sw_code refuse(const sw_model *m, const sw_err *why, sw_err *err)
{
    return SW_FAIL(err, SW_E_UNSUPPORTED, "this model is not like %s: %s. Give another family to "
                   "--arch-like (`swage list architectures`), or round its weights alone, quantize "
                   "--method rtn without --arch-like", m->arch->name, why->text);
}

static sw_code check_linears(const sw_model *m, const sw_st *st, int64_t layer, sw_err *err)
{
    const int64_t n = sw_model_linears(m, layer, NULL, 0);
    sw_linear_ref *refs = NULL;
    sw_code rc = SW_MEM_GET(&refs, n, "linears of a layer", err);

    if (rc != SW_OK) return rc;
    (void)sw_model_linears(m, layer, refs, n);
    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        sw_stored stored = {0};
        sw_err why = {0};
        char path[256];

        if (!sw_model_slot_path(path, m, layer, refs[i].slot, refs[i].expert)) continue;
        if (sw_stored_weight(&stored, m, st, layer, refs[i].slot, refs[i].expert, &why) != SW_OK &&
            !is_coded(st, path))
            rc = refuse(m, &why, err);
    }
    sw_mem_put(refs);
    return rc;
}

/* Of what a program reads besides linears: that a norm has a value for each channel. */
static sw_code check_norm(const sw_model *m, const sw_st *st, int64_t layer, const sw_op *op,
                          sw_err *err)
{
    const sw_st_tensor *t;
    int64_t one, width;
    sw_err why = {0};
    char path[256], name[300];

    if ((op->kind != SW_OP_RMS_NORM && op->kind != SW_OP_LAYER_NORM &&
         op->kind != SW_OP_HEAD_NORM) || op->slot == SW_SLOT_COUNT ||
        !sw_model_slot_path(path, m, layer, op->slot, -1))
        return SW_OK;
    sw_model_slot_shape(m, layer, op->slot, &one, &width);
    (void)snprintf(name, sizeof name, "%s.weight", path);
    if (!sw_st_find(st, name) && sw_st_find(st, path)) /* a vector without a suffix */
        (void)snprintf(name, sizeof name, "%s", path);
    if (sw_stored_tensor(&t, st, name, 1, &width, &why) == SW_OK) return SW_OK;
    return refuse(m, &why, err);
}

static sw_code check_layer(const sw_model *m, const sw_st *st, int64_t layer, sw_err *err)
{
    int n_ops;
    const sw_op *ops = sw_model_ops(m, layer, &n_ops);
    sw_code rc = check_linears(m, st, layer, err);

    for (int i = 0; i < n_ops && rc == SW_OK; i++) rc = check_norm(m, st, layer, &ops[i], err);
    return rc;
}

/* Norms and sinks, which only programs of some families read though many have a name for them. */
static const sw_slot vectors[] = {
    SW_SLOT_NORM_ATTN,        SW_SLOT_NORM_MLP,         SW_SLOT_NORM_AFTER_ATTN,
    SW_SLOT_NORM_AFTER_MLP,   SW_SLOT_NORM_Q,           SW_SLOT_NORM_K,
    SW_SLOT_NORM_Q_ROW,       SW_SLOT_NORM_K_ROW,       SW_SLOT_NORM_Q_A,
    SW_SLOT_NORM_KV_A,        SW_SLOT_NORM_BRANCH_ATTN, SW_SLOT_NORM_BRANCH_MLP,
    SW_SLOT_NORM_DENSE_OUT,   SW_SLOT_NORM_EXPERTS,     SW_SLOT_NORM_EXPERTS_OUT,
    SW_SLOT_SINKS};

/* Does a program of any layer read it? Layers that share keys keep norms of their own. */
static bool is_read(const sw_model *m, sw_slot slot)
{
    for (int64_t layer = 0; layer < m->n_layers; layer++) {
        int n_ops;
        const sw_op *ops = sw_model_ops(m, layer, &n_ops);

        for (int i = 0; i < n_ops; i++)
            if (ops[i].slot == slot) return true;
    }
    return false;
}

/* The operation of the layer that reads `module`, or what lies below it. NULL: none. */
static const sw_op *reader_of(const sw_model *m, int64_t layer, const char *module)
{
    int n_ops;
    const sw_op *ops = sw_model_ops(m, layer, &n_ops);
    char path[256];

    for (int i = 0; i < n_ops; i++) {
        const size_t n = sw_model_slot_path(path, m, layer, ops[i].slot, -1) ? strlen(path) : 0;

        if (n && !strncmp(path, module, n) && (!module[n] || module[n] == '.')) return &ops[i];
    }
    return NULL;
}

/* A tensor that has a name in the family, but that no program reads: a norm of heads, a bias that
 * the config denies. */
static bool is_idle(const sw_model *m, int64_t layer, const char *module, const char *leaf)
{
    const sw_op *op = reader_of(m, layer, module);
    char path[256];

    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0] && !op; i++)
        if (sw_model_slot_path(path, m, layer, vectors[i], -1) && !strcmp(path, module) &&
            !is_read(m, vectors[i]))
            return true;
    if (!op || strcmp(leaf, ".bias")) return false;
    return op->kind == SW_OP_LINEAR ? !sw_model_slot_has_bias(m, op->slot)
                                    : op->kind == SW_OP_RMS_NORM;
}

/* A tensor of all experts of the layer. */
static bool is_of_experts(const sw_model *m, const char *name)
{
    const char *own = name + strlen(sw_model_end(m, SW_END_LAYERS)) + 1;

    own = strchr(own, '.');
    for (int i = 0; i < 2 && own; i++) {
        const char *fused = m->arch->fused_experts[i];

        if (fused && !strncmp(own + 1, fused, strlen(fused))) return true;
    }
    return false;
}

static sw_code check_idle(const sw_model *m, const char *module, const char *name, sw_err *err)
{
    const size_t n = strlen(sw_model_end(m, SW_END_LAYERS));
    const int64_t layer = strtol(name + n + 1, NULL, 10);
    sw_err why = {0};

    if (!is_idle(m, layer, module, name + strlen(module))) return SW_OK;
    (void)SW_FAIL(&why, SW_E_FORMAT, "%s is not read by such a model", name);
    return refuse(m, &why, err);
}

/* What no slot names would be left out of the arithmetic in silence. */
static sw_code check_names(const sw_model *m, const sw_st *st, sw_err *err)
{
    const char *layers = sw_model_end(m, SW_END_LAYERS);
    const size_t n = strlen(layers);

    for (int64_t i = 0; i < sw_st_count(st); i++) {
        const char *name = sw_st_at(st, i)->name, *dot = strrchr(name, '.');
        char module[256];
        sw_err why = {0};
        sw_code rc;

        if (!dot || (size_t)(dot - name) >= sizeof module || !sw_model_owns(m, name) ||
            strncmp(name, layers, n) || name[n] != '.' || is_of_experts(m, name))
            continue;
        (void)snprintf(module, sizeof module, "%.*s", (int)(dot - name), name);
        if ((rc = check_idle(m, module, name, err)) != SW_OK) return rc;
        if (sw_model_names(m, module, name) || is_coded(st, module) ||
            reader_of(m, strtol(name + n + 1, NULL, 10), module))
            continue;
        if (strstr(dot, "_blocks") || strstr(dot, "_scales")) continue;
        (void)SW_FAIL(&why, SW_E_FORMAT, "%s is no tensor of such a model", name);
        return refuse(m, &why, err);
    }
    return SW_OK;
}

static sw_code check_embedding(const sw_model *m, const sw_st *st, sw_err *err)
{
    const int64_t shape[] = {m->vocab, m->hidden};
    const sw_st_tensor *t;
    sw_err why = {0};
    char name[300];

    (void)snprintf(name, sizeof name, "%s.weight", sw_model_end(m, SW_END_EMBED));
    return sw_stored_tensor(&t, st, name, 2, shape, &why) == SW_OK ? SW_OK : refuse(m, &why, err);
}

sw_code sw_model_check_like(const sw_model *m, const sw_st *st, sw_err *err)
{
    sw_code rc = check_embedding(m, st, err);

    for (int64_t layer = 0; layer <= m->n_layers && rc == SW_OK; layer++)
        rc = check_layer(m, st, layer, err);
    return rc == SW_OK ? check_names(m, st, err) : rc;
}
