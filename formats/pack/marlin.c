/* marlin.c - see marlin.h. One table per width says where the codes of a word come from; packing
 * and unpacking walk it alike. */
#include "formats/pack/marlin.h"

#include <stdbool.h>

#include "formats/base/size.h"

#define LANES 32

/* Of lane 0's first word: channel and input of each code from the low end. */
typedef struct spot {
    uint8_t channel, input;
} spot;

typedef struct order {
    int codes;          /* in a word */
    int words_per_lane; /* in a tile */
    spot spots[8];
} order;

static const order order4 = {
    8, 4, {{0, 0}, {0, 8}, {8, 0}, {8, 8}, {0, 1}, {0, 9}, {8, 1}, {8, 9}}};
static const order order8 = {4, 8, {{0, 0}, {0, 8}, {0, 1}, {0, 9}}};

static const order *order_of(int bits) { return bits == 4 ? &order4 : &order8; }

/* Channel and input of the first code of word `word` of lane t, within its tile. */
static spot base_of(const order *o, int t, int word)
{
    int w = o->codes == 8 ? word : word / 2, h = o->codes == 8 ? 0 : word % 2;
    spot at = {(uint8_t)(16 * w + t / 4 + 8 * h), (uint8_t)(2 * (t % 4))};

    return at;
}

static void pack_tile(uint8_t *words, const uint8_t *codes, const order *o, int64_t k)
{
    int bits = 32 / o->codes;

    for (int t = 0; t < LANES; t++)
        for (int i = 0; i < o->words_per_lane; i++) {
            spot base = base_of(o, t, i);
            const uint8_t *from = codes + base.channel * k + base.input;
            uint32_t word = 0;
            for (int p = 0; p < o->codes; p++)
                word |= (uint32_t)from[o->spots[p].channel * k + o->spots[p].input] << (bits * p);
            sw_store_le32(words + 4 * (t * o->words_per_lane + i), word);
        }
}

static void unpack_tile(uint8_t *codes, const uint8_t *words, const order *o, int64_t k)
{
    int bits = 32 / o->codes;
    uint32_t mask = (1u << bits) - 1u;

    for (int t = 0; t < LANES; t++)
        for (int i = 0; i < o->words_per_lane; i++) {
            spot base = base_of(o, t, i);
            uint8_t *to = codes + base.channel * k + base.input;
            uint32_t word = sw_load_le32(words + 4 * (t * o->words_per_lane + i));
            for (int p = 0; p < o->codes; p++)
                to[o->spots[p].channel * k + o->spots[p].input] =
                    (uint8_t)(word >> (bits * p) & mask);
        }
}

void sw_marlin_pack(void *words, const uint8_t *codes, int bits, int64_t n_out, int64_t k)
{
    int64_t tile_bytes = SW_MARLIN_TILE_K * SW_MARLIN_TILE_N * bits / 8;
    uint8_t *to = words;

    for (int64_t kt = 0; kt < k / SW_MARLIN_TILE_K; kt++)
        for (int64_t nt = 0; nt < n_out / SW_MARLIN_TILE_N; nt++, to += tile_bytes)
            pack_tile(to, codes + nt * SW_MARLIN_TILE_N * k + kt * SW_MARLIN_TILE_K,
                      order_of(bits), k);
}

void sw_marlin_unpack(uint8_t *codes, const void *words, int bits, int64_t n_out, int64_t k)
{
    int64_t tile_bytes = SW_MARLIN_TILE_K * SW_MARLIN_TILE_N * bits / 8;
    const uint8_t *from = words;

    for (int64_t kt = 0; kt < k / SW_MARLIN_TILE_K; kt++)
        for (int64_t nt = 0; nt < n_out / SW_MARLIN_TILE_N; nt++, from += tile_bytes)
            unpack_tile(codes + nt * SW_MARLIN_TILE_N * k + kt * SW_MARLIN_TILE_K, from,
                        order_of(bits), k);
}

int64_t sw_marlin_scale_channel(int64_t at, int is_single)
{
    static const uint8_t single[8] = {0, 1, 8, 9, 16, 17, 24, 25};
    int64_t in_chunk = at % (is_single ? 32 : 64), i = in_chunk / 8, j = in_chunk % 8;

    return at - in_chunk + (is_single ? 2 * i + single[j] : i + 8 * j);
}

/* Channel whose zero point is the at-th code of a row of words. */
static int64_t zero_channel(int64_t at, int bits)
{
    static const uint8_t by8[8] = {0, 2, 4, 6, 1, 3, 5, 7}, by4[4] = {0, 2, 1, 3};

    at = bits == 4 ? at - at % 8 + by8[at % 8] : at - at % 4 + by4[at % 4];
    return sw_marlin_scale_channel(at, false);
}

void sw_marlin_zeros_pack(void *words, const uint8_t *zeros, int bits, int64_t n_out,
                          int64_t n_groups)
{
    int per_word = 32 / bits;

    for (int64_t g = 0; g < n_groups; g++)
        for (int64_t w = 0; w < n_out / per_word; w++) {
            uint32_t word = 0;
            for (int p = 0; p < per_word; p++)
                word |= (uint32_t)zeros[zero_channel(w * per_word + p, bits) * n_groups + g]
                        << (bits * p);
            sw_store_le32((uint8_t *)words + 4 * (g * (n_out / per_word) + w), word);
        }
}

void sw_marlin_zeros_unpack(uint8_t *zeros, const void *words, int bits, int64_t n_out,
                            int64_t n_groups)
{
    int per_word = 32 / bits;
    uint32_t mask = (1u << bits) - 1u;

    for (int64_t g = 0; g < n_groups; g++)
        for (int64_t w = 0; w < n_out / per_word; w++) {
            uint32_t word =
                sw_load_le32((const uint8_t *)words + 4 * (g * (n_out / per_word) + w));
            for (int p = 0; p < per_word; p++)
                zeros[zero_channel(w * per_word + p, bits) * n_groups + g] =
                    (uint8_t)(word >> (bits * p) & mask);
        }
}
