/* growth.c - see growth.h. */
#include "formats/text/characters/growth.h"

static size_t scaled(size_t base, size_t factor, size_t n_bytes)
{
    return n_bytes > (SIZE_MAX / 2 - base) / factor ? SIZE_MAX / 2 : base + factor * n_bytes;
}

void sw_growth_start(sw_growth *growth, size_t given_bytes)
{
    growth->given_bytes = given_bytes;
    growth->allowed_bytes = scaled(SW_GROWTH_BASE_BYTES, SW_GROWTH_FACTOR, given_bytes);
    growth->search_left = scaled(SW_SEARCH_BASE, SW_SEARCH_FACTOR, given_bytes);
}

void sw_growth_open(const sw_growth *growth, sw_text_buf *out, size_t made_bytes)
{
    out->n_bytes = 0;
    out->max_bytes = growth->allowed_bytes;
    out->made_bytes = made_bytes;
}

sw_code sw_growth_search(sw_growth *growth, size_t n_bytes, sw_err *err)
{
    if (n_bytes > growth->search_left)
        return SW_FAIL(err, SW_E_FORMAT, "tokens so long or so alike that a search among them in "
                       "a text of %zu bytes takes too long", growth->given_bytes);
    growth->search_left -= n_bytes;
    return SW_OK;
}
