/* original.c - see original.h. */
#include "verify/metrics/original.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/num/num.h"
#include "verify/decoders/decode_spec_parts.h"

/* "<prefix>.experts.<expert>.<leaf>" taken apart. */
typedef struct expert_path {
    char prefix[256];
    int64_t expert;
    const char *leaf;
} expert_path;

static bool split_path(expert_path *out, const char *path)
{
    static const char word[] = ".experts.";
    const char *at = strstr(path, word), *number = at ? at + strlen(word) : NULL;
    char *end;

    if (!at || (size_t)(at - path) >= sizeof out->prefix || *number < '0' || *number > '9')
        return false;
    memcpy(out->prefix, path, (size_t)(at - path));
    out->prefix[at - path] = '\0';
    out->expert = strtol(number, &end, 10);
    out->leaf = end + 1;
    return *end == '.';
}

/* The tensor of all experts that this one's leaf would lie in. */
static const sw_st_tensor *fused_tensor(const sw_st *st, const expert_path *p, const char *suffix)
{
    const bool is_down = !strcmp(p->leaf, "down_proj");
    char name[300];

    const sw_st_tensor *t;

    if (!is_down && strcmp(p->leaf, "gate_proj") && strcmp(p->leaf, "up_proj")) return NULL;
    (void)snprintf(name, sizeof name, "%s.experts.%s%s", p->prefix,
                   is_down ? "down_proj" : "gate_up_proj", suffix);
    if ((t = sw_st_find(st, name)) != NULL || *suffix) return t;
    (void)snprintf(name, sizeof name, "%s.%s.weight", p->prefix,
                   is_down ? "output_linear" : "input_linear");
    return sw_st_find(st, name);
}

static bool has_shape(const sw_st_tensor *t, int32_t n_dims, int64_t a, int64_t b, int64_t c)
{
    const int64_t *shape = t->view.shape;

    return t->view.n_dims == n_dims && shape[0] == a && shape[1] == b &&
           (n_dims < 3 || shape[2] == c);
}

bool sw_original_is_quantized(const sw_subject *original, const char *path)
{
    return original->is_quantized && sw_spec_is_quantized(&original->scheme, original->st, path);
}

/* The values that the codes of an original stand for. */
static sw_code decoded_weight(float **out, const sw_subject *original, const sw_subject_linear *l,
                              sw_err *err)
{
    sw_spec_weight w = {0};
    sw_code rc = sw_spec_decode(&w, &original->scheme, original->st, l->path, l->ref.n_out,
                                l->ref.k_in, err);

    if (rc != SW_OK) {
        sw_err_prefix(err, "%s", original->dir);
        return rc;
    }
    *out = w.values;
    w.values = NULL;
    sw_spec_weight_free(&w);
    return SW_OK;
}

bool sw_original_holds(const sw_subject *original, const sw_subject_linear *l)
{
    expert_path p;

    return sw_original_is_quantized(original, l->path) ||
           sw_spec_find(original->st, l->path, "weight") ||
           (split_path(&p, l->path) && fused_tensor(original->st, &p, ""));
}

/* Where element [n][k] of an expert lies: at first + n * per_n + k * per_k. */
typedef struct fused_place {
    int64_t first, per_n, per_k;
} fused_place;

/* Tensors of all experts are [experts, inputs, channels] or [experts, channels, inputs], which the
 * shape of either of a layer's two tells: both cannot be square. Where both could be read either
 * way, `order` is how the family is published. */
static bool has_inputs_first(const sw_st_tensor *up, const sw_st_tensor *down, int64_t hidden,
                             int64_t width, sw_fused_order order)
{
    if (order == SW_FUSED_TURNS) return true;
    if (up && up->view.n_dims == 3 && hidden != 2 * width) return up->view.shape[1] == hidden;
    if (down && down->view.n_dims == 3 && hidden != width) return down->view.shape[1] == width;
    return order == SW_FUSED_COLUMNS;
}

static bool find_place(fused_place *out, const sw_st_tensor *t, const expert_path *p,
                       const sw_subject *original, int64_t n_out, int64_t k_in)
{
    const bool is_down = !strcmp(p->leaf, "down_proj"), is_up = !strcmp(p->leaf, "up_proj");
    const sw_fused_order order = original->model.arch->fused_order;
    const bool in_turns = order == SW_FUSED_TURNS;
    const int64_t all = is_down ? n_out : 2 * n_out, *shape = t->view.shape;
    expert_path other = *p;
    const sw_st_tensor *sister;
    bool inputs_first;

    other.leaf = is_down ? "up_proj" : "down_proj";
    sister = fused_tensor(original->st, &other, "");
    inputs_first = has_inputs_first(is_down ? sister : t, is_down ? t : sister,
                                    is_down ? n_out : k_in, is_down ? k_in : n_out, order);
    if (t->view.n_dims != 3 || shape[0] != original->model.n_experts || p->expert >= shape[0] ||
        shape[1] != (inputs_first ? k_in : all) || shape[2] != (inputs_first ? all : k_in))
        return false;
    out->per_n = !inputs_first ? k_in : in_turns && !is_down ? 2 : 1;
    out->per_k = inputs_first ? all : 1;
    out->first = p->expert * all * k_in + (!is_up ? 0 : in_turns ? 1 : n_out * out->per_n);
    return true;
}

static sw_code fused_weight(float *out, const sw_st_tensor *t, const fused_place *place,
                            int64_t n_out, int64_t k_in, sw_err *err)
{
    const int64_t elem_bytes = sw_dtype_bits(t->view.dtype) / 8;
    const char *from = (const char *)t->view.data + place->first * elem_bytes;
    sw_code rc = SW_OK;

    for (int64_t n = 0; n < n_out && rc == SW_OK; n++)
        for (int64_t k = 0; k < k_in && rc == SW_OK; k++)
            rc = sw_float_decode_n(out + n * k_in + k,
                                   from + (n * place->per_n + k * place->per_k) * elem_bytes,
                                   t->view.dtype, 1, err);
    return rc;
}

static sw_code plain_weight(float *out, const sw_st_tensor *t, int64_t n_out, int64_t k_in,
                            bool is_turned, sw_err *err)
{
    float *stored = NULL;
    sw_st_bytes bytes = {0};
    sw_code rc;

    if (!is_turned) {
        if ((rc = sw_st_fetch(&bytes, t, err)) == SW_OK)
            rc = sw_float_decode_n(out, bytes.data, t->view.dtype, n_out * k_in, err);
        sw_st_drop(&bytes);
        return rc;
    }
    if ((rc = SW_MEM_GET(&stored, n_out * k_in, "original weight", err)) != SW_OK) return rc;
    rc = sw_float_decode_n(stored, t->view.data, t->view.dtype, n_out * k_in, err);
    for (int64_t n = 0; n < n_out && rc == SW_OK; n++)
        for (int64_t k = 0; k < k_in; k++) out[n * k_in + k] = stored[k * n_out + n];
    sw_mem_put(stored);
    return rc;
}

sw_code sw_original_weight(float **out, const sw_subject *original, const sw_subject_linear *l,
                           sw_err *err)
{
    const int64_t n = l->ref.n_out, k = l->ref.k_in;
    const bool is_turned = original->model.arch->has_transposed_linears &&
                           l->ref.slot != SW_SLOT_HEAD;
    const sw_st_tensor *t = sw_spec_find(original->st, l->path, "weight"), *fused = NULL;
    fused_place place = {0};
    float *values = NULL;
    expert_path p;
    sw_code rc;

    if (sw_original_is_quantized(original, l->path)) return decoded_weight(out, original, l, err);
    if (!t && split_path(&p, l->path)) fused = fused_tensor(original->st, &p, "");
    if (fused ? !find_place(&place, fused, &p, original, n, k)
              : !t || !has_shape(t, 2, is_turned ? k : n, is_turned ? n : k, 0))
        return SW_FAIL(err, SW_E_FORMAT, "%s: %s.weight is missing or not [%lld, %lld]",
                       original->dir, l->path, (long long)n, (long long)k);
    if ((rc = SW_MEM_GET(&values, n * k, "original weight", err)) != SW_OK) return rc;
    rc = fused ? fused_weight(values, fused, &place, n, k, err)
               : plain_weight(values, t, n, k, is_turned, err);
    if (rc != SW_OK) {
        sw_err_prefix(err, "%s: %s.weight", original->dir, l->path);
        sw_mem_put(values);
        return rc;
    }
    *out = values;
    return SW_OK;
}

/* Element `at` of one expert's bias against its place in the original's. */
static bool same_bias(const sw_st_tensor *own, const sw_st_tensor *t, int64_t expert, int64_t turns,
                      int64_t turn)
{
    const int64_t width = t->view.shape[1], elem_bytes = sw_dtype_bits(t->view.dtype) / 8;
    const char *from = (const char *)t->view.data + expert * width * elem_bytes;
    sw_st_bytes bytes = {0};
    sw_err ignored = {0};
    bool is_same = true;

    if (!own || own->view.dtype != t->view.dtype || own->view.n_dims != 1 ||
        own->view.shape[0] != width / turns)
        return false;
    if (sw_st_fetch(&bytes, own, &ignored) != SW_OK) return false; /* a container makes it */
    for (int64_t n = 0; n < width / turns && is_same; n++)
        is_same = !memcmp((const char *)bytes.data + n * elem_bytes,
                          from + (n * turns + turn) * elem_bytes, (size_t)elem_bytes);
    sw_st_drop(&bytes);
    return is_same;
}

sw_original_split sw_original_is_split(const sw_st_tensor *t, const sw_subject *checkpoint,
                                       char where[300])
{
    static const struct {
        const char *end;
        const char *leaves[2];
        bool is_bias;
    } kinds[] = {
        {".experts.gate_up_proj", {"gate_proj", "up_proj"}, false},
        {".experts.down_proj", {"down_proj", NULL}, false},
        {".input_linear.weight", {"gate_proj", "up_proj"}, false},
        {".output_linear.weight", {"down_proj", NULL}, false},
        {".experts.gate_up_proj_bias", {"gate_proj", "up_proj"}, true},
        {".experts.down_proj_bias", {"down_proj", NULL}, true},
    };
    const size_t length = strlen(t->name), n_kinds = sizeof kinds / sizeof kinds[0];
    size_t kind = 0, end = 0;

    for (; kind < n_kinds; kind++) {
        end = strlen(kinds[kind].end);
        if (length > end && length < 256 && !strcmp(t->name + length - end, kinds[kind].end)) break;
    }
    if (kind == n_kinds || t->view.n_dims != (kinds[kind].is_bias ? 2 : 3))
        return SW_ORIGINAL_OTHER;
    for (int64_t i = 0; i < 2 * t->view.shape[0]; i++) {
        const char *leaf = kinds[kind].leaves[i % 2];
        const int64_t turns = kinds[kind].leaves[1] ? 2 : 1;

        if (!leaf) continue;
        (void)snprintf(where, 300, "%.*s.experts.%lld.%s", (int)(length - end), t->name,
                       (long long)(i / 2), leaf);
        if (kinds[kind].is_bias
                ? !same_bias(sw_spec_find(checkpoint->st, where, "bias"), t, i / 2, turns, i % 2)
                : !sw_spec_is_quantized(&checkpoint->scheme, checkpoint->st, where))
            return SW_ORIGINAL_SPOILT;
    }
    return SW_ORIGINAL_SPLIT;
}

bool sw_original_is_split_bias(const char *name, const sw_subject *original)
{
    char path[300];
    const char *dot = strrchr(name, '.');
    expert_path p;

    if (!dot || strcmp(dot, ".bias") || (size_t)(dot - name) >= sizeof path) return false;
    memcpy(path, name, (size_t)(dot - name));
    path[dot - name] = '\0';
    return split_path(&p, path) && fused_tensor(original->st, &p, "_bias");
}
