/* interleave.c - see interleave.h. Inputs go in bands, so that both sides use whole cache lines. */
#include "formats/pack/interleave.h"

#include "formats/base/size.h"

#define BAND 64

const uint8_t sw_interleave_order[SW_INTERLEAVE_CODES] = {0, 2, 4, 6, 1, 3, 5, 7};

void sw_interleave_pack(void *words, const uint8_t *codes, int64_t n_out, int64_t k)
{
    int64_t row_words = n_out / SW_INTERLEAVE_CODES;

    for (int64_t k0 = 0; k0 < k; k0 += BAND)
        for (int64_t c = 0; c < row_words; c++)
            for (int64_t i = k0; i < sw_min_i64(k0 + BAND, k); i++) {
                const uint8_t *from = codes + c * SW_INTERLEAVE_CODES * k + i;
                uint32_t word = 0;
                for (int p = 0; p < SW_INTERLEAVE_CODES; p++)
                    word |= (uint32_t)(from[sw_interleave_order[p] * k] & 15) << (4 * p);
                sw_store_le32((uint8_t *)words + 4 * (i * row_words + c), word);
            }
}

void sw_interleave_unpack(uint8_t *codes, const void *words, int64_t n_out, int64_t k)
{
    int64_t row_words = n_out / SW_INTERLEAVE_CODES;

    for (int64_t k0 = 0; k0 < k; k0 += BAND)
        for (int64_t c = 0; c < row_words; c++)
            for (int64_t i = k0; i < sw_min_i64(k0 + BAND, k); i++) {
                uint8_t *to = codes + c * SW_INTERLEAVE_CODES * k + i;
                uint32_t word =
                    sw_load_le32((const uint8_t *)words + 4 * (i * row_words + c));
                for (int p = 0; p < SW_INTERLEAVE_CODES; p++)
                    to[sw_interleave_order[p] * k] = word >> (4 * p) & 15;
            }
}
