/* imatrix_input.c - see imatrix_input.h. */
#include "tools/calibrate/imatrix_input.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "formats/gguf/gguf_names.h"
#include "formats/io/file_content.h"

/* Inputs that calibration never saw count a little all the same, of the mean: no group of them may
 * weigh nothing. */
#define LEAST_SHARE 1e-6

struct sw_imatrix_input {
    const char *path;
    const sw_model *m;
    sw_imatrix *file;
    sw_gguf_names names;
    const sw_gguf_name **linears; /* by layer, slot and expert */
    int64_t n, n_missing;
    sw_importance weights;
    sw_arena arena;
};

static int compare(const sw_gguf_name *a, int64_t layer, sw_slot slot, int64_t expert)
{
    if (a->layer != layer) return a->layer < layer ? -1 : 1;
    if (a->slot != slot) return a->slot < slot ? -1 : 1;
    return (a->expert > expert) - (a->expert < expert);
}

static int compare_names(const void *a, const void *b)
{
    const sw_gguf_name *x = *(const sw_gguf_name *const *)a;
    const sw_gguf_name *y = *(const sw_gguf_name *const *)b;

    return compare(x, y->layer, y->slot, y->expert);
}

/* Any piece of the linear: all read the same inputs. NULL: GGUF keeps it as no linear. */
static const sw_gguf_name *find(const sw_imatrix_input *in, const sw_linear_ref *ref)
{
    int64_t low = 0, high = in->n;

    while (low < high) {
        const int64_t middle = (low + high) / 2;
        const int order = compare(in->linears[middle], ref->layer, ref->slot, ref->expert);

        if (!order) return in->linears[middle];
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

static sw_code means_of(const float **out, const sw_imatrix_input *in, const sw_linear_ref *ref,
                        sw_err *err)
{
    const sw_gguf_name *name = find(in, ref);
    const bool is_expert = name && name->expert >= 0;
    sw_code rc;

    *out = NULL;
    if (!name || name->turned_stride || name->row_elems != ref->k_in) return SW_OK;
    rc = sw_imatrix_weights(out, in->file, name->gguf, is_expert ? name->file_shape[0] : 1,
                            is_expert ? name->expert : 0, name->file_elems, err);
    if (rc != SW_OK) sw_err_prefix(err, "%s", in->path);
    return rc;
}

static sw_code get(void *self, bool *has, double *out, const sw_linear_ref *ref, sw_err *err)
{
    const sw_imatrix_input *in = self;
    const sw_gguf_name *name = find(in, ref);
    const float *means = NULL;
    double mean = 0;
    sw_code rc = means_of(&means, in, ref, err);

    *has = rc == SW_OK && means;
    if (!*has) return rc;
    for (int64_t i = 0; i < ref->k_in; i++) mean += (double)means[i] / (double)ref->k_in;
    if (!(mean > 0)) {
        *has = false;
        return SW_OK;
    }
    for (int64_t i = 0; i < ref->k_in; i++)
        out[name->cols ? name->cols[i] : i] = fmax((double)means[i], LEAST_SHARE * mean);
    return SW_OK;
}

static sw_code find_names(sw_imatrix_input *in, sw_err *err)
{
    const sw_gguf_arch *arch;
    sw_code rc = sw_gguf_arch_of_model(&arch, in->m, err);

    if (rc != SW_OK || (rc = sw_gguf_names_new(&in->names, in->m, arch, &in->arena, err)) ||
        (rc = SW_ARENA_TAKE(&in->linears, &in->arena, in->names.n + 1, err)) != SW_OK)
        return rc;
    for (int64_t i = 0; i < in->names.n; i++)
        if (in->names.names[i].is_linear) in->linears[in->n++] = &in->names.names[i];
    if (in->n) qsort(in->linears, (size_t)in->n, sizeof *in->linears, compare_names);
    return SW_OK;
}

/* Everything that the file may say wrong of a linear is said before the first is rounded. */
static sw_code look_all_up(sw_imatrix_input *in, sw_err *err)
{
    int64_t n_all = 0;
    sw_code rc = SW_OK;

    for (int64_t layer = 0; layer < in->m->n_layers && rc == SW_OK; layer++) {
        const int64_t n = sw_model_linears(in->m, layer, NULL, 0);
        sw_linear_ref *refs = NULL;

        if ((rc = SW_MEM_GET(&refs, n, "linears of a layer", err)) != SW_OK) return rc;
        (void)sw_model_linears(in->m, layer, refs, n);
        for (int64_t i = 0; i < n && rc == SW_OK; i++) {
            const float *means = NULL;

            rc = means_of(&means, in, &refs[i], err);
            in->n_missing += !means;
        }
        n_all += n;
        sw_mem_put(refs);
    }
    if (rc == SW_OK && in->n_missing == n_all)
        return SW_FAIL(err, SW_E_FORMAT, "%s: has none of the linears of this model; its names are "
                       "those of a GGUF (blk.0.attn_q.weight)", in->path);
    return rc;
}

sw_code sw_imatrix_input_open(sw_imatrix_input **out, const char *path, const sw_model *model,
                              sw_err *err)
{
    sw_imatrix_input *in = NULL;
    sw_code rc = SW_MEM_GET(&in, 1, "imatrix", err);

    if (rc != SW_OK) return rc;
    in->path = path;
    in->m = model;
    in->weights = (sw_importance){in, get};
    if ((rc = sw_imatrix_open(&in->file, path, err)) == SW_OK &&
        (rc = find_names(in, err)) == SW_OK && (rc = look_all_up(in, err)) == SW_OK)
        *out = in;
    else
        sw_imatrix_input_free(in);
    return rc;
}

void sw_imatrix_input_free(sw_imatrix_input *in)
{
    if (!in) return;
    sw_imatrix_free(in->file);
    sw_arena_free(&in->arena);
    sw_mem_put(in);
}

const sw_importance *sw_imatrix_input_weights(const sw_imatrix_input *in) { return &in->weights; }

int64_t sw_imatrix_input_n_missing(const sw_imatrix_input *in) { return in->n_missing; }

sw_code sw_imatrix_input_describe(cJSON *manifest, const sw_imatrix_input *in, sw_err *err)
{
    const char *slash = strrchr(in->path, '/');
    char digest[SW_SHA256_HEX_BYTES];
    sw_code rc = sw_sha256_file(digest, in->path, err);
    cJSON *o;

    if (rc != SW_OK) return rc;
    o = cJSON_AddObjectToObject(manifest, "imatrix");
    if (o && cJSON_AddStringToObject(o, "name", slash ? slash + 1 : in->path) &&
        cJSON_AddStringToObject(o, "sha256", digest) &&
        cJSON_AddNumberToObject(o, "missing", (double)in->n_missing))
        return SW_OK;
    return SW_FAIL(err, SW_E_NOMEM, "no memory for the manifest");
}
