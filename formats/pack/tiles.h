/* tiles.h - Swage tiles: the one physical order that every kernel of ours reads.
 *
 * A weight [n_out, k_in] is cut into tiles of 64 output channels x 64 inputs. Tiles
 * lie in row-major order of (n_tile, k_tile); both counts are rounded up, and n_out and k_in
 * record how much is padding. Padding inputs of a real channel hold the zero point of its last
 * group (value 0); padding channels hold code and zero point 2^(bits-1) and scale 0.
 *
 * Inside a tile the order is that of the A operand of mma.sync m16n8k16 (and of
 * register-A wgmma on the transposed product): warp w = 0..3 owns channels 16w..16w+15,
 * lane t = 4g + c (g = 0..7, c = 0..3) owns channels 16w+g and 16w+g+8, and k-step
 * s = 0..3 covers inputs 16s..16s+15, of which the lane owns, in this order,
 *      K(c) = { 2c, 2c+8, 2c+1, 2c+9 }  (+ 16s).
 *
 * 4-bit container, 2048 bytes: byte offset 512w + 16t + 4s holds one little-endian word;
 *   its byte i (i = 0..3) has channel 16w+g   at input K(c)[i] in the low nibble
 *                     and channel 16w+g+8 at the same input   in the high nibble.
 *   So (word >> 4j) & 0x000f000f is the register a_j of the fragment, and 64 consecutive
 *   bytes (c = 0..3) are two whole channel rows, which is what a CPU vector wants.
 * 8-bit container, 4096 bytes: byte offset 2048*(s/2) + 512w + 16t + 8*(s%2) + i holds
 *   channel 16w+g at input K(c)[i], and + 4 + i channel 16w+g+8.
 *
 * Codes of small floats (E2M1 in the 4-bit container, E4M3 and E5M2 in the 8-bit one) are their raw
 * bits; their padding is code 0 everywhere.
 *
 * Scales: one record per (n_tile, group): 64 values of scale_dtype (1, 2 or 4 bytes each); slot
 * 2*(8w+g)+h is channel 16w+g+8h, so that one load of two gives a lane its two channels.
 * Rows that share their scales hold copies. Padding scales are zero bits.
 * Zeros (asymmetric only): one record per (n_tile, group): 64 bytes in the same slot order.
 *
 * Integers of 2 and 3 bits are stored in containers of their own size (narrow.h); in 4 bits,
 * code and zero keep their value.
 */
#ifndef SW_FORMATS_PACK_TILES_H
#define SW_FORMATS_PACK_TILES_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/num/num.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SW_TILE_N 64
#define SW_TILE_K 64
#define SW_TILES_VERSION 2 /* 1 had 2- and 3-bit codes in the 4-bit container */

/* Borrowed view of a tiled weight. */
typedef struct sw_tiles {
    sw_qspec spec;
    int64_t n_out, k_in, n_groups;
    int container_bits;      /* 4 or 8; 2 or 3 as stored, which CPUs and Hopper's kernels read */
    const uint8_t *codes;    /* [n_tiles, k_tiles, tile_bytes] */
    const void *scales;      /* [n_tiles, n_groups, 64] raw bits of spec.scale_dtype */
    const uint8_t *zeros;    /* [n_tiles, n_groups, 64], or NULL when symmetric */
    bool is_marlin;          /* the arrays are in the order of marlin.h instead: for those that
                                say that they take it */
    bool has_usual_scales;   /* sw_tiles_has_usual_scales said so: for kernels that are quicker so;
                                false where nobody has looked */
    bool in_columns;         /* codes on a device are in the order of kernels/cuda/gemm/
                                column_tiles.h: for those that say that they take it */
    bool is_sign_magnitude;  /* codes of 4 bits on a device are as sign_tiles.h there has them */
    bool is_e2m1_spread;     /* codes of E2M1 likewise: e2m1_tiles.h */
    float global_scale;      /* as in sw_qtensor */
    float input_scale;
    const int32_t *outlier_cols;    /* as in sw_qtensor; NULL without any */
    const uint16_t *outlier_values; /* [n_out, spec.n_outliers] F16 */
} sw_tiles;

static inline int64_t sw_tiles_n(int64_t n_out) { return (n_out + SW_TILE_N - 1) / SW_TILE_N; }
static inline int64_t sw_tiles_k(int64_t k_in) { return (k_in + SW_TILE_K - 1) / SW_TILE_K; }
/* The container that every kernel reads, and the one that a checkpoint holds. */
static inline int sw_tiles_container_bits(const sw_num *num) { return num->bits <= 4 ? 4 : 8; }
static inline int sw_tiles_stored_bits(const sw_num *num)
{
    return num->bits < 4 ? num->bits : sw_tiles_container_bits(num);
}
static inline int64_t sw_tile_bytes(int container_bits)
{
    return (int64_t)SW_TILE_N * SW_TILE_K * container_bits / 8;
}

/* Byte offset inside a tile of the code of channel n, input k (both 0..63). For the 4-bit
 * container *shift is 0 or 4; for the 8-bit one it is 0. */
int64_t sw_tile_offset(int container_bits, int n, int k, int *shift);
/* Slot 0..63 of channel n in a scale or zero record. */
static inline int sw_tile_slot(int n) { return 2 * (8 * (n / 16) + n % 8) + (n % 16) / 8; }

int64_t sw_tiles_codes_bytes(const sw_num *num, int64_t n_out, int64_t k_in);
int64_t sw_tiles_stored_bytes(const sw_num *num, int64_t n_out, int64_t k_in);
int64_t sw_tiles_scales_bytes(sw_dtype scale_dtype, int64_t n_out, int64_t n_groups);
int64_t sw_tiles_zeros_bytes(int64_t n_out, int64_t n_groups);

/* BF16 scales of any size in [min, end), or 0, in tiles on the host, in Marlin's order too; without
 * a sign. SW_USUAL_*: what a checkpoint has, and what products may shift the exponents of. */
#define SW_USUAL_SCALE_MIN 0x1p-78f
#define SW_USUAL_SCALE_END 0x1p43f
bool sw_tiles_scales_within(const sw_tiles *tiles, float min, float end);
/* Of int4 with BF16 scales, whether these are usual; false of all others. */
bool sw_tiles_has_usual_scales(const sw_tiles *tiles);

/* q into caller-allocated buffers of the sizes above (zeros may be NULL when symmetric).
 * SW_E_UNSUPPORTED: q->g_idx is set, group_elems is no multiple of 16, or scale_dtype is none of
 * F32, F16, BF16, F8_E4M3, F8_E8M0. */
sw_code sw_tiles_pack(uint8_t *codes, void *scales, uint8_t *zeros, const sw_qtensor *q,
                      sw_err *err) SW_MUST_USE;
/* The same with codes in the stored container. */
sw_code sw_tiles_pack_stored(uint8_t *codes, void *scales, uint8_t *zeros, const sw_qtensor *q,
                             sw_err *err) SW_MUST_USE;
/* dst [n_tiles, k_tiles, 2048] = the codes of tiles in a container of 2 or 3 bits in that of 4. */
void sw_tiles_widen(uint8_t *dst, const sw_tiles *tiles);
/* The exact inverse of both into an allocated q of the same spec and shape. */
sw_code sw_tiles_unpack(sw_qtensor *q, const sw_tiles *tiles, sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
