/* ckpt_case.h - a toy model with made-up quantized weights, for tests of whole checkpoints. */
#ifndef SW_TESTS_SUPPORT_CASES_CKPT_CASE_H
#define SW_TESTS_SUPPORT_CASES_CKPT_CASE_H

#include "formats/checkpoint/checkpoint.h"
#include "tests/support/scratch.h"

#define CKPT_LINEARS_MAX 128

typedef struct ckpt_case {
    char dir[SW_PATH_BYTES];
    sw_checkpoint source;
    char paths[CKPT_LINEARS_MAX][256];
    sw_ckpt_linear linears[CKPT_LINEARS_MAX];
    sw_qtensor q[CKPT_LINEARS_MAX];
    int64_t n;
    sw_qconfig config;
} ckpt_case;

/* A copy of tests/golden/arch/<arch> in `s` under the name "source", with side files beside it. */
void ckpt_source(const scratch *s, const char *arch);
/* Open s/source and make a weight for each of its linears. */
void ckpt_open(ckpt_case *c, const scratch *s, const sw_dialect *dialect, int bits,
               bool is_symmetric, int64_t group_elems);
/* And one for its head, which must be no embedding. */
void ckpt_add_head(ckpt_case *c, const sw_dialect *dialect);
/* Replace the made-up weights by the source's own, rounded to nearest. */
void ckpt_round(ckpt_case *c);
void ckpt_close(ckpt_case *c);
/* Write it to s/name; with_reverse puts the linears in falling order. */
sw_code ckpt_write(ckpt_case *c, const scratch *s, const char *name, const sw_dialect *dialect,
                   bool may_replace, uint64_t shard_bytes, bool with_reverse, sw_err *err);

/* Rewrite s/dir/model.safetensors, giving each tensor to `edit`, which may change its view (the
 * bytes go to data it owns) or return false to leave it out. */
typedef bool (*ckpt_edit)(void *ctx, const char *name, sw_cview *view);
void ckpt_rewrite(const scratch *s, const char *dir, ckpt_edit edit, void *ctx);

/* Whole file into memory, zero-terminated; freed by sw_mem_put. */
char *ckpt_text(const scratch *s, const char *dir, const char *name, size_t *n_bytes);
bool ckpt_has(const scratch *s, const char *dir, const char *name);
/* Fail the test unless both directories hold the same names with the same bytes. */
void ckpt_assert_same_dirs(const scratch *s, const char *a, const char *b);

#endif
