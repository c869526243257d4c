/* tiles.c - see tiles.h. Every tile is staged as 64 x 64 plain codes, so that the ragged edge
 * is handled in one place and the inner loops see whole tiles only. */
#include "formats/pack/tiles.h"

#include <string.h>

#include "formats/base/size.h"
#include "formats/pack/narrow.h"

int64_t sw_tile_offset(int container_bits, int n, int k, int *shift)
{
    int warp = n / 16, upper = (n % 16) / 8, step = k / 16, in_step = k % 16;
    int lane = 4 * (n % 8) + (in_step % 8) / 2;
    int i = 2 * (in_step % 2) + in_step / 8;

    if (container_bits == 4) {
        *shift = 4 * upper;
        return 512 * warp + 16 * lane + 4 * step + i;
    }
    *shift = 0;
    return 2048 * (step / 2) + 512 * warp + 16 * lane + 8 * (step % 2) + 4 * upper + i;
}

int64_t sw_tiles_codes_bytes(const sw_num *num, int64_t n_out, int64_t k_in)
{
    return sw_tiles_n(n_out) * sw_tiles_k(k_in) * sw_tile_bytes(sw_tiles_container_bits(num));
}

int64_t sw_tiles_stored_bytes(const sw_num *num, int64_t n_out, int64_t k_in)
{
    return sw_tiles_n(n_out) * sw_tiles_k(k_in) * sw_tile_bytes(sw_tiles_stored_bits(num));
}

int64_t sw_tiles_scales_bytes(sw_dtype scale_dtype, int64_t n_out, int64_t n_groups)
{
    return sw_tiles_n(n_out) * n_groups * SW_TILE_N * sw_dtype_bits(scale_dtype) / 8;
}

int64_t sw_tiles_zeros_bytes(int64_t n_out, int64_t n_groups)
{
    return sw_tiles_n(n_out) * n_groups * SW_TILE_N;
}

/* The upper half of v, whose lower one is zeros. */
static uint16_t bf16_bits(float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof bits);
    return (uint16_t)(bits >> 16);
}

bool sw_tiles_scales_within(const sw_tiles *tiles, float min, float end)
{
    const uint16_t *scales = tiles->scales;
    const int64_t n = sw_tiles_n(tiles->n_out) * tiles->n_groups * SW_TILE_N;
    uint16_t least = UINT16_MAX, most = 0; /* sizes less one, so that 0 is beyond all others */

    for (int64_t i = 0; i < n; i++) {
        const uint16_t size = scales[i] & 0x7fff, before = (uint16_t)(size - 1);

        most = size > most ? size : most;
        least = before < least ? before : least;
    }
    return most < bf16_bits(end) && least + 1 >= bf16_bits(min);
}

bool sw_tiles_has_usual_scales(const sw_tiles *tiles)
{
    return tiles->spec.num == &sw_nums[SW_NUM_INT4] && tiles->spec.scale_dtype == SW_DTYPE_BF16 &&
           sw_tiles_scales_within(tiles, SW_USUAL_SCALE_MIN, SW_USUAL_SCALE_END);
}

typedef uint8_t staged_tile[SW_TILE_N][SW_TILE_K];

/* The columns K(c) of one lane in one k-step, as the header draws them. */
static const int lane_columns[4][4] = {
    {0, 8, 1, 9}, {2, 10, 3, 11}, {4, 12, 5, 13}, {6, 14, 7, 15}};

/* What a padding position holds, so that it counts as 0. */
static uint8_t padding_of(const sw_qtensor *q, int64_t n, int64_t k)
{
    int64_t group = q->spec.group_elems ? k / q->spec.group_elems : 0;

    if (q->spec.num->kind == SW_NUM_FLOAT) return 0;
    if (!q->zeros || n >= q->n_out) return (uint8_t)q->spec.num->sym_zero;
    return q->zeros[n * q->n_groups + sw_min_i64(group, q->n_groups - 1)];
}

static void stage(staged_tile tile, const sw_qtensor *q, int64_t n0, int64_t k0)
{
    int64_t k_here = sw_min_i64(SW_TILE_K, q->k_in - k0);

    for (int64_t n = 0; n < SW_TILE_N; n++) {
        int64_t k_valid = n0 + n < q->n_out ? k_here : 0;
        if (k_valid) memcpy(tile[n], q->codes + (n0 + n) * q->k_in + k0, (size_t)k_valid);
        for (int64_t k = k_valid; k < SW_TILE_K; k++) tile[n][k] = padding_of(q, n0 + n, k0 + k);
    }
}

static void unstage(sw_qtensor *q, staged_tile tile, int64_t n0, int64_t k0)
{
    int64_t k_here = sw_min_i64(SW_TILE_K, q->k_in - k0);
    int64_t n_here = sw_min_i64(SW_TILE_N, q->n_out - n0);

    for (int64_t n = 0; n < n_here; n++)
        memcpy(q->codes + (n0 + n) * q->k_in + k0, tile[n], (size_t)k_here);
}

static void tile_encode_4(uint8_t *dst, staged_tile tile)
{
    for (int warp = 0; warp < 4; warp++)
        for (int lane = 0; lane < 32; lane++) {
            const uint8_t *low = tile[16 * warp + lane / 4], *high = low + 8 * SW_TILE_K;
            for (int step = 0; step < 4; step++)
                for (int i = 0; i < 4; i++) {
                    int k = 16 * step + lane_columns[lane % 4][i];
                    *dst++ = (uint8_t)((low[k] & 15) | (high[k] << 4));
                }
        }
}

static void tile_decode_4(staged_tile tile, const uint8_t *src)
{
    for (int warp = 0; warp < 4; warp++)
        for (int lane = 0; lane < 32; lane++) {
            uint8_t *low = tile[16 * warp + lane / 4], *high = low + 8 * SW_TILE_K;
            for (int step = 0; step < 4; step++)
                for (int i = 0; i < 4; i++) {
                    int k = 16 * step + lane_columns[lane % 4][i];
                    low[k] = *src & 15;
                    high[k] = (uint8_t)(*src++ >> 4);
                }
        }
}

static void tile_encode_narrow(uint8_t *dst, staged_tile tile, int bits)
{
    uint8_t wide[SW_TILE_WIDE_BYTES];

    tile_encode_4(wide, tile);
    sw_tile_narrow(dst, wide, bits);
}

static void tile_decode_narrow(staged_tile tile, const uint8_t *src, int bits)
{
    uint8_t wide[SW_TILE_WIDE_BYTES];

    sw_tile_widen(wide, src, bits);
    tile_decode_4(tile, wide);
}

static void tile_encode_8(uint8_t *dst, staged_tile tile)
{
    for (int half = 0; half < 2; half++)
        for (int warp = 0; warp < 4; warp++)
            for (int lane = 0; lane < 32; lane++) {
                const uint8_t *low = tile[16 * warp + lane / 4], *high = low + 8 * SW_TILE_K;
                for (int step = 2 * half; step < 2 * half + 2; step++, dst += 8)
                    for (int i = 0; i < 4; i++) {
                        int k = 16 * step + lane_columns[lane % 4][i];
                        dst[i] = low[k];
                        dst[4 + i] = high[k];
                    }
            }
}

static void tile_decode_8(staged_tile tile, const uint8_t *src)
{
    for (int half = 0; half < 2; half++)
        for (int warp = 0; warp < 4; warp++)
            for (int lane = 0; lane < 32; lane++) {
                uint8_t *low = tile[16 * warp + lane / 4], *high = low + 8 * SW_TILE_K;
                for (int step = 2 * half; step < 2 * half + 2; step++, src += 8)
                    for (int i = 0; i < 4; i++) {
                        int k = 16 * step + lane_columns[lane % 4][i];
                        low[k] = src[i];
                        high[k] = src[4 + i];
                    }
            }
}

static void tile_encode(uint8_t *dst, staged_tile tile, int bits)
{
    if (bits < 4) tile_encode_narrow(dst, tile, bits);
    else (bits == 4 ? tile_encode_4 : tile_encode_8)(dst, tile);
}

static void tile_decode(staged_tile tile, const uint8_t *src, int bits)
{
    if (bits < 4) tile_decode_narrow(tile, src, bits);
    else (bits == 4 ? tile_decode_4 : tile_decode_8)(tile, src);
}

static sw_code check_spec(const sw_qspec *spec, sw_err *err)
{
    static const sw_dtype held[] = {SW_DTYPE_F32, SW_DTYPE_F16, SW_DTYPE_BF16, SW_DTYPE_F8_E4M3,
                                    SW_DTYPE_F8_E8M0};

    if (spec->group_elems % 16)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "Swage tiles need groups of a multiple of 16, not "
                       "%lld", (long long)spec->group_elems);
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        if (spec->scale_dtype == held[i]) return SW_OK;
    return SW_FAIL(err, SW_E_UNSUPPORTED, "Swage tiles hold F32, F16, BF16, F8_E4M3 or F8_E8M0 "
                   "scales, not %s", sw_dtype_name(spec->scale_dtype));
}

/* The scale record of one (n_tile, group). Padding stays zero bits, which E8M0 could not say. */
static sw_code pack_scales(uint8_t *record, const sw_qtensor *q, int64_t tile, int64_t group,
                           sw_err *err)
{
    int64_t n0 = tile * SW_TILE_N, n_here = sw_min_i64(SW_TILE_N, q->n_out - n0);
    size_t bytes = (size_t)sw_dtype_bits(q->spec.scale_dtype) / 8;
    sw_code rc = SW_OK;

    memset(record, 0, SW_TILE_N * bytes);
    for (int n = 0; n < n_here && rc == SW_OK; n++)
        rc = sw_float_encode_n(record + (size_t)sw_tile_slot(n) * bytes, q->spec.scale_dtype,
                               &q->scales[(n0 + n) * q->n_groups + group], 1, err);
    return rc;
}

static void pack_zeros(uint8_t *record, const sw_qtensor *q, int64_t tile, int64_t group)
{
    for (int n = 0; n < SW_TILE_N; n++) {
        int64_t row = tile * SW_TILE_N + n;
        record[sw_tile_slot(n)] = row < q->n_out ? q->zeros[row * q->n_groups + group]
                                                 : (uint8_t)q->spec.num->sym_zero;
    }
}

static sw_code pack_records(uint8_t *scales, uint8_t *zeros, const sw_qtensor *q, sw_err *err)
{
    int64_t record = SW_TILE_N * sw_dtype_bits(q->spec.scale_dtype) / 8;
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < sw_tiles_n(q->n_out) * q->n_groups && rc == SW_OK; i++) {
        int64_t tile = i / q->n_groups, group = i % q->n_groups;
        rc = pack_scales(scales + i * record, q, tile, group, err);
        if (q->zeros) pack_zeros(zeros + i * SW_TILE_N, q, tile, group);
    }
    return rc;
}

static sw_code pack(uint8_t *codes, void *scales, uint8_t *zeros, const sw_qtensor *q,
                    int container_bits, sw_err *err)
{
    staged_tile tile;
    sw_code rc;

    if (q->g_idx)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "Swage tiles hold groups of neighbouring columns, "
                       "and this weight has a g_idx that scatters them");
    if ((rc = check_spec(&q->spec, err)) != SW_OK) return rc;
    for (int64_t n0 = 0; n0 < q->n_out; n0 += SW_TILE_N)
        for (int64_t k0 = 0; k0 < q->k_in; k0 += SW_TILE_K) {
            stage(tile, q, n0, k0);
            tile_encode(codes, tile, container_bits);
            codes += sw_tile_bytes(container_bits);
        }
    return pack_records(scales, zeros, q, err);
}

sw_code sw_tiles_pack(uint8_t *codes, void *scales, uint8_t *zeros, const sw_qtensor *q,
                      sw_err *err)
{
    return pack(codes, scales, zeros, q, sw_tiles_container_bits(q->spec.num), err);
}

sw_code sw_tiles_pack_stored(uint8_t *codes, void *scales, uint8_t *zeros, const sw_qtensor *q,
                             sw_err *err)
{
    return pack(codes, scales, zeros, q, sw_tiles_stored_bits(q->spec.num), err);
}

void sw_tiles_widen(uint8_t *dst, const sw_tiles *tiles)
{
    int64_t n_tiles = sw_tiles_n(tiles->n_out) * sw_tiles_k(tiles->k_in);

    for (int64_t i = 0; i < n_tiles; i++)
        sw_tile_widen(dst + i * SW_TILE_WIDE_BYTES,
                      tiles->codes + i * sw_tile_bytes(tiles->container_bits),
                      tiles->container_bits);
}

static sw_code unpack_record(sw_qtensor *q, const sw_tiles *tiles, int64_t tile, int64_t group,
                             sw_err *err)
{
    int64_t n0 = tile * SW_TILE_N, n_here = sw_min_i64(SW_TILE_N, q->n_out - n0);
    int64_t at = (tile * q->n_groups + group) * SW_TILE_N;
    float scales[SW_TILE_N];
    sw_code rc = sw_float_decode_n(
        scales, (const uint8_t *)tiles->scales + at * sw_dtype_bits(q->spec.scale_dtype) / 8,
        q->spec.scale_dtype, SW_TILE_N, err);

    for (int n = 0; n < n_here && rc == SW_OK; n++) {
        int64_t to = (n0 + n) * q->n_groups + group;
        q->scales[to] = scales[sw_tile_slot(n)];
        if (q->zeros) q->zeros[to] = tiles->zeros[at + sw_tile_slot(n)];
    }
    return rc;
}

sw_code sw_tiles_unpack(sw_qtensor *q, const sw_tiles *tiles, sw_err *err)
{
    const uint8_t *codes = tiles->codes;
    staged_tile tile;
    sw_code rc;

    if ((rc = check_spec(&tiles->spec, err)) != SW_OK) return rc;
    if (q->n_out != tiles->n_out || q->k_in != tiles->k_in || q->n_groups != tiles->n_groups ||
        q->spec.num != tiles->spec.num || q->spec.scale_dtype != tiles->spec.scale_dtype ||
        q->g_idx || !q->zeros != !tiles->zeros ||
        (tiles->container_bits != sw_tiles_container_bits(tiles->spec.num) &&
         tiles->container_bits != sw_tiles_stored_bits(tiles->spec.num)))
        return SW_FAIL(err, SW_E_BUG, "tiles unpacked into a weight of another scheme or shape");
    for (int64_t n0 = 0; n0 < q->n_out; n0 += SW_TILE_N)
        for (int64_t k0 = 0; k0 < q->k_in; k0 += SW_TILE_K) {
            tile_decode(tile, codes, tiles->container_bits);
            unstage(q, tile, n0, k0);
            codes += sw_tile_bytes(tiles->container_bits);
        }
    for (int64_t i = 0; i < sw_tiles_n(q->n_out) * q->n_groups && rc == SW_OK; i++)
        rc = unpack_record(q, tiles, i / q->n_groups, i % q->n_groups, err);
    if (rc != SW_OK) return rc;
    q->global_scale = tiles->global_scale;
    q->input_scale = tiles->input_scale;
    return SW_OK;
}

void sw_tile_narrow(uint8_t *dst, const uint8_t *wide, int bits)
{
    const int warp = SW_TILE_WARP_BYTES;

    for (int i = 0; i < 2 * warp; i++)
        dst[i] = (uint8_t)((wide[i] & 0x33) | (wide[i + 2 * warp] & 0x33) << 2);
    for (int i = 0; bits == 3 && i < warp; i++) {
        int third = 0;

        for (int w = 0; w < 4; w++) third |= (wide[warp * w + i] >> 2 & 0x11) << w;
        dst[2 * warp + i] = (uint8_t)third;
    }
}
