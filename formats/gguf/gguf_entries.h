/* gguf_entries.h - making the entries of gguf_names.h one by one, for what walks a model's
 * programs; inside gguf/. That walks twice: entries are counted first, and then filled in.
 */
#ifndef SW_FORMATS_GGUF_GGUF_ENTRIES_H
#define SW_FORMATS_GGUF_GGUF_ENTRIES_H

#include "formats/gguf/gguf_names.h"
#include "formats/gguf/gguf_rows.h"

typedef struct sw_gguf_builder {
    const sw_model *m;
    const sw_gguf_arch *arch;
    sw_gguf_names *out; /* names are NULL while entries are counted */
    sw_arena *arena;
    sw_gguf_orders orders;
    sw_err *err;
    int64_t layer;      /* -1: outside of the blocks */
} sw_gguf_builder;

/* Add an entry for a tensor [n_rows, n_elems] that is its own tensor in the file; *out is NULL
 * while entries are counted. The names are hf.hf_leaf and gguf.leaf, or without a leaf that is
 * NULL. */
sw_code sw_gguf_entry(sw_gguf_name **out, sw_gguf_builder *b, const char *hf, const char *hf_leaf,
                      const char *gguf, const char *leaf, int64_t n_rows,
                      int64_t n_elems) SW_MUST_USE;
/* The same for a vector. */
sw_code sw_gguf_entry_vector(sw_gguf_name **out, sw_gguf_builder *b, const char *hf,
                             const char *hf_leaf, const char *gguf, const char *leaf,
                             int64_t n) SW_MUST_USE;
/* Make each element of a vector a row, so that elements can be put in another order. */
void sw_gguf_entry_by_elements(sw_gguf_name *name);
/* Say that this is the i-th of n tensors, which are one tensor in the file. */
void sw_gguf_entry_stack(sw_gguf_name *name, int64_t i, int64_t n);
/* Set the order of an entry's rows. */
sw_code sw_gguf_entry_order(sw_gguf_name *name, sw_gguf_builder *b,
                            sw_gguf_order_of of) SW_MUST_USE;
/* What a slot of the layer is called in the model and in the file, without a leaf; expert -1: not
 * one of several. SW_E_UNSUPPORTED: as sw_gguf_entry_refuse. */
sw_code sw_gguf_entry_paths(char hf[256], char gguf[64], const sw_gguf_builder *b, sw_slot slot,
                            int64_t expert) SW_MUST_USE;
/* SW_E_UNSUPPORTED: the model has tensors that GGUF has no names for. */
sw_code sw_gguf_entry_refuse(const sw_gguf_builder *b) SW_MUST_USE;

#endif
