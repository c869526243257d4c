/* gguf_pieces.c - what the entries of gguf_names.h mean for rows and values. */
#include <math.h>
#include <string.h>

#include "formats/gguf/gguf_names.h"

int64_t sw_gguf_model_row(const sw_gguf_name *name, int64_t i)
{
    return name->rows ? name->rows[i] : name->model_first + i;
}

bool sw_gguf_moves_blocks(const sw_gguf_name *name, sw_block_type type)
{
    return !name->turned_stride &&
           (!name->cols || name->cols_run % sw_block_sizes[type].elems == 0);
}

void sw_gguf_move_blocks(void *dst, const void *src, const sw_gguf_name *name, sw_block_type type,
                         bool to_file)
{
    const int64_t elems = sw_block_sizes[type].elems, bytes = sw_block_sizes[type].bytes;

    if (!name->cols) {
        memcpy(dst, src, (size_t)sw_block_bytes(type, name->row_elems));
        return;
    }
    for (int64_t i = 0; i < name->row_elems / elems; i++) {
        const int64_t model = name->cols[i * elems] / elems;

        memcpy((char *)dst + (to_file ? i : model) * bytes,
               (const char *)src + (to_file ? model : i) * bytes, (size_t)bytes);
    }
}

void sw_gguf_store_values(float *row, const sw_gguf_name *name, int64_t n)
{
    for (int64_t i = 0; i < n && name->kind == SW_GGUF_OFFSET; i++) row[i] += (float)name->offset;
    for (int64_t i = 0; i < n && name->kind == SW_GGUF_NEG_EXP; i++) row[i] = -expf(row[i]);
}

void sw_gguf_read_values(float *row, const sw_gguf_name *name, int64_t n)
{
    for (int64_t i = 0; i < n && name->kind == SW_GGUF_OFFSET; i++) row[i] -= (float)name->offset;
    for (int64_t i = 0; i < n && name->kind == SW_GGUF_NEG_EXP; i++)
        row[i] = (float)log(-(double)row[i]);
}
