/* gguf_names.h - which tensor of a GGUF is which of a model, and how its values differ.
 *
 * Made from a model description by walking its block programs, so that reading and writing agree
 * by construction. An entry is a piece: rows of one tensor of the model that lie one behind the
 * other in one tensor of the file. Most tensors are one piece. Experts are pieces of one tensor of
 * the file [n_experts, n_out, k_in]; a tensor of the model that the file keeps as two (keys and
 * values of latent attention) has two pieces, neighbours in the list. What may differ:
 *   - the order of rows and of columns, see gguf_rows.h;
 *   - keys of latent attention lie turned: the columns of a head are rows of the file;
 *   - norms stored less one by the model are stored whole, logarithms of decays as -exp of them.
 */
#ifndef SW_FORMATS_GGUF_GGUF_NAMES_H
#define SW_FORMATS_GGUF_GGUF_NAMES_H

#include "formats/base/block_type.h"
#include "formats/gguf/keys/gguf_archs.h"
#include "formats/model/model.h"

typedef enum sw_gguf_value_kind {
    SW_GGUF_SAME,
    SW_GGUF_OFFSET,  /* stored = value + offset */
    SW_GGUF_NEG_EXP  /* stored = -exp(value) */
} sw_gguf_value_kind;

typedef struct sw_gguf_name {
    const char *hf;         /* "model.layers.3.self_attn.q_proj.weight" */
    const char *gguf;       /* "blk.3.attn_q.weight" */
    int32_t n_dims;
    int64_t shape[3];       /* of the model's tensor ... */
    int64_t all_rows, row_elems; /* ... and as rows */
    int32_t file_dims;
    int64_t file_shape[4];  /* of the file's tensor, outermost first */
    int64_t first;          /* row of the file's tensor where the piece begins ... */
    int64_t n_rows, file_elems; /* ... its rows and their elements in the file */
    const int32_t *rows;    /* [n_rows] the model's row in each; NULL: from model_first on */
    int64_t model_first;
    const int32_t *cols;    /* [row_elems] the model's column in each; NULL: as they are */
    int64_t cols_run;       /* they move in runs of so many */
    int64_t turned_stride;  /* not 0: row i, column c of the piece is the model's row
                             * i / row_elems * turned_stride + c, column i % row_elems */
    sw_gguf_value_kind kind;
    double offset;
    int32_t part, n_parts;  /* pieces of this tensor of the model */
    int64_t layer, expert;  /* -1: none; of a linear as sw_stored_weight has it: */
    sw_slot slot;           /* SW_SLOT_COUNT: not in a block */
    bool is_linear;         /* in a block, so that it may be written quantized */
    bool is_table;          /* embedding or head */
    sw_block_type floats;   /* of SW_SLOT_KV_B, which stays in the floats of the model */
} sw_gguf_name;

typedef struct sw_gguf_names {
    sw_gguf_name *names; /* pieces of one tensor, of the model or the file, are neighbours */
    int64_t n;
} sw_gguf_names;

/* Taken from the arena. SW_E_UNSUPPORTED: the model has a tensor that GGUF has no name for. */
sw_code sw_gguf_names_new(sw_gguf_names *out, const sw_model *m, const sw_gguf_arch *arch,
                          sw_arena *arena, sw_err *err) SW_MUST_USE;

/* The model's row in row i of a piece that is not turned. */
int64_t sw_gguf_model_row(const sw_gguf_name *name, int64_t i);
/* true when runs of columns are whole blocks of the type, so that rows of blocks can be put in
 * order without reading them. */
bool sw_gguf_moves_blocks(const sw_gguf_name *name, sw_block_type type);
/* dst = the elements (or blocks) of a row in the file's order, or in the model's. Not in place. */
void sw_gguf_move_blocks(void *dst, const void *src, const sw_gguf_name *name, sw_block_type type,
                         bool to_file);
/* What the file stores of values, and back; in place. */
void sw_gguf_store_values(float *row, const sw_gguf_name *name, int64_t n);
void sw_gguf_read_values(float *row, const sw_gguf_name *name, int64_t n);

#endif
