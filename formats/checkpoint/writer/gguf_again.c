/* gguf_again.c - a GGUF out of a GGUF: keys and bytes are carried over, and only what gets another
 * type is decoded and encoded. Splits become one file.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/checkpoint/writer/gguf_export_internal.h"

/* A tensor of the source and what becomes of it. */
typedef struct piece {
    const sw_gguf_tensor *t;
    const sw_gguf_name *name; /* of the model, the first expert's; NULL: beside it */
    int64_t n_names;          /* experts, or 1 */
    sw_block_type type;
    bool is_dropped;
} piece;

typedef struct again {
    const sw_checkpoint *source;
    const sw_gguf_names *names;
    const sw_gguf_options *o;
    sw_gguf *g;
    piece *pieces; /* in the order of the source */
    int64_t n;
} again;

/* --- keys --------------------------------------------------------------------------------- */

static bool begins(const char *key, const char *with) { return !strncmp(key, with, strlen(with)); }

/* What says how the source is cut and laid out is not true of the copy. */
static bool is_kept(const sw_gguf_options *o, const char *key)
{
    const bool is_typed = o->type != SW_GGUF_AS_STORED;

    if (begins(key, "split.") || !strcmp(key, "general.alignment")) return false;
    if (o->drop_tokenizer && begins(key, "tokenizer.")) return false;
    return !is_typed || (strcmp(key, "general.file_type") != 0 &&
                         strcmp(key, "general.quantization_version") != 0);
}

static int compare_keys(const void *a, const void *b)
{
    const unsigned char *x = (*(const sw_gguf_value *const *)a)->data;
    const unsigned char *y = (*(const sw_gguf_value *const *)b)->data;

    return (x > y) - (x < y);
}

/* In the order of the source: they are views into one mapping. */
static sw_code put_keys(sw_gguf_writer *w, const again *a, sw_err *err)
{
    const int64_t n = sw_gguf_n_keys(a->g);
    const sw_gguf_value **keys = NULL;
    sw_code rc = SW_MEM_GET(&keys, n, "keys of a GGUF", err);

    for (int64_t i = 0; i < n && rc == SW_OK; i++) keys[i] = sw_gguf_key_at(a->g, i);
    if (rc == SW_OK && n) qsort(keys, (size_t)n, sizeof *keys, compare_keys);
    for (int64_t i = 0; i < n && rc == SW_OK; i++)
        if (is_kept(a->o, keys[i]->key)) rc = sw_gguf_put_value(w, keys[i], err);
    sw_mem_put(keys);
    if (rc != SW_OK || a->o->type == SW_GGUF_AS_STORED) return rc;
    rc = sw_gguf_put_int(w, "general.file_type", SW_GGUF_U32,
                         sw_block_sizes[a->o->type].file_type, err);
    return rc ? rc : sw_gguf_put_int(w, "general.quantization_version", SW_GGUF_U32, 2, err);
}

/* --- tensors ------------------------------------------------------------------------------ */

static int compare_places(const void *a, const void *b)
{
    const sw_gguf_tensor *x = ((const piece *)a)->t, *y = ((const piece *)b)->t;

    if (x->split != y->split) return x->split < y->split ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

static void find_names(piece *p, const sw_gguf_names *names)
{
    for (int64_t i = 0; i < names->n && !p->name; i++)
        if (!strcmp(names->names[i].gguf, p->t->name)) p->name = &names->names[i];
    for (p->n_names = 1; p->name && p->name + p->n_names < names->names + names->n &&
                         !strcmp(p->name[p->n_names].gguf, p->t->name);
         p->n_names++) {
    }
}

static sw_block_type type_of(const piece *p, const sw_gguf_options *o)
{
    const sw_block_type asked = !p->name ? SW_GGUF_AS_STORED
                                : p->name->is_table ? o->embed_type
                                : p->name->is_linear ? o->type : SW_GGUF_AS_STORED;

    return asked == SW_GGUF_AS_STORED || asked == p->t->type ? p->t->type
                                                             : sw_gguf_export_type(p->name, o);
}

/* "blk.0.attn_q.scale" says how the blocks of "blk.0.attn_q.weight" are read, and those alone. */
static bool is_beside(const piece *p, const piece *weight)
{
    const char *name = weight->t->name;
    const size_t n = strlen(name) - strlen("weight");

    return !p->name && weight->name && !strcmp(name + n, "weight") &&
           !strncmp(p->t->name, name, n) &&
           (!strcmp(p->t->name + n, "scale") || !strcmp(p->t->name + n, "input_scale"));
}

static sw_code find_pieces(again *a, sw_err *err)
{
    sw_code rc;

    a->n = sw_gguf_count(a->g);
    if ((rc = SW_MEM_GET(&a->pieces, a->n, "tensors of a GGUF", err)) != SW_OK) return rc;
    for (int64_t i = 0; i < a->n; i++) {
        a->pieces[i].t = sw_gguf_at(a->g, i);
        find_names(&a->pieces[i], a->names);
        a->pieces[i].type = type_of(&a->pieces[i], a->o);
    }
    for (int64_t i = 0; i < a->n; i++)
        for (int64_t k = 0; k < a->n && !a->pieces[i].name && !a->pieces[i].is_dropped; k++)
            a->pieces[i].is_dropped = is_beside(&a->pieces[i], &a->pieces[k]) &&
                                      a->pieces[k].type != a->pieces[k].t->type;
    if (a->n) qsort(a->pieces, (size_t)a->n, sizeof *a->pieces, compare_places);
    return SW_OK;
}

static sw_code declare(sw_gguf_writer *w, sw_gguf_report *report, const again *a, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < a->n && rc == SW_OK; i++) {
        const piece *p = &a->pieces[i];

        if (p->is_dropped) continue;
        if (p->type != p->t->type && p->name->is_linear && p->type != a->o->type)
            report->n_fallback += p->n_names;
        for (int64_t k = 0; k < p->n_names && rc == SW_OK && p->type != p->t->type; k++)
            if (!a->o->may_requantize)
                rc = sw_gguf_export_check(a->source, p->name + k, p->type, p->type, err);
        if (rc == SW_OK)
            rc = sw_gguf_declare(w, p->t->name, p->type, p->t->n_dims, p->t->shape, err);
    }
    return rc;
}

static sw_code put_piece(sw_gguf_writer *w, sw_gguf_report *report, const again *a, const piece *p,
                         sw_err *err)
{
    sw_code rc = SW_OK;

    if (p->is_dropped) return SW_OK;
    if (p->type == p->t->type) {
        report->n_exact += p->n_names;
        rc = sw_gguf_put(w, p->t->name, 0, p->t->data, (size_t)p->t->size_bytes, err);
        sw_gguf_forget(a->g);
        return rc;
    }
    for (int64_t k = 0; k < p->n_names && rc == SW_OK; k++)
        rc = sw_gguf_export_put(w, report, a->source, p->name + k, p->type, a->o, err);
    return rc;
}

/* The types that a report names. */
static void find_types(sw_gguf_report *report, const again *a)
{
    uint64_t elems[SW_BLOCK_TYPE_COUNT] = {0};
    int most = 0;

    for (int64_t i = 0; i < a->n; i++) {
        const piece *p = &a->pieces[i];
        const sw_block_size *size = &sw_block_sizes[p->t->type];

        if (!strcmp(p->t->name, "token_embd.weight")) report->types[1] = p->type;
        if (p->name && p->name->is_linear)
            elems[p->type] += p->t->size_bytes / (uint64_t)size->bytes * (uint64_t)size->elems;
    }
    for (int t = 0; t < SW_BLOCK_TYPE_COUNT; t++)
        if (elems[t] > elems[most]) most = t;
    report->types[0] = (sw_block_type)most;
}

sw_code sw_gguf_write_again(sw_gguf_writer *w, sw_gguf_report *report, const sw_checkpoint *source,
                            const sw_gguf_names *names, const sw_gguf_options *o, sw_err *err)
{
    again a = {.source = source, .names = names, .o = o};
    sw_code rc = sw_gguf_open(&a.g, source->dir, err);

    if (rc != SW_OK || (rc = find_pieces(&a, err)) != SW_OK ||
        (rc = put_keys(w, &a, err)) != SW_OK || (rc = declare(w, report, &a, err)) != SW_OK ||
        (rc = sw_gguf_begin(w, err)) != SW_OK)
        goto done;
    report->data_bytes = sw_gguf_writer_data_bytes(w);
    find_types(report, &a);
    for (int64_t i = 0; i < a.n && rc == SW_OK; i++) {
        sw_progress_step(o->progress, "write", i, a.n);
        sw_progress_item(o->progress, a.pieces[i].t->name);
        if ((rc = sw_progress_check(o->progress, err)) == SW_OK)
            rc = put_piece(w, report, &a, &a.pieces[i], err);
    }
    if (rc == SW_OK) rc = sw_gguf_commit(w, err);
done:
    sw_mem_put(a.pieces);
    sw_gguf_close(a.g);
    return rc;
}
