/* gguf_entries.c - see gguf_entries.h. */
#include "formats/gguf/gguf_entries.h"

#include <stdio.h>

sw_code sw_gguf_entry(sw_gguf_name **out, sw_gguf_builder *b, const char *hf, const char *hf_leaf,
                      const char *gguf, const char *leaf, int64_t n_rows, int64_t n_elems)
{
    char *hf_text = NULL, *text = NULL;
    sw_gguf_name *name;
    sw_code rc;

    *out = NULL;
    if (!b->out->names) {
        b->out->n++;
        return SW_OK;
    }
    if ((rc = sw_arena_print(&hf_text, b->arena, b->err, "%s%s%s", hf, hf_leaf ? "." : "",
                             hf_leaf ? hf_leaf : "")) != SW_OK ||
        (rc = sw_arena_print(&text, b->arena, b->err, "%s%s%s", gguf, leaf ? "." : "",
                             leaf ? leaf : "")) != SW_OK)
        return rc;
    name = &b->out->names[b->out->n++];
    *name = (sw_gguf_name){.hf = hf_text, .gguf = text, .n_dims = 2, .shape = {n_rows, n_elems},
                           .all_rows = n_rows, .row_elems = n_elems, .n_rows = n_rows,
                           .file_elems = n_elems, .file_dims = 2,
                           .file_shape = {n_rows, n_elems}, .n_parts = 1, .layer = b->layer,
                           .expert = -1, .slot = SW_SLOT_COUNT};
    *out = name;
    return SW_OK;
}

sw_code sw_gguf_entry_vector(sw_gguf_name **out, sw_gguf_builder *b, const char *hf,
                             const char *hf_leaf, const char *gguf, const char *leaf, int64_t n)
{
    sw_code rc = sw_gguf_entry(out, b, hf, hf_leaf, gguf, leaf, 1, n);

    if (rc != SW_OK || !*out) return rc;
    (*out)->n_dims = (*out)->file_dims = 1;
    (*out)->shape[0] = (*out)->file_shape[0] = n;
    return SW_OK;
}

void sw_gguf_entry_by_elements(sw_gguf_name *name)
{
    name->all_rows = name->n_rows = name->row_elems;
    name->row_elems = name->file_elems = 1;
}

void sw_gguf_entry_stack(sw_gguf_name *name, int64_t i, int64_t n)
{
    for (int32_t d = name->file_dims; d > 0; d--) name->file_shape[d] = name->file_shape[d - 1];
    name->file_shape[0] = n;
    name->file_dims++;
    name->first = i * name->n_rows;
}

sw_code sw_gguf_entry_order(sw_gguf_name *name, sw_gguf_builder *b, sw_gguf_order_of of)
{
    of.n_rows = name->n_rows;
    return sw_gguf_order_rows(&name->rows, &b->orders, &of, b->arena, b->err);
}

sw_code sw_gguf_entry_refuse(const sw_gguf_builder *b)
{
    return SW_FAIL(b->err, SW_E_UNSUPPORTED, "%s has tensors that no GGUF has", b->m->arch->name);
}

sw_code sw_gguf_entry_paths(char hf[256], char gguf[64], const sw_gguf_builder *b, sw_slot slot,
                            int64_t expert)
{
    const char *stem = sw_gguf_stem_of(b->arch, slot);

    if (!stem || !sw_model_slot_path(hf, b->m, b->layer, slot, expert))
        return sw_gguf_entry_refuse(b);
    (void)snprintf(gguf, 64, "blk.%lld.%s%s", (long long)b->layer, stem,
                   expert < 0 ? "" : "_exps");
    return SW_OK;
}
