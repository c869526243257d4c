/* unicode.c - see unicode.h: buffers, UTF-8 steps, character classes. */
#include "formats/text/characters/unicode.h"

#include <string.h>
#include <utf8proc.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"

#define GROW_MIN_ELEMS ((size_t)64)

sw_code sw_text_grow(void **array, size_t *capacity, size_t need, size_t elem_bytes, sw_err *err)
{
    size_t more = *capacity < GROW_MIN_ELEMS ? GROW_MIN_ELEMS : *capacity;
    void *bigger = NULL;
    sw_code rc;

    if (need <= *capacity) return SW_OK;
    while (more < need) {
        if (more > (size_t)PTRDIFF_MAX / 2)
            return SW_FAIL(err, SW_E_NOMEM, "text of %zu elements", need);
        more *= 2;
    }
    if ((rc = sw_mem_get(&bigger, (int64_t)more, elem_bytes, "text", err)) != SW_OK) return rc;
    if (*capacity) memcpy(bigger, *array, *capacity * elem_bytes);
    sw_mem_put(*array);
    *array = bigger;
    *capacity = more;
    return SW_OK;
}

sw_code sw_text_buf_add(sw_text_buf *buf, const char *bytes, size_t n_bytes, sw_err *err)
{
    sw_code rc;

    if (buf->max_bytes && n_bytes > buf->max_bytes - buf->made_bytes - buf->n_bytes)
        return SW_FAIL(err, SW_E_FORMAT, "the text grows beyond %zu bytes, which no honest "
                       "tokenizer makes of the text given", buf->max_bytes);
    if (buf->capacity - buf->n_bytes < n_bytes) {
        void *array = buf->bytes;
        uint64_t need;
        if (!sw_add_u64(&need, buf->n_bytes, n_bytes))
            return SW_FAIL(err, SW_E_NOMEM, "text beyond the address space");
        rc = sw_text_grow(&array, &buf->capacity, (size_t)need, 1, err);
        buf->bytes = array;
        if (rc != SW_OK) return rc;
    }
    if (n_bytes) memcpy(buf->bytes + buf->n_bytes, bytes, n_bytes);
    buf->n_bytes += n_bytes;
    return SW_OK;
}

sw_code sw_text_buf_add_char(sw_text_buf *buf, uint32_t code_point, sw_err *err)
{
    char bytes[4];

    return sw_text_buf_add(buf, bytes, sw_utf8_put(bytes, code_point), err);
}

void sw_text_buf_free(sw_text_buf *buf)
{
    sw_mem_put(buf->bytes);
    memset(buf, 0, sizeof *buf);
}

size_t sw_utf8_next(uint32_t *code_point, const char *text, size_t at)
{
    const unsigned char *p = (const unsigned char *)text + at;

    if (p[0] < 0x80) {
        *code_point = p[0];
        return at + 1;
    }
    if (p[0] < 0xE0) {
        *code_point = ((p[0] & 0x1Fu) << 6) | (p[1] & 0x3Fu);
        return at + 2;
    }
    if (p[0] < 0xF0) {
        *code_point = ((p[0] & 0x0Fu) << 12) | ((p[1] & 0x3Fu) << 6) | (p[2] & 0x3Fu);
        return at + 3;
    }
    *code_point = ((p[0] & 0x07u) << 18) | ((p[1] & 0x3Fu) << 12) | ((p[2] & 0x3Fu) << 6) |
                  (p[3] & 0x3Fu);
    return at + 4;
}

size_t sw_utf8_back(const char *text, size_t at)
{
    do at--;
    while (at > 0 && !sw_utf8_is_start(text[at]));
    return at;
}

size_t sw_utf8_put(char out[4], uint32_t code_point)
{
    unsigned char *p = (unsigned char *)out;

    if (code_point < 0x80) {
        p[0] = (unsigned char)code_point;
        return 1;
    }
    if (code_point < 0x800) {
        p[0] = (unsigned char)(0xC0 | (code_point >> 6));
        p[1] = (unsigned char)(0x80 | (code_point & 0x3F));
        return 2;
    }
    if (code_point < 0x10000) {
        p[0] = (unsigned char)(0xE0 | (code_point >> 12));
        p[1] = (unsigned char)(0x80 | ((code_point >> 6) & 0x3F));
        p[2] = (unsigned char)(0x80 | (code_point & 0x3F));
        return 3;
    }
    p[0] = (unsigned char)(0xF0 | (code_point >> 18));
    p[1] = (unsigned char)(0x80 | ((code_point >> 12) & 0x3F));
    p[2] = (unsigned char)(0x80 | ((code_point >> 6) & 0x3F));
    p[3] = (unsigned char)(0x80 | (code_point & 0x3F));
    return 4;
}

static bool in_category(uint32_t code_point, uint32_t mask)
{
    return (mask >> utf8proc_category((utf8proc_int32_t)code_point)) & 1;
}

#define CATEGORY(name) (1u << UTF8PROC_CATEGORY_##name)
#define LETTERS (CATEGORY(LU) | CATEGORY(LL) | CATEGORY(LT) | CATEGORY(LM) | CATEGORY(LO))
#define MARKS (CATEGORY(MN) | CATEGORY(MC) | CATEGORY(ME))
#define PUNCTUATION                                                                       \
    (CATEGORY(PC) | CATEGORY(PD) | CATEGORY(PS) | CATEGORY(PE) | CATEGORY(PI) | CATEGORY(PF) | \
     CATEGORY(PO))

bool sw_char_is_space(uint32_t code_point)
{
    if (code_point < 0x80) return code_point == ' ' || (code_point >= '\t' && code_point <= '\r');
    return code_point == 0x85 ||
           in_category(code_point, CATEGORY(ZS) | CATEGORY(ZL) | CATEGORY(ZP));
}

bool sw_char_is_word(uint32_t code_point)
{
    /* without the marks, Other_Alphabetic is four blocks of enclosed letters */
    static const uint32_t enclosed[][2] = {
        {0x24B6, 0x24E9}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};

    if (in_category(code_point, LETTERS | MARKS | CATEGORY(ND) | CATEGORY(NL) | CATEGORY(PC)))
        return true;
    for (size_t i = 0; i < sizeof enclosed / sizeof enclosed[0]; i++)
        if (code_point >= enclosed[i][0] && code_point <= enclosed[i][1]) return true;
    return code_point == 0x200C || code_point == 0x200D;
}

bool sw_char_is_number(uint32_t code_point)
{
    return in_category(code_point, CATEGORY(ND) | CATEGORY(NL) | CATEGORY(NO));
}

bool sw_char_is_punct(uint32_t code_point)
{
    if (code_point < 0x80) return code_point && strchr("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
                                                       (int)code_point);
    return in_category(code_point, PUNCTUATION);
}

int sw_char_lower(uint32_t out[2], uint32_t code_point)
{
    out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)code_point);
    if (code_point != 0x130) return 1;
    out[0] = 'i'; /* only this character has a longer lower case */
    out[1] = 0x307;
    return 2;
}
