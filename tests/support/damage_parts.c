/* damage_parts.c - see damage_parts.h. */
#include "tests/support/damage_parts.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const damage_part damage_parts[] = {
    {"gate and up of an MLP swapped", ".gate_proj.", ".up_proj.", false},
    {"two experts swapped", ".experts.0.", ".experts.1.", false},
    {"norms between factors swapped", ".q_a_layernorm.", ".kv_a_layernorm.", false},
    {"A_log and dt_bias swapped", ".A_log", ".dt_bias", false},
    {"two experts of a fused tensor swapped", ".experts.", NULL, false},
    {"halves of gate_up_proj swapped", ".experts.gate_up_proj", NULL, true},
};
const int n_damage_parts = sizeof damage_parts / sizeof *damage_parts;

static void must(sw_code rc, const sw_err *err)
{
    if (rc == SW_OK) return;
    fprintf(stderr, "judge_corpus: %s\n", err->text);
    exit(1);
}

/* Where a name holds what trades, behind `module` where that is known; of experts in one tensor a
 * letter follows, not a number. */
static const char *place_in(const char *name, const char *module, const char *what, bool is_fused)
{
    const char *at = strstr(name, what);

    if (!at || (*module && (strncmp(name, module, strlen(module)) != 0 ||
                            at != name + strlen(module))))
        return NULL;
    return is_fused && isdigit((unsigned char)at[strlen(what)]) ? NULL : at;
}

/* What stands before the first `a` in the names; with `b`, `b` must be there in its place too. */
static bool find_module(char module[256], const damage_part *p, const sw_st *st)
{
    for (int64_t i = 0; i < sw_st_count(st); i++) {
        const char *name = sw_st_at(st, i)->name, *at = place_in(name, "", p->a, !p->b);
        char other[256];

        if (!at || strlen(name) >= 240) continue;
        (void)snprintf(module, 256, "%.*s", (int)(at - name), name);
        if (!p->b) return true;
        (void)snprintf(other, sizeof other, "%s%s%s", module, p->b, at + strlen(p->a));
        if (sw_st_find(st, other)) return true;
    }
    return false;
}

static void new_name(char out[256], const char *name, const char *module, const damage_part *p)
{
    const char *a = place_in(name, module, p->a, false), *b = p->b ? strstr(name, p->b) : NULL;

    (void)snprintf(out, 256, "%s", name);
    if (!p->b) return;
    if (a) (void)snprintf(out, 256, "%s%s%s", module, p->b, a + strlen(p->a));
    else if (b && place_in(name, module, p->b, false))
        (void)snprintf(out, 256, "%s%s%s", module, p->a, b + strlen(p->b));
}

static void swap(uint8_t *a, uint8_t *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint8_t kept = a[i];

        a[i] = b[i];
        b[i] = kept;
    }
}

/* The bytes of a tensor with its experts or their halves traded; freed by free. */
static uint8_t *traded(const sw_cview *view, bool is_halves)
{
    size_t n_slices = (size_t)view->shape[0], slice = view->size_bytes / n_slices;
    uint8_t *bytes = malloc(view->size_bytes);

    if (!bytes) exit(1);
    memcpy(bytes, view->data, view->size_bytes);
    if (!is_halves) swap(bytes, bytes + slice, slice);
    for (size_t e = 0; is_halves && e < n_slices; e++)
        swap(bytes + e * slice, bytes + e * slice + slice / 2, slice / 2);
    return bytes;
}

bool damage_part_apply(char module[256], const damage_part *part, const char *dir, const sw_st *st)
{
    sw_st_writer *w = NULL;
    sw_err err = {0};

    if (!find_module(module, part, st)) return false;
    must(sw_st_writer_new(&w, dir, 0, &err), &err);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < sw_st_count(st); i++) {
            const sw_st_tensor *t = sw_st_at(st, i);
            bool is_traded = !part->b && place_in(t->name, module, part->a, true) &&
                             t->view.n_dims > 1 && t->view.shape[0] > 1;
            uint8_t *bytes = pass && is_traded ? traded(&t->view, part->is_halves) : NULL;
            char name[256];

            new_name(name, t->name, module, part);
            must(pass ? sw_st_writer_put(w, name, bytes ? bytes : t->view.data,
                                         t->view.size_bytes, &err)
                      : sw_st_writer_declare(w, name, t->view.dtype, t->view.n_dims,
                                             t->view.shape, &err), &err);
            free(bytes);
        }
        if (!pass) must(sw_st_writer_begin(w, &err), &err);
    }
    must(sw_st_writer_commit(w, &err), &err);
    sw_st_writer_free(w);
    return true;
}
