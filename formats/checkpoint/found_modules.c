/* found_modules.c - see found_modules.h. */
#include "formats/checkpoint/found_modules.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/size.h"

#define NAME_BYTES 512
#define CANDIDATES_MAX 256
#define WIDEST ((int64_t)1 << 24)

/* What a module is asked for its shape by. */
typedef struct puzzle {
    const sw_checkpoint *ckpt;
    const char *path;
    sw_qspec spec;
    const sw_st_tensor *stored[SW_DIALECT_TENSORS_MAX];
    int n_parts;
} puzzle;

static const sw_st_tensor *part_of(const puzzle *z, const char *suffix)
{
    char name[NAME_BYTES];
    const int n = snprintf(name, sizeof name, "%s.%s", z->path, suffix);

    return n > 0 && (size_t)n < sizeof name ? sw_st_find(z->ckpt->st, name) : NULL;
}

static bool same_shape(const sw_cview *view, const sw_part *part)
{
    if (part->n_dims == 0 || (part->n_dims == 1 && part->shape[0] == 1))
        return view->n_dims == 0 || (view->n_dims == 1 && view->shape[0] == 1);
    if (view->n_dims != part->n_dims) return false;
    for (int32_t i = 0; i < part->n_dims; i++)
        if (view->shape[i] != part->shape[i]) return false;
    return true;
}

/* Would a weight of this shape be stored in the tensors that are there? */
static bool fits(const puzzle *z, int64_t n_out, int64_t k_in)
{
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    int n;

    if (n_out < 1 || k_in < 1 || n_out > WIDEST || k_in > WIDEST ||
        (z->spec.group_elems && k_in % z->spec.group_elems && z->spec.scale_rows <= 1))
        return false;
    n = z->ckpt->dialect->declare(parts, &z->spec, n_out, k_in);
    for (int i = 0; i < n; i++) {
        const sw_st_tensor *t = part_of(z, parts[i].suffix);

        if (t ? !same_shape(&t->view, &parts[i]) : !parts[i].is_optional) return false;
    }
    return true;
}

static void add(int64_t list[CANDIDATES_MAX], int *n, int64_t value)
{
    if (value < 1 || value > WIDEST || *n == CANDIDATES_MAX) return;
    for (int i = 0; i < *n; i++)
        if (list[i] == value) return;
    list[(*n)++] = value;
}

/* Sizes that could have become the sizes that are stored: codes are packed into words, scales stand
 * for groups. */
static int candidates(int64_t list[CANDIDATES_MAX], const puzzle *z)
{
    static const int64_t factors[][2] = {{1, 1}, {2, 1},  {4, 1},  {8, 1},  {16, 1},
                                         {1, 2}, {1, 4},  {32, 3}, {32, 1}, {1, 8}};
    int n = 0;

    for (int i = 0; i < z->n_parts; i++) {
        const sw_cview *view = z->stored[i] ? &z->stored[i]->view : NULL;

        for (int32_t d = 0; view && d < view->n_dims; d++) {
            const int64_t size = view->shape[d];

            if (size < 1 || size > WIDEST) continue;
            for (size_t f = 0; f < sizeof factors / sizeof factors[0]; f++)
                if (size * factors[f][0] % factors[f][1] == 0)
                    add(list, &n, size * factors[f][0] / factors[f][1]);
            if (z->spec.group_elems) add(list, &n, size * z->spec.group_elems);
        }
    }
    return n;
}

/* What the tensors say themselves, where the dialect stores a shape. */
static bool read_shape(sw_coded_module *out, const puzzle *z)
{
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    const int n = z->ckpt->dialect->declare(parts, &z->spec, 64, 64);
    int64_t shape[2];

    for (int i = 0; i < n; i++) {
        const sw_st_tensor *t = parts[i].is_shape ? part_of(z, parts[i].suffix) : NULL;

        if (!t || t->view.dtype != SW_DTYPE_I64 || t->view.size_bytes != sizeof shape) continue;
        sw_st_want_tensor(z->ckpt->st, t);
        memcpy(shape, t->view.data, sizeof shape); /* as files have it, little-endian */
        if (!fits(z, shape[0], shape[1])) return false;
        out->n_out = shape[0];
        out->k_in = shape[1];
        return true;
    }
    return false;
}

/* How many shapes the stored tensors allow, 2 for more; the first in *out. */
static int try_all(sw_coded_module *out, const puzzle *z)
{
    int64_t list[CANDIDATES_MAX];
    const int n = candidates(list, z);
    int n_fits = 0;

    for (int i = 0; i < n; i++)
        for (int k = 0; k < n && n_fits < 2; k++) {
            if (!fits(z, list[i], list[k])) continue;
            if (n_fits++) continue;
            out->n_out = list[i];
            out->k_in = list[k];
        }
    return n_fits;
}

/* Layers repeat: what served an earlier module mostly serves this one. */
static bool is_like_another(sw_coded_module *out, const puzzle *z, const sw_coded_module *earlier,
                            int64_t n)
{
    for (int64_t i = n - 1; i >= 0 && i >= n - 16; i--) {
        if (!fits(z, earlier[i].n_out, earlier[i].k_in)) continue;
        out->n_out = earlier[i].n_out;
        out->k_in = earlier[i].k_in;
        return true;
    }
    return false;
}

sw_code sw_checkpoint_coded_shape(sw_coded_module *out, const sw_checkpoint *ckpt,
                                  const sw_coded_module *earlier, int64_t n, sw_err *err)
{
    puzzle z = {.ckpt = ckpt, .path = out->path};
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    int n_fits;
    sw_code rc = sw_checkpoint_spec(&z.spec, ckpt, out->path, err);

    if (rc != SW_OK) return rc;
    z.n_parts = ckpt->dialect->declare(parts, &z.spec, 64, 64);
    for (int i = 0; i < z.n_parts; i++) z.stored[i] = part_of(&z, parts[i].suffix);
    if (read_shape(out, &z) || is_like_another(out, &z, earlier, n)) return SW_OK;
    n_fits = try_all(out, &z);
    if (n_fits == 1) return SW_OK;
    if (n_fits)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: the shape of this weight cannot be told from "
                       "its tensors in %s; --arch-like FAMILY says what it is", out->path,
                       ckpt->dialect->name);
    return SW_FAIL(err, SW_E_FORMAT, "%s: no weight is stored in tensors of these shapes in %s; "
                   "the checkpoint is damaged, or its config.json gives another scheme", out->path,
                   ckpt->dialect->name);
}

/* The module of a tensor that only quantized linears have; false: it is none. */
static bool coded_path(char path[256], const sw_checkpoint *ckpt, const char *name)
{
    const char *dot = strrchr(name, '.');

    if (!dot || (size_t)(dot - name) >= 256 || strcmp(dot + 1, sw_checkpoint_marker(ckpt)))
        return false;
    (void)snprintf(path, 256, "%.*s", (int)(dot - name), name);
    return true;
}

static sw_code gather(sw_coded_module **out, int64_t *n_out, sw_checkpoint *ckpt, sw_err *err)
{
    sw_coded_module *list = NULL;
    int64_t n = 0;
    sw_code rc;

    if (ckpt->dialect->is_stacked)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s keeps all experts of a layer in one tensor, "
                       "which only the row of a family can take apart: give --arch-like FAMILY",
                       ckpt->dialect->name);
    if ((rc = SW_ARENA_TAKE(&list, &ckpt->arena, sw_st_count(ckpt->st), err)) != SW_OK) return rc;
    for (int64_t i = 0; i < sw_st_count(ckpt->st) && rc == SW_OK; i++) {
        char path[256], *kept;

        if (!coded_path(path, ckpt, sw_st_at(ckpt->st, i)->name)) continue;
        if ((rc = sw_arena_text(&kept, &ckpt->arena, path, strlen(path), err)) != SW_OK) return rc;
        list[n] = (sw_coded_module){.path = kept};
        rc = sw_checkpoint_coded_shape(&list[n], ckpt, list, n, err);
        n++;
    }
    *out = list;
    *n_out = n;
    return rc;
}

sw_code sw_checkpoint_find_linears(sw_checkpoint *ckpt, sw_err *err)
{
    sw_coded_module *coded = NULL;
    int64_t n = 0;
    sw_code rc = ckpt->dialect ? gather(&coded, &n, ckpt, err) : SW_OK;

    return rc == SW_OK ? sw_found_new(&ckpt->model, ckpt->st, coded, n, &ckpt->arena, err) : rc;
}
