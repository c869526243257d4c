/* charsmap.c - see charsmap.h. */
#include "formats/text/characters/charsmap.h"

#include <string.h>
#include <utf8proc.h>

#include "formats/base/base64.h"
#include "formats/base/json.h"
#include "formats/base/size.h"

#define CLUSTER_MAX_BYTES 6 /* shorter clusters are looked up as a whole */

sw_code sw_charsmap_open(sw_charsmap *out, const unsigned char *blob, size_t n_bytes, sw_err *err)
{
    sw_charsmap map = {0};
    size_t trie_bytes, bad_at = 0;

    if (n_bytes < 4) return SW_FAIL(err, SW_E_FORMAT, "charsmap of %zu bytes", n_bytes);
    trie_bytes = sw_load_le32(blob);
    if (trie_bytes < 4 || trie_bytes % 4 || trie_bytes > n_bytes - 4)
        return SW_FAIL(err, SW_E_FORMAT, "charsmap of %zu bytes with a trie of %zu", n_bytes,
                       trie_bytes);
    map.units = blob + 4;
    map.n_units = trie_bytes / 4;
    map.texts = (const char *)blob + 4 + trie_bytes;
    map.n_texts_bytes = n_bytes - 4 - trie_bytes;
    if (!sw_utf8_is_valid(map.texts, map.n_texts_bytes, &bad_at))
        return SW_FAIL(err, SW_E_FORMAT, "charsmap: its texts are not UTF-8 at byte %zu", bad_at);
    *out = map;
    return SW_OK;
}

sw_code sw_charsmap_parse(sw_charsmap *out, const char *base64, sw_arena *arena, sw_err *err)
{
    const size_t n_chars = strlen(base64);
    unsigned char *blob = NULL;
    size_t n_bytes = 0;
    sw_code rc = SW_ARENA_TAKE(&blob, arena, SW_BASE64_BYTES(n_chars) + 1, err);

    if (rc == SW_OK) rc = sw_base64_decode(blob, &n_bytes, base64, n_chars, err);
    return rc == SW_OK ? sw_charsmap_open(out, blob, n_bytes, err) : rc;
}

/* Return where the children of a unit lie, relative to it: darts-clone stores 21 bits, or 21 bits
 * times 256. */
static size_t children_of(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & 0x200u) >> 6);
}

/* Find what replaces the shortest key that these bytes begin with; false where no key does. */
static bool look_up(const sw_charsmap *map, const char **with, size_t *with_bytes,
                    const char *text, size_t n_bytes)
{
    size_t at = children_of(sw_load_le32(map->units)), place;

    for (size_t i = 0; i < n_bytes; i++) {
        const unsigned char byte = (unsigned char)text[i];
        uint32_t unit;
        at ^= byte;
        if (!byte || at >= map->n_units) return false;
        unit = sw_load_le32(map->units + 4 * at);
        if ((unit & 0x800000FFu) != byte) return false;
        at ^= children_of(unit);
        if (!(unit & 0x100u)) continue;
        if (at >= map->n_units) return false;
        place = sw_load_le32(map->units + 4 * at) & 0x7FFFFFFFu;
        if (place > map->n_texts_bytes ||
            (place < map->n_texts_bytes && !sw_utf8_is_start(map->texts[place])))
            return false;
        *with = map->texts + place;
        *with_bytes = strnlen(*with, map->n_texts_bytes - place);
        return true;
    }
    return false;
}

static size_t cluster_end(const char *text, size_t begin, size_t n_bytes)
{
    utf8proc_int32_t state = 0;
    uint32_t c, next;
    size_t at = sw_utf8_next(&c, text, begin);

    while (at < n_bytes) {
        size_t behind = sw_utf8_next(&next, text, at);
        if (c < 0x80 && next < 0x80 && c != '\r') break;
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)c, (utf8proc_int32_t)next, &state))
            break;
        c = next;
        at = behind;
    }
    return at;
}

sw_code sw_charsmap_run(const sw_charsmap *map, sw_text_buf *out, const char *text, size_t n_bytes,
                        sw_err *err)
{
    sw_code rc = SW_OK;

    for (size_t at = 0; at < n_bytes && rc == SW_OK;) {
        const size_t end = cluster_end(text, at, n_bytes);
        const char *with = NULL;
        size_t with_bytes = 0;
        if (end - at < CLUSTER_MAX_BYTES &&
            look_up(map, &with, &with_bytes, text + at, end - at)) {
            rc = sw_text_buf_add(out, with, with_bytes, err);
            at = end;
        }
        while (at < end && rc == SW_OK) {
            uint32_t c;
            size_t next = sw_utf8_next(&c, text, at);
            rc = look_up(map, &with, &with_bytes, text + at, next - at)
                     ? sw_text_buf_add(out, with, with_bytes, err)
                     : sw_text_buf_add(out, text + at, next - at, err);
            at = next;
        }
    }
    return rc;
}
