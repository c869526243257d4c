/* damage.c - see damage.h. */
#include "tests/support/damage.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/toys/random.h"

enum { PAGE = 4096, SECTOR = 512 };

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* The first whole page of the file that lies in the tensor's second third, or its middle. */
static uint8_t *page_of(const damage_site *s, size_t page, size_t *n_bytes)
{
    size_t from = (s->offset + s->n_bytes / 3 + page - 1) / page * page - s->offset;

    *n_bytes = page;
    if (from + page <= s->n_bytes) return s->own + from;
    *n_bytes = least(page, s->n_bytes / 4);
    return s->own + s->n_bytes / 2;
}

static void fill_page(const damage_site *s, size_t page, int value)
{
    size_t n;
    uint8_t *at = page_of(s, page, &n);

    memset(at, value, n);
}

static void zero_page(const damage_site *s) { fill_page(s, PAGE, 0); }
static void zero_sector(const damage_site *s) { fill_page(s, SECTOR, 0); }
static void ones_page(const damage_site *s) { fill_page(s, PAGE, 0xff); }
static void stuck_page(const damage_site *s) { fill_page(s, PAGE, 0x5a); }

/* 20 of 256 channels, where rows lie one after the other. */
static void zero_rows(const damage_site *s)
{
    memset(s->own + s->n_bytes / 256 * 100, 0, s->n_bytes * 20 / 256);
}

static void zero_one_row(const damage_site *s)
{
    memset(s->own + s->n_bytes / 256 * 77, 0, s->n_bytes / 256);
}

static void zero_tail(const damage_site *s)
{
    memset(s->own + s->n_bytes - s->n_bytes / 4, 0, s->n_bytes / 4);
}

static void zero_all(const damage_site *s) { memset(s->own, 0, s->n_bytes); }

static void zero_strided(const damage_site *s)
{
    for (size_t at = 0; at + 64 <= s->n_bytes; at += SECTOR) memset(s->own + at, 0, 64);
}

static void random_page(const damage_site *s)
{
    test_rng rng = {5};
    size_t n;
    uint8_t *at = page_of(s, PAGE, &n);

    for (size_t i = 0; i < n; i++) at[i] = (uint8_t)(test_u64(&rng) >> 20) & 0x7e;
}

static void swap_bytes(uint8_t *a, uint8_t *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint8_t kept = a[i];

        a[i] = b[i];
        b[i] = kept;
    }
}

static void swap_pages(const damage_site *s)
{
    size_t n = least(PAGE, s->n_bytes / 4);

    swap_bytes(s->own, s->own + s->n_bytes / 2, n);
}

static void swap_sectors(const damage_site *s)
{
    size_t n = least(SECTOR, s->n_bytes / 4);

    swap_bytes(s->own + s->n_bytes / 4, s->own + s->n_bytes / 2, n);
}

static void stale_page(const damage_site *s)
{
    size_t n = least(PAGE, s->n_bytes / 4);

    memcpy(s->own + s->n_bytes / 2, s->own, n);
}

static void shift_page(const damage_site *s)
{
    size_t n;
    uint8_t *at = page_of(s, PAGE, &n);

    memmove(at + 1, at, n - 1);
}

static void shift_tail(const damage_site *s)
{
    size_t half = s->n_bytes / 2;

    memmove(s->own + half + 1, s->own + half, s->n_bytes - half - 1);
}

static void turn_words(const damage_site *s)
{
    size_t n;
    uint8_t *at = page_of(s, PAGE, &n);

    for (size_t i = 0; i + 4 <= n; i += 4) {
        uint8_t word[4] = {at[i + 3], at[i + 2], at[i + 1], at[i]};

        memcpy(at + i, word, 4);
    }
}

static void invert_page(const damage_site *s)
{
    size_t n;
    uint8_t *at = page_of(s, 1024, &n);

    for (size_t i = 0; i < n; i++) at[i] ^= s->is_float && s->bits == 8 ? 0x9f : 0xff;
}

static void swap_nibbles(const damage_site *s)
{
    size_t n;
    uint8_t *at = page_of(s, PAGE, &n);

    for (size_t i = 0; i < n; i++) {
        uint8_t turned = (uint8_t)(at[i] << 4 | at[i] >> 4);

        if ((turned & 0x7f) != 0x7f) at[i] = turned; /* no NaN among small floats */
    }
}

static uint8_t sign_mask(const damage_site *s)
{
    return s->bits == 8 ? 0x80 : s->bits == 4 ? 0x88 : 0xaa;
}

static void flip_scattered_signs(const damage_site *s)
{
    test_rng rng = {11};

    for (int i = 0; i < 256; i++) s->own[test_u64(&rng) % s->n_bytes] ^= sign_mask(s);
}

static void flip_run_of_signs(const damage_site *s)
{
    for (size_t i = 0; i < least(256, s->n_bytes / 4); i++)
        s->own[s->n_bytes / 3 + i] ^= sign_mask(s);
}

/* One stuck line of a bus: a bit of every byte of a page. */
static void stick_bit(const damage_site *s)
{
    size_t n;
    uint8_t *at = page_of(s, PAGE, &n);

    for (size_t i = 0; i < n; i++) at[i] &= (uint8_t)~(sign_mask(s) >> 1);
}

static void mirror_page(const damage_site *s)
{
    size_t n;
    uint8_t *at = page_of(s, PAGE, &n);

    for (size_t i = 0; i < n / 2; i++) swap_bytes(at + i, at + n - 1 - i, 1);
}

static void swap_with_other(const damage_site *s) { swap_bytes(s->own, s->other, s->n_bytes); }
static void take_other(const damage_site *s) { memcpy(s->own, s->other, s->n_bytes); }

static void take_half_of_other(const damage_site *s)
{
    memcpy(s->own + s->n_bytes / 2, s->other + s->n_bytes / 2, s->n_bytes / 2);
}

static size_t width_of(const damage_site *s)
{
    size_t bits = (size_t)sw_dtype_bits(s->dtype);

    return bits < 8 ? 1 : bits / 8;
}

/* Times two, by the exponent. */
static void twice_at(const damage_site *s, size_t i)
{
    uint8_t *at = s->own + i * width_of(s);

    if (s->dtype == SW_DTYPE_F16) at[1] = (uint8_t)(at[1] + 4);
    else if (s->dtype == SW_DTYPE_F8_E4M3) at[0] = (uint8_t)(at[0] + 8);
    else if (width_of(s) == 1) at[0]++;
    else {
        unsigned high = (unsigned)(at[width_of(s) - 1] << 8 | at[width_of(s) - 2]) + 0x80;

        at[width_of(s) - 1] = (uint8_t)(high >> 8);
        at[width_of(s) - 2] = (uint8_t)high;
    }
}

static void twice_one(const damage_site *s) { twice_at(s, s->n_bytes / width_of(s) / 3); }

static void twice_all(const damage_site *s)
{
    for (size_t i = 0; i < s->n_bytes / width_of(s); i++) twice_at(s, i);
}

static void turn_one_sign(const damage_site *s)
{
    size_t w = width_of(s), at = s->n_bytes / w / 3 * w + w - 1;

    s->own[at] ^= 0x80;
}

static void reverse_all(const damage_site *s)
{
    size_t w = width_of(s), n = s->n_bytes / w;

    for (size_t i = 0; i < n / 2; i++) swap_bytes(s->own + i * w, s->own + (n - 1 - i) * w, w);
}

static void swap_halves(const damage_site *s)
{
    size_t half = s->n_bytes / 2 / width_of(s) * width_of(s);

    swap_bytes(s->own, s->own + s->n_bytes - half, half);
}

static void shift_one(const damage_site *s)
{
    memmove(s->own + width_of(s), s->own, s->n_bytes - width_of(s));
}

static void zero_some(const damage_site *s)
{
    memset(s->own + s->n_bytes / 4, 0, least(64, s->n_bytes / 2));
}

static void ones_some(const damage_site *s)
{
    memset(s->own + s->n_bytes / 4, 0xff, least(64, s->n_bytes / 2));
}

static void zero_one(const damage_site *s)
{
    memset(s->own + s->n_bytes / width_of(s) / 3 * width_of(s), 0, width_of(s));
}

/* Lowest bit of a zero point in the middle: 1 off. */
static void next_zero(const damage_site *s) { s->own[s->n_bytes / 2] ^= 1; }
static void next_zeros(const damage_site *s)
{
    for (size_t i = 0; i < s->n_bytes; i++) s->own[i] ^= 0x11;
}

static void flip_low_bit(const damage_site *s) { s->own[s->n_bytes / 2] ^= 1; }

static void put_nan(const damage_site *s)
{
    s->own[s->n_bytes / 4 * 2] = 0xc0;
    s->own[s->n_bytes / 4 * 2 + 1] = 0x7f;
}

static void put_infinity(const damage_site *s)
{
    s->own[s->n_bytes / 4 * 2] = 0x80;
    s->own[s->n_bytes / 4 * 2 + 1] = 0xff;
}

/* A group index that names another group, and one that names none. */
static void move_index(const damage_site *s) { s->own[s->n_bytes / 8 * 4] ^= 1; }
static void break_index(const damage_site *s) { s->own[s->n_bytes / 8 * 4 + 2] = 9; }

/* Trades two names wherever they stand. One of another length could not stand in a header without
 * moving what follows. */
static void trade_names(const damage_site *s, const char *a, const char *b)
{
    for (size_t n = strlen(a), i = 0; i + n <= s->n_bytes; i++) {
        if (!memcmp(s->own + i, a, n)) memcpy(s->own + i, b, n);
        else if (!memcmp(s->own + i, b, n)) memcpy(s->own + i, a, n);
    }
}

static void swap_names(const damage_site *s)
{
    trade_names(s, "self_attn.k_proj.", "self_attn.v_proj.");
    trade_names(s, "attn_k.weight", "attn_v.weight");
}

static void swap_layers(const damage_site *s) { trade_names(s, "layers.0.", "layers.1."); }
static void swap_experts(const damage_site *s) { trade_names(s, "experts.2.", "experts.5."); }

const damage_kind damage_kinds[] = {
    {"20 of 256 rows of codes zero", DAMAGE_CODES, false, zero_rows},
    {"one row of codes zero", DAMAGE_CODES, false, zero_one_row},
    {"4 KB hole in codes", DAMAGE_CODES, false, zero_page},
    {"512 bytes of codes zero", DAMAGE_CODES, false, zero_sector},
    {"last quarter of codes zero", DAMAGE_CODES, false, zero_tail},
    {"all codes zero", DAMAGE_CODES, false, zero_all},
    {"64 of every 512 bytes of codes zero", DAMAGE_CODES, false, zero_strided},
    {"4 KB of codes all ones", DAMAGE_CODES, false, ones_page},
    {"4 KB of codes one byte", DAMAGE_CODES, false, stuck_page},
    {"4 KB of codes random", DAMAGE_CODES, false, random_page},
    {"two pages of codes swapped", DAMAGE_CODES, false, swap_pages},
    {"two sectors of codes swapped", DAMAGE_CODES, false, swap_sectors},
    {"a page of codes twice", DAMAGE_CODES, false, stale_page},
    {"4 KB of codes one byte late", DAMAGE_CODES, false, shift_page},
    {"second half of codes one byte late", DAMAGE_CODES, false, shift_tail},
    {"words of 4 KB of codes byte-swapped", DAMAGE_CODES, false, turn_words},
    {"1 KB of codes inverted", DAMAGE_CODES, false, invert_page},
    {"nibbles of 4 KB of codes swapped", DAMAGE_CODES, false, swap_nibbles},
    {"256 scattered signs of codes", DAMAGE_CODES, false, flip_scattered_signs},
    {"256 bytes of signs of codes", DAMAGE_CODES, false, flip_run_of_signs},
    {"a bit of 4 KB of codes stuck", DAMAGE_CODES, false, stick_bit},
    {"4 KB of codes back to front", DAMAGE_CODES, false, mirror_page},
    {"codes swapped with another linear's", DAMAGE_CODES, true, swap_with_other},
    {"codes of another linear", DAMAGE_CODES, true, take_other},
    {"half of the codes another linear's", DAMAGE_CODES, true, take_half_of_other},
    {"one scale twice as large", DAMAGE_SCALES, false, twice_one},
    {"all scales twice as large", DAMAGE_SCALES, false, twice_all},
    {"one scale of the other sign", DAMAGE_SCALES, false, turn_one_sign},
    {"one scale zero", DAMAGE_SCALES, false, zero_one},
    {"64 bytes of scales zero", DAMAGE_SCALES, false, zero_some},
    {"64 bytes of scales all ones", DAMAGE_SCALES, false, ones_some},
    {"last quarter of scales zero", DAMAGE_SCALES, false, zero_tail},
    {"scales back to front", DAMAGE_SCALES, false, reverse_all},
    {"scales one place late", DAMAGE_SCALES, false, shift_one},
    {"halves of scales swapped", DAMAGE_SCALES, false, swap_halves},
    {"scales of another linear", DAMAGE_SCALES, true, take_other},
    {"one zero point off by one", DAMAGE_ZEROS, false, next_zero},
    {"all zero points off by one", DAMAGE_ZEROS, false, next_zeros},
    {"64 bytes of zero points zero", DAMAGE_ZEROS, false, zero_some},
    {"zero points back to front", DAMAGE_ZEROS, false, reverse_all},
    {"zero points of another linear", DAMAGE_ZEROS, true, take_other},
    {"global scale twice as large", DAMAGE_GLOBAL, false, twice_all},
    {"global scale zero", DAMAGE_GLOBAL, false, zero_all},
    {"global scale of the other sign", DAMAGE_GLOBAL, false, turn_one_sign},
    {"one group index another", DAMAGE_INDEX, false, move_index},
    {"one group index out of range", DAMAGE_INDEX, false, break_index},
    {"group index all zero", DAMAGE_INDEX, false, zero_all},
    {"group index back to front", DAMAGE_INDEX, false, reverse_all},
    {"one bit of a norm", DAMAGE_NORM, false, flip_low_bit},
    {"NaN in a norm", DAMAGE_NORM, false, put_nan},
    {"infinity in a norm", DAMAGE_NORM, false, put_infinity},
    {"norm zero", DAMAGE_NORM, false, zero_all},
    {"norm of another layer", DAMAGE_NORM, true, take_other},
    {"one bit of the embedding", DAMAGE_EMBED, false, flip_low_bit},
    {"NaN in the embedding", DAMAGE_EMBED, false, put_nan},
    {"infinity in the embedding", DAMAGE_EMBED, false, put_infinity},
    {"4 KB hole in the embedding", DAMAGE_EMBED, false, zero_page},
    {"one bit of a router", DAMAGE_ROUTER, false, flip_low_bit},
    {"halves of a router swapped", DAMAGE_ROUTER, false, swap_halves},
    {"convolution of a state zero", DAMAGE_CONV, false, zero_all},
    {"convolution of another layer", DAMAGE_CONV, true, take_other},
    {"one bit of a convolution", DAMAGE_CONV, false, flip_low_bit},
    {"decay of another layer", DAMAGE_DECAY, true, take_other},
    {"decay zero", DAMAGE_DECAY, false, zero_all},
    {"one bit of a decay", DAMAGE_DECAY, false, flip_low_bit},
    {"one bit of a tower", DAMAGE_TOWER, false, flip_low_bit},
    {"halves of a tensor of a tower swapped", DAMAGE_TOWER, false, swap_halves},
    {"one bit of a head for further tokens", DAMAGE_MTP, false, flip_low_bit},
    {"last quarter of a tensor of such a head zero", DAMAGE_MTP, false, zero_tail},
    {"tensor of such a head another's", DAMAGE_MTP, true, take_other},
    {"names of k and v swapped", DAMAGE_HEADER, false, swap_names},
    {"names of two layers swapped", DAMAGE_HEADER, false, swap_layers},
    {"names of two experts swapped", DAMAGE_HEADER, false, swap_experts},
};
const int n_damage_kinds = sizeof damage_kinds / sizeof *damage_kinds;

static bool is_beyond(const char *name, int64_t n_layers)
{
    const char *at = strstr(name, "layers.");

    return at && strtoll(at + strlen("layers."), NULL, 10) >= n_layers;
}

bool damage_place_by_name(damage_place *out, const char *name, int64_t n_layers)
{
    static const struct {
        const char *part;
        damage_place place;
    } parts[] = {
        {"mtp.", DAMAGE_MTP}, {"visual.", DAMAGE_TOWER}, {"vision", DAMAGE_TOWER},
        {"norm", DAMAGE_NORM}, {"embed_tokens", DAMAGE_EMBED}, {"mlp.gate.", DAMAGE_ROUTER},
        {"router", DAMAGE_ROUTER}, {"conv1d.weight", DAMAGE_CONV}, {".A_log", DAMAGE_DECAY},
        {".dt_bias", DAMAGE_DECAY},
    };

    if (is_beyond(name, n_layers)) {
        *out = DAMAGE_MTP;
        return true;
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(name, parts[i].part)) {
            *out = parts[i].place;
            return true;
        }
    return false;
}

bool damage_place_of(damage_place *out, const char *suffix, const sw_cview *view)
{
    static const struct {
        const char *suffix;
        damage_place place;
    } places[] = {
        {"qweight", DAMAGE_CODES}, {"B", DAMAGE_CODES}, {"tiles", DAMAGE_CODES},
        {"weight_packed", DAMAGE_CODES}, {"weight", DAMAGE_CODES}, {"scales", DAMAGE_SCALES},
        {"s", DAMAGE_SCALES}, {"tile_scales", DAMAGE_SCALES}, {"weight_scale", DAMAGE_SCALES},
        {"weight_scale_inv", DAMAGE_SCALES}, {"qzeros", DAMAGE_ZEROS}, {"zp", DAMAGE_ZEROS},
        {"tile_zeros", DAMAGE_ZEROS}, {"weight_zero_point", DAMAGE_ZEROS},
        {"weight_global_scale", DAMAGE_GLOBAL}, {"weight_scale_2", DAMAGE_GLOBAL},
        {"tile_global", DAMAGE_GLOBAL}, {"g_idx", DAMAGE_INDEX}, {"weight_g_idx", DAMAGE_INDEX},
    };

    if (suffix[0] == 'Q' || suffix[0] == 'I' || !strcmp(suffix, "MXFP4")) { /* blocks of a GGUF */
        *out = DAMAGE_CODES;
        return true;
    }
    if (!strcmp(suffix, "weight") &&
        (view->dtype == SW_DTYPE_BF16 || view->dtype == SW_DTYPE_F16 ||
         view->dtype == SW_DTYPE_F32))
        return false;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (!strcmp(suffix, places[i].suffix)) {
            *out = places[i].place;
            return true;
        }
    return false;
}
