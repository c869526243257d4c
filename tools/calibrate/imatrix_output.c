/* imatrix_output.c - see imatrix_output.h. */
#include "tools/calibrate/imatrix_output.h"

#include <stdio.h>
#include <string.h>

#include "formats/file/imatrix.h"
#include "formats/gguf/gguf_names.h"
#include "formats/io/file.h"

typedef struct output {
    const sw_zpack *stats;
    const sw_model *m;
    sw_gguf_names names;
    sw_imatrix_source *sources;
    int64_t n;
    sw_arena arena;
    sw_linear_ref *refs; /* of the layer at hand */
    int64_t n_refs, layer;
    sw_err *err;
} output;

static sw_code find_names(output *o)
{
    const sw_gguf_arch *arch;
    sw_code rc = sw_gguf_arch_of_model(&arch, o->m, o->err);

    return rc ? rc : sw_gguf_names_new(&o->names, o->m, arch, &o->arena, o->err);
}

sw_code sw_imatrix_output_check(const char *path, const sw_model *model, bool may_replace,
                                sw_err *err)
{
    const size_t n = strlen(path);
    output o = {.m = model, .err = err};
    sw_code rc;

    if ((n < 6 || strcmp(path + n - 5, ".gguf")) && (n < 5 || strcmp(path + n - 4, ".dat")))
        return SW_FAIL(err, SW_E_USAGE, "%s: an imatrix file is called FILE.gguf or FILE.dat",
                       path);
    if (!may_replace && sw_path_exists(path))
        return SW_FAIL(err, SW_E_USAGE, "%s: exists; give --force to replace it", path);
    rc = find_names(&o);
    sw_arena_free(&o.arena);
    return rc;
}

/* The site that the linear of this name reads at; SW_SITE_COUNT: none. */
static sw_site site_of(output *o, const sw_gguf_name *name)
{
    if (name->layer != o->layer) {
        o->layer = name->layer;
        o->n_refs = sw_model_linears(o->m, o->layer, o->refs, 0);
        if (SW_ARENA_TAKE(&o->refs, &o->arena, o->n_refs + 1, o->err) != SW_OK)
            return SW_SITE_COUNT;
        o->n_refs = sw_model_linears(o->m, o->layer, o->refs, o->n_refs);
    }
    for (int64_t i = 0; i < o->n_refs; i++)
        if (o->refs[i].slot == name->slot && o->refs[i].expert == name->expert)
            return o->refs[i].site;
    return SW_SITE_COUNT;
}

/* The diagonal of a packed upper triangle [k (k + 1) / 2], in the file's order of inputs. */
static sw_code read_diagonal(float *to, output *o, const char *prefix, const sw_gguf_name *name)
{
    const int64_t k = name->row_elems, n = k * (k + 1) / 2;
    const sw_zpack_tensor *t;
    char tensor[160];
    float *packed = NULL;
    sw_code rc;

    (void)snprintf(tensor, sizeof tensor, "%s.hessian", prefix);
    t = sw_zpack_find(o->stats, tensor);
    if (!t || t->dtype != SW_DTYPE_F32 || t->n_dims != 1 || t->shape[0] != n)
        return SW_FAIL(o->err, SW_E_UNSUPPORTED, "the statistics have no \"%s\" of %lld inputs; an "
                       "imatrix of experts needs --experts shrink or routed", tensor, (long long)k);
    if ((rc = SW_MEM_GET(&packed, n, tensor, o->err)) != SW_OK) return rc;
    rc = sw_zpack_load(packed, o->stats, t, o->err);
    for (int64_t i = 0; i < k && rc == SW_OK; i++) {
        const int64_t j = name->cols ? name->cols[i] : i;

        to[i] = packed[j * k - j * (j - 1) / 2];
    }
    sw_mem_put(packed);
    return rc;
}

static sw_code read_tokens(int64_t *out, output *o, const char *prefix)
{
    const sw_zpack_tensor *t;
    char tensor[160];

    (void)snprintf(tensor, sizeof tensor, "%s.tokens", prefix);
    t = sw_zpack_find(o->stats, tensor);
    if (!t || t->dtype != SW_DTYPE_I64 || t->n_dims != 1 || t->shape[0] != 1)
        return SW_FAIL(o->err, SW_E_FORMAT, "the statistics have no \"%s\"", tensor);
    return sw_zpack_load(out, o->stats, t, o->err);
}

/* One matrix of a weight: its means and how many tokens they are of. */
static sw_code read_matrix(float *means, float *count, output *o, const sw_gguf_name *name)
{
    const long long l = (long long)name->layer, e = (long long)name->expert;
    const sw_site site = site_of(o, name);
    char tokens[96], hessian[128];
    int64_t n = 0;
    sw_code rc;

    if (site == SW_SITE_COUNT)
        return SW_FAIL(o->err, SW_E_BUG, "%s is read at no site", name->hf);
    if (e < 0) {
        (void)snprintf(tokens, sizeof tokens, "layers.%lld.%s", l, sw_site_name(site));
        (void)snprintf(hessian, sizeof hessian, "%s", tokens);
    } else {
        (void)snprintf(tokens, sizeof tokens, "layers.%lld.experts.%lld", l, e);
        (void)snprintf(hessian, sizeof hessian, "%s.%s", tokens,
                       site == SW_SITE_DOWN_IN ? "down" : "in");
    }
    if ((rc = read_tokens(&n, o, tokens)) != SW_OK) return rc;
    *count = (float)n;
    if (n) return read_diagonal(means, o, hessian, name);
    for (int64_t i = 0; i < name->row_elems; i++) means[i] = 1.0f;
    return SW_OK;
}

/* Names [i, i + n) are the matrices of one weight. */
static sw_code add_weight(output *o, int64_t i, int64_t n)
{
    const sw_gguf_name *name = &o->names.names[i];
    sw_imatrix_source *s = &o->sources[o->n];
    float *means = NULL, *counts = NULL;
    sw_code rc;

    if ((rc = SW_ARENA_TAKE(&means, &o->arena, n * name->row_elems, o->err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&counts, &o->arena, n, o->err)) != SW_OK)
        return rc;
    for (int64_t m = 0; m < n && rc == SW_OK; m++)
        rc = read_matrix(means + m * name->row_elems, counts + m, o, name + m);
    *s = (sw_imatrix_source){{name->gguf, n * name->row_elems, means, 0.0}, n, counts};
    o->n++;
    return rc;
}

static sw_code collect(output *o)
{
    int64_t n;
    sw_code rc = SW_ARENA_TAKE(&o->sources, &o->arena, o->names.n, o->err);

    for (int64_t i = 0; i < o->names.n && rc == SW_OK; i += n) {
        const sw_gguf_name *name = &o->names.names[i];

        n = 1;
        if (!name->is_linear) continue;
        while (i + n < o->names.n && !strcmp(name[n].gguf, name->gguf)) n++;
        rc = add_weight(o, i, n);
    }
    return rc;
}

sw_code sw_imatrix_output_write(const char *path, const sw_zpack *stats, const sw_model *model,
                                const sw_calib *calib, const char *text, bool may_replace,
                                sw_err *err)
{
    output o = {.stats = stats, .m = model, .layer = -1, .err = err};
    sw_code rc = find_names(&o);

    if (rc == SW_OK) rc = collect(&o);
    if (rc == SW_OK)
        rc = sw_imatrix_write(path, o.sources, o.n, text, calib->n_seqs, calib->seq_len,
                              may_replace, err);
    sw_arena_free(&o.arena);
    return rc;
}
