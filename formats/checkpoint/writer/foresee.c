/* foresee.c - the size of a checkpoint before any of it is written: what the writer would declare,
 * and the texts that it would put beside, made and counted.
 */
#include <string.h>

#include "formats/checkpoint/writer/writer_internal.h"

static sw_code add_texts(uint64_t *sum, const sw_ckpt_writer *w, sw_err *err)
{
    char *config = NULL, *side = NULL, *tokenizer = NULL;
    size_t n_bytes = 0;
    sw_err note = {0};
    sw_code rc = sw_writer_make_configs(&config, &side, w, err);

    if (rc == SW_OK) *sum += strlen(config) + (side ? strlen(side) : 0);
    if (rc == SW_OK) rc = sw_writer_make_tokenizer(&tokenizer, &n_bytes, w, &note, err);
    if (rc == SW_OK && tokenizer) *sum += strlen(tokenizer);
    sw_mem_put(config);
    sw_mem_put(side);
    sw_mem_put(tokenizer);
    return rc;
}

sw_code sw_ckpt_foresee(uint64_t *out, const sw_checkpoint *source, const sw_dialect *dialect,
                        const sw_qconfig *qconfig, const sw_ckpt_linear *linears,
                        int64_t n_linears, uint64_t shard_bytes, sw_err *err)
{
    sw_ckpt_writer *w = NULL;
    uint64_t sum = 0;
    sw_code rc;

    if (source->is_file)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: the size of what is made of a GGUF is not known "
                       "beforehand; make a directory of it first, with swage convert --to bf16",
                       source->dir);
    rc = sw_writer_describe(&w, source, dialect, qconfig, linears, n_linears, shard_bytes, err);
    if (rc == SW_OK) rc = sw_writer_declare(w, ".", err);
    if (rc == SW_OK) rc = sw_st_writer_foresee(&sum, w->st, err);
    if (rc == SW_OK) rc = add_texts(&sum, w, err);
    for (int64_t i = 0; rc == SW_OK && i < w->listing.n_entries; i++)
        if (w->listing.entries[i].role == SW_DIR_SIDE) sum += w->listing.entries[i].size_bytes;
    sw_ckpt_writer_free(w);
    if (rc == SW_OK) *out = sum;
    return rc;
}
