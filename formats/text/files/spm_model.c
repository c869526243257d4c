/* spm_model.c - see spm_model.h. */
#include "formats/text/files/spm_model.h"

#include <math.h>
#include <string.h>

#include "formats/base/size.h"

#define PIECES_MAX ((int64_t)1 << 22)

typedef struct cursor {
    const unsigned char *at, *end;
    sw_err *err;
} cursor;

typedef struct field {
    uint32_t number, wire;
    uint64_t value;     /* of a varint, or 32 or 64 bits as they are */
    sw_spm_bytes bytes; /* of wire type 2 */
} field;

enum { WIRE_VARINT, WIRE_64, WIRE_BYTES, WIRE_32 = 5 };

static sw_code cut_off(const cursor *c)
{
    return SW_FAIL(c->err, SW_E_FORMAT, "not a sentencepiece model: its protobuf is cut off or has "
                   "a field that runs over");
}

static sw_code read_varint(cursor *c, uint64_t *out)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (c->at == c->end) return cut_off(c);
        value |= (uint64_t)(*c->at & 0x7F) << shift;
        if (!(*c->at++ & 0x80)) {
            *out = value;
            return SW_OK;
        }
    }
    return SW_FAIL(c->err, SW_E_FORMAT, "not a sentencepiece model: a varint of more than 64 bits");
}

static sw_code read_field(cursor *c, field *out)
{
    uint64_t key = 0, n = 0;
    sw_code rc = read_varint(c, &key);

    if (rc != SW_OK) return rc;
    memset(out, 0, sizeof *out);
    out->number = key >> 3 > UINT32_MAX ? 0 : (uint32_t)(key >> 3);
    out->wire = (uint32_t)(key & 7);
    if (!out->number)
        return SW_FAIL(c->err, SW_E_FORMAT, "not a sentencepiece model: a field without a number");
    if (out->wire == WIRE_VARINT) return read_varint(c, &out->value);
    if (out->wire == WIRE_BYTES) {
        if ((rc = read_varint(c, &n)) != SW_OK) return rc;
    } else if (out->wire == WIRE_32 || out->wire == WIRE_64) {
        n = out->wire == WIRE_32 ? 4 : 8;
    } else {
        return SW_FAIL(c->err, SW_E_FORMAT, "not a sentencepiece model: wire type %u", out->wire);
    }
    if (n > (uint64_t)(c->end - c->at)) return cut_off(c);
    out->bytes = (sw_spm_bytes){c->at, (size_t)n};
    if (out->wire == WIRE_32) out->value = sw_load_le32(c->at);
    if (out->wire == WIRE_64) out->value = sw_load_le64(c->at);
    c->at += n;
    return SW_OK;
}

/* Return whether this is the field; then its wire type must be that of the schema. */
static bool is(const field *f, uint32_t number, uint32_t wire)
{
    return f->number == number && f->wire == wire;
}

static sw_code read_piece(sw_spm_piece *out, const field *message, sw_err *err)
{
    cursor c = {message->bytes.at, message->bytes.at + message->bytes.n, err};
    sw_spm_piece piece = {.kind = SW_SPM_NORMAL};
    field f;
    sw_code rc;

    while (c.at < c.end) {
        if ((rc = read_field(&c, &f)) != SW_OK) return rc;
        if (is(&f, 1, WIRE_BYTES)) piece.text = f.bytes;
        if (is(&f, 2, WIRE_32)) memcpy(&piece.score, f.bytes.at, sizeof piece.score);
        if (is(&f, 3, WIRE_VARINT)) piece.kind = f.value < 7 ? (uint32_t)f.value : 0;
    }
    if (!isfinite(piece.score) || piece.kind < SW_SPM_NORMAL || !piece.text.n)
        return SW_FAIL(err, SW_E_FORMAT, "no text, a score that is no number, or an unknown type");
    *out = piece;
    return SW_OK;
}

static sw_code read_trainer(sw_spm_model *m, const field *message, sw_err *err)
{
    cursor c = {message->bytes.at, message->bytes.at + message->bytes.n, err};
    field f;
    sw_code rc;

    while (c.at < c.end) {
        if ((rc = read_field(&c, &f)) != SW_OK) return rc;
        if (is(&f, 3, WIRE_VARINT)) m->type = f.value < 5 ? (uint32_t)f.value : 0;
        if (is(&f, 24, WIRE_VARINT)) m->has_space_at_end = f.value != 0;
        if (is(&f, 35, WIRE_VARINT)) m->has_byte_fallback = f.value != 0;
        if (is(&f, 46, WIRE_BYTES)) m->bos = f.bytes;
        if (is(&f, 47, WIRE_BYTES)) m->eos = f.bytes;
    }
    return SW_OK;
}

static sw_code read_normalizer(sw_spm_model *m, const field *message, bool is_back, sw_err *err)
{
    cursor c = {message->bytes.at, message->bytes.at + message->bytes.n, err};
    field f;
    sw_code rc;

    while (c.at < c.end) {
        if ((rc = read_field(&c, &f)) != SW_OK) return rc;
        if (is(&f, 2, WIRE_BYTES)) *(is_back ? &m->denormalizer : &m->charsmap) = f.bytes;
        if (is_back) continue;
        if (is(&f, 3, WIRE_VARINT)) m->adds_prefix = f.value != 0;
        if (is(&f, 4, WIRE_VARINT)) m->drops_spaces = f.value != 0;
        if (is(&f, 5, WIRE_VARINT)) m->escapes_spaces = f.value != 0;
    }
    return SW_OK;
}

static sw_code count_pieces(int64_t *n, const cursor *all)
{
    cursor c = *all;
    field f;
    sw_code rc;

    *n = 0;
    while (c.at < c.end) {
        if ((rc = read_field(&c, &f)) != SW_OK) return rc;
        *n += is(&f, 1, WIRE_BYTES);
    }
    if (*n < 1 || *n > PIECES_MAX)
        return SW_FAIL(all->err, SW_E_FORMAT, "not a sentencepiece model: %lld pieces",
                       (long long)*n);
    return SW_OK;
}

sw_code sw_spm_read(sw_spm_model *out, const unsigned char *bytes, size_t n_bytes, sw_arena *arena,
                    sw_err *err)
{
    /* these are the defaults of the schema */
    sw_spm_model m = {.type = SW_SPM_UNIGRAM, .adds_prefix = true, .drops_spaces = true,
                      .escapes_spaces = true, .bos = {(const unsigned char *)"<s>", 3},
                      .eos = {(const unsigned char *)"</s>", 4}};
    cursor c = {bytes, bytes + n_bytes, err};
    int64_t n = 0;
    field f;
    sw_code rc = count_pieces(&n, &c);

    if (rc == SW_OK) rc = SW_ARENA_TAKE(&m.pieces, arena, n, err);
    while (rc == SW_OK && c.at < c.end) {
        if ((rc = read_field(&c, &f)) != SW_OK) return rc;
        if (is(&f, 1, WIRE_BYTES)) {
            if ((rc = read_piece(&m.pieces[m.n], &f, err)) != SW_OK)
                sw_err_prefix(err, "piece %lld", (long long)m.n);
            m.n++;
        }
        if (is(&f, 2, WIRE_BYTES)) rc = read_trainer(&m, &f, err);
        if (is(&f, 3, WIRE_BYTES)) rc = read_normalizer(&m, &f, false, err);
        if (is(&f, 5, WIRE_BYTES)) rc = read_normalizer(&m, &f, true, err);
    }
    if (rc == SW_OK) *out = m;
    return rc;
}
