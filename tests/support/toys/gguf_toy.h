/* gguf_toy.h - a small GGUF of any type of blocks, with random codes and scales that are sound. */
#ifndef SW_TESTS_SUPPORT_TOYS_GGUF_TOY_H
#define SW_TESTS_SUPPORT_TOYS_GGUF_TOY_H

#include "formats/file/gguf.h"

#define GGUF_TOY_WIDTH 256
#define GGUF_TOY_VOCAB 260 /* 256 bytes, then four special tokens */
#define GGUF_TOY_ROWS_MAX 2048

/* A llama of one layer: 256 wide, four heads and two for keys and values, context 128. */
typedef struct gguf_toy {
    sw_block_type linear, embed;
    uint64_t seed;
    int64_t n_rows;       /* of the embedding; 0: GGUF_TOY_VOCAB */
    float norm_step;      /* norms are 1 + k * this; 0: 2^-7, which BF16 holds */
    float factor;         /* of blk.0.attn_q.weight, as NVFP4 has them; 0: none */
    const char *extra;    /* one more tensor, F32 [1] of 0.5; NULL: none */
    void (*keys)(sw_gguf_writer *w, sw_err *err); /* more keys; NULL: none */
} gguf_toy;

/* Fails the running cmocka test on any error. */
void gguf_toy_write(const char *path, const gguf_toy *toy);
/* n elements of a type as random blocks whose scales are small finite numbers. */
void gguf_toy_blocks(uint8_t *out, sw_block_type type, int64_t n, uint64_t *seed);

#endif
