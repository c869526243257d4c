/* fuzz_decode_spec.c - hostile checkpoints read by the second decoder, and held against the first.
 *
 * The input is a quantization_config, then (after a NUL) bytes that fill the tensors of one
 * linear, over and over. What the second decoder accepts it must have checked: scales finite (and
 * above zero where the format has no sign), codes and zero points in range. What both decoders
 * accept must be the same weight.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "formats/dialect/dialect.h"
#include "verify/decoders/decode_spec.h"

#define K_IN 128
#define HEADER_BYTES 2048

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void insist(int holds)
{
    if (!holds) abort();
}

/* No multiple of 64, but for those that take nothing else. */
static int64_t n_out_of(const sw_dialect *dialect)
{
    if (!strcmp(dialect->name, "machete")) return 128;
    return strcmp(dialect->name, "marlin") ? 96 : 64;
}

typedef struct container {
    uint8_t *bytes;
    size_t n_bytes;
    int n_parts;
    uint64_t offsets[SW_DIALECT_TENSORS_MAX]; /* in bytes */
} container;

/* A container with the tensors that the dialect declares for "p", filled with the payload. */
static void build(container *out, const sw_dialect *dialect, const sw_qspec *spec,
                  const uint8_t *payload, size_t n_payload)
{
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    char header[HEADER_BYTES + 1];
    uint64_t at = 0, n_bytes;
    size_t n = 1;

    memset(parts, 0, sizeof parts);
    memset(header, ' ', sizeof header);
    header[0] = '{';
    out->n_parts = dialect->declare(parts, spec, n_out_of(dialect), K_IN);
    for (int i = 0; i < out->n_parts; i++) {
        const sw_part *p = &parts[i];
        insist(sw_shape_bytes(&n_bytes, p->dtype, p->n_dims, p->shape, NULL) == SW_OK);
        n += (size_t)snprintf(header + n, HEADER_BYTES - n,
                              "%s\"p.%s\":{\"dtype\":\"%s\",\"shape\":[", i ? "," : "",
                              p->suffix, sw_dtype_name(p->dtype));
        for (int32_t d = 0; d < p->n_dims; d++)
            n += (size_t)snprintf(header + n, HEADER_BYTES - n, "%s%lld", d ? "," : "",
                                  (long long)p->shape[d]);
        n += (size_t)snprintf(header + n, HEADER_BYTES - n, "],\"data_offsets\":[%llu,%llu]}",
                              (unsigned long long)at, (unsigned long long)(at + n_bytes));
        out->offsets[i] = 8 + HEADER_BYTES + at;
        at += n_bytes;
    }
    header[n++] = '}';
    header[n] = ' '; /* over the last terminator */
    out->n_bytes = (size_t)(8 + HEADER_BYTES + at);
    insist(sw_mem_get((void **)&out->bytes, (int64_t)out->n_bytes, 1, "container", NULL) == SW_OK);
    sw_store_le64(out->bytes, HEADER_BYTES);
    memcpy(out->bytes + 8, header, HEADER_BYTES);
    for (uint64_t i = 0; n_payload && i < at; i++)
        out->bytes[8 + HEADER_BYTES + i] = payload[i % n_payload];
}

static void expect_checked(const sw_spec_weight *w, const sw_qspec *spec)
{
    for (int64_t i = 0; i < w->n_out * w->n_groups; i++) {
        bool is_in_range = sw_qspec_has_free_scales(spec) || w->scales[i] > 0 ||
                           (spec->has_global && w->scales[i] >= 0);
        insist(isfinite(w->scales[i]) && is_in_range);
        insist(w->zeros[i] >= 0 && w->zeros[i] < 1 << w->bits);
    }
    for (int64_t i = 0; i < w->n_out * w->k_in; i++)
        insist(w->codes[i] < 1 << w->bits && isfinite(w->values[i]));
}

static void expect_agree(const sw_spec_weight *w, const sw_dialect *dialect, const sw_qspec *spec,
                         const container *c)
{
    const void *parts[SW_DIALECT_TENSORS_MAX];
    sw_qtensor q = {0};
    float *values = NULL;

    for (int i = 0; i < c->n_parts; i++) parts[i] = c->bytes + c->offsets[i];
    insist(sw_qtensor_alloc(&q, spec, n_out_of(dialect), K_IN, NULL) == SW_OK);
    insist(SW_MEM_GET(&values, q.n_out * K_IN, "values", NULL) == SW_OK);
    if (dialect->decode(&q, parts, NULL) == SW_OK && sw_qtensor_check(&q, NULL) == SW_OK) {
        sw_qtensor_decode(values, &q);
        insist(!memcmp(values, w->values, (size_t)(q.n_out * K_IN) * sizeof *values));
    }
    sw_mem_put(values);
    sw_qtensor_free(&q);
}

/* What the first decoder makes of the config, for small floats; integers are plain. */
static sw_qspec spec_of(const sw_spec_scheme *scheme, const sw_dialect *dialect,
                        const cJSON *config)
{
    sw_qspec spec = {.num = sw_num_by_bits(scheme->bits), .is_symmetric = scheme->is_symmetric,
                     .group_elems = scheme->group_elems, .scale_dtype = SW_DTYPE_F16};
    sw_qconfig first = {.spec.scale_dtype = SW_DTYPE_F16};
    sw_arena arena = {0};

    if (scheme->exponent_bits && dialect &&
        dialect->read_config(&first, config, &arena, NULL) == SW_OK && !first.n_rules)
        spec = first.spec;
    sw_arena_free(&arena);
    return spec;
}

static void decode(const sw_spec_scheme *scheme, const cJSON *config, const uint8_t *payload,
                   size_t n_payload)
{
    const sw_dialect *dialect = sw_dialect_find(scheme->reader->name);
    sw_qspec spec = spec_of(scheme, dialect, config);
    sw_spec_weight w = {0};
    container c = {0};
    sw_st *st = NULL;
    sw_err err = {0};

    if (spec.group_elems > K_IN || !dialect ||
        dialect->can_hold(&spec, n_out_of(dialect), K_IN, &err) != SW_OK)
        return;
    build(&c, dialect, &spec, payload, n_payload);
    memset(&err, 0, sizeof err);
    insist(sw_st_open_bytes(&st, c.bytes, c.n_bytes, "fuzz", &err) == SW_OK);
    if (sw_spec_decode(&w, scheme, st, "p", n_out_of(dialect), K_IN, &err) == SW_OK) {
        expect_checked(&w, &spec);
        expect_agree(&w, dialect, &spec, &c);
    } else {
        insist(err.text[0] != '\0' && !w.values);
    }
    sw_spec_weight_free(&w);
    sw_st_close(st);
    sw_mem_put(c.bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t n_config = nul ? (size_t)(nul - data) : size;
    sw_spec_scheme scheme = {0};
    cJSON *config = NULL;
    sw_err err = {0};

    if (sw_json_parse(&config, (const char *)data, n_config, &sw_json_caps_config, "input",
                      &err) != SW_OK)
        return 0;
    memset(&err, 0, sizeof err);
    if (sw_spec_scheme_read(&scheme, config, &err) == SW_OK) {
        insist(scheme.reader != NULL && scheme.group_elems >= 0);
        decode(&scheme, config, nul ? nul + 1 : NULL, nul ? size - n_config - 1 : 0);
    } else {
        insist(err.text[0] != '\0');
    }
    cJSON_Delete(config);
    return 0;
}
