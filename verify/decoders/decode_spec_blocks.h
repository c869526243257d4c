/* decode_spec_blocks.h - what the two files share that read blocks of GGUF a second time. */
#ifndef SW_VERIFY_DECODERS_DECODE_SPEC_BLOCKS_H
#define SW_VERIFY_DECODERS_DECODE_SPEC_BLOCKS_H

#include <string.h>

#include "verify/decoders/decode_spec_parts.h"

#define SW_SPEC_BLOCK_ELEMS_MAX 256
#define SW_SPEC_RUNS_MAX 16
#define SW_SPEC_POINTS_BYTES_MAX (2048 * 8)

/* One block taken apart; what runs have in common stands once a run. */
typedef struct sw_spec_block {
    uint8_t codes[SW_SPEC_BLOCK_ELEMS_MAX];
    float scales[SW_SPEC_RUNS_MAX], offsets[SW_SPEC_RUNS_MAX];
    const uint8_t *points; /* of the type's lattice, n_elems digits each */
} sw_spec_block;

/* A set of points of n_elems digits below n_levels. */
typedef struct sw_spec_block_grid {
    const uint64_t *set;
    int n_levels, n_elems;
} sw_spec_block_grid;

extern const sw_spec_block_grid sw_spec_iq1, sw_spec_iq2_xxs, sw_spec_iq2_xs, sw_spec_iq2_s,
    sw_spec_iq3_xxs, sw_spec_iq3_s;
/* All points of a set by index; at most SW_SPEC_POINTS_BYTES_MAX. */
void sw_spec_block_grid_points(uint8_t *points, const sw_spec_block_grid *lattice);

float sw_spec_half(const unsigned char *b); /* an F16 */

/* With `points` set. */
void sw_spec_take_iq1_s(sw_spec_block *p, const unsigned char *b);
void sw_spec_take_iq1_m(sw_spec_block *p, const unsigned char *b);
void sw_spec_take_iq2_xxs(sw_spec_block *p, const unsigned char *b);
void sw_spec_take_iq2_xs(sw_spec_block *p, const unsigned char *b);
void sw_spec_take_iq2_s(sw_spec_block *p, const unsigned char *b);
void sw_spec_take_iq3_xxs(sw_spec_block *p, const unsigned char *b);
void sw_spec_take_iq3_s(sw_spec_block *p, const unsigned char *b);

#endif
