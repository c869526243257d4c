/* fuzz_gguf.c - any bytes as a GGUF: refused with a message, or every key and view is sound. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dialect/dialect_gguf.h"
#include "formats/gguf/gguf_config.h"
#include "formats/gguf/gguf_dtype.h"
#include "formats/gguf/gguf_generation.h"
#include "formats/gguf/gguf_model.h"
#include "formats/gguf/gguf_pre.h"
#include "formats/num/blocks.h"
#include "formats/text/tokenizer.h"

#define MUST(condition)            \
    do {                           \
        if (!(condition)) abort(); \
    } while (0)

/* A row that is said to be codes decodes to them, and they encode to the same values. */
static void check_codes(const sw_gguf_tensor *t)
{
    const int64_t n = t->shape[t->n_dims - 1];
    const size_t row_bytes = (size_t)sw_block_bytes(t->type, n);
    float have[SW_BLOCK_ELEMS_MAX], want[SW_BLOCK_ELEMS_MAX];
    sw_qtensor q = {0};
    sw_qspec spec;
    uint8_t *row;

    if (n > 1 << 16 || !sw_gguf_row_has_codes(t->data, t->type, n)) return;
    MUST(sw_gguf_spec_of_type(&spec, t->type));
    MUST(sw_qtensor_alloc(&q, &spec, 1, n, NULL) == SW_OK);
    MUST(sw_gguf_decode_row(&q, t->data, 0, NULL) == SW_OK);
    row = calloc(1, row_bytes);
    MUST(row);
    if (sw_qtensor_check(&q, NULL) == SW_OK) { /* else a scale is no number */
        sw_gguf_encode_row(row, &q, 0);
        sw_block_decode(have, row, t->type, sw_block_sizes[t->type].elems);
        sw_block_decode(want, t->data, t->type, sw_block_sizes[t->type].elems);
        for (int i = 0; i < sw_block_sizes[t->type].elems; i++) MUST(have[i] == want[i]);
    }
    free(row);
    sw_qtensor_free(&q);
}

static void check_tensors(const sw_gguf *g, const uint8_t *data, size_t size)
{
    for (int64_t i = 0; i < sw_gguf_count(g); i++) {
        const sw_gguf_tensor *t = sw_gguf_at(g, i);
        const uint8_t *begin = t->data;
        float block[SW_BLOCK_ELEMS_MAX];
        uint64_t n = 1;

        MUST(i == 0 || strcmp(sw_gguf_at(g, i - 1)->name, t->name) < 0);
        MUST(sw_gguf_find(g, t->name) == t);
        MUST(begin >= data && begin <= data + size);
        MUST(t->size_bytes <= (uint64_t)(data + size - begin));
        for (int d = 0; d < t->n_dims; d++) n *= (uint64_t)t->shape[d];
        MUST((uint64_t)sw_block_bytes(t->type, (int64_t)n) == t->size_bytes);
        sw_block_decode(block, t->data, t->type, sw_block_sizes[t->type].elems);
        (void)!sw_block_check(t->data, t->type, sw_block_sizes[t->type].elems, NULL);
        check_codes(t);
    }
}

/* Every element of every key, by every way there is to ask. */
static void read_keys(const sw_gguf *g)
{
    sw_arena arena = {0};

    for (int64_t i = 0; i < sw_gguf_n_keys(g); i++) {
        const sw_gguf_value *v = sw_gguf_key_at(g, i), *array = NULL;
        const unsigned char *at = v->data;
        const char *text = NULL;
        int64_t number = 0;
        double real = 0;
        bool flag = false, is_real;

        MUST(sw_gguf_key(g, v->key) == v);
        (void)!sw_gguf_int(&number, g, v->key, INT64_MIN, INT64_MAX, NULL);
        (void)!sw_gguf_real(&real, g, v->key, NULL);
        (void)!sw_gguf_bool(&flag, g, v->key, NULL);
        (void)!sw_gguf_text(&text, g, v->key, &arena, NULL);
        if (v->kind != SW_GGUF_ARRAY) continue;
        MUST(sw_gguf_array(&array, g, v->key, v->elem_kind, NULL) == SW_OK && array == v);
        for (uint64_t e = 0; e < v->n && v->elem_kind == SW_GGUF_TEXT; e++) {
            uint64_t n = 0;
            const char *elem = sw_gguf_next_text(&at, &n);
            for (uint64_t b = 0; b < n; b++) number += elem[b];
        }
        is_real = v->elem_kind == SW_GGUF_F32 || v->elem_kind == SW_GGUF_F64;
        if (v->elem_kind == SW_GGUF_TEXT || v->elem_kind == SW_GGUF_ARRAY) continue;
        for (uint64_t e = 0; e < v->n; e++)
            real += is_real ? sw_gguf_elem_real(v, e) : (double)sw_gguf_elem_int(v, e);
    }
    sw_arena_free(&arena);
}

static const sw_json_caps caps = {
    .max_bytes = (size_t)128 << 20, .max_depth = 32, .max_values = 8000000};

static void must_parse(const char *text)
{
    cJSON *json = NULL;

    MUST(sw_json_parse(&json, text, strlen(text), &caps, "made", NULL) == SW_OK);
    cJSON_Delete(json);
}

/* A tokenizer.json that was made of a GGUF is JSON, and has the name of its pre-tokenizer again. */
static void write_again(const char *tokenizer)
{
    const sw_gguf_pre *pre = NULL;
    const cJSON *model;
    cJSON *json = NULL;

    MUST(sw_json_parse(&json, tokenizer, strlen(tokenizer), &caps, "made", NULL) == SW_OK);
    model = sw_json_member(json, "model");
    if (cJSON_IsFalse(sw_json_member(model, "byte_fallback")) && sw_json_member(model, "merges"))
        MUST(sw_gguf_pre_match(&pre, json, -1, NULL) == SW_OK && pre);
    cJSON_Delete(json);
}

/* Its tokenizer and configuration: made or refused. */
static void read_model(const sw_gguf *g)
{
    const sw_gguf_arch *arch = NULL;
    char *tokenizer = NULL, *config = NULL, *special = NULL, *generation = NULL;
    const sw_dtype dtype = sw_gguf_model_dtype(g);
    cJSON *json = NULL;
    size_t n_bytes = 0;
    sw_err err = {0};

    if (sw_gguf_tokenizer(&tokenizer, &n_bytes, g, &err) == SW_OK) {
        sw_tokenizer *tok = NULL;

        MUST(strlen(tokenizer) == n_bytes);
        write_again(tokenizer);
        if (sw_tokenizer_open_bytes(&tok, tokenizer, n_bytes, "made", NULL) == SW_OK)
            sw_tokenizer_free(tok);
    }
    if (sw_gguf_tokenizer_config(&config, g, NULL) == SW_OK) must_parse(config);
    if (sw_gguf_special_tokens(&special, g, NULL) == SW_OK) must_parse(special);
    MUST(sw_gguf_generation_config(&generation, g, NULL) == SW_OK);
    if (sw_gguf_config_read(&json, &arch, g, sw_gguf_dtype_text(dtype), NULL) == SW_OK) {
        sw_model model;

        (void)!sw_model_read(&model, json, NULL);
        cJSON_Delete(json);
    }
    sw_mem_put(tokenizer);
    sw_mem_put(config);
    sw_mem_put(special);
    sw_mem_put(generation);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sw_err err = {0};
    sw_gguf *g = NULL;
    sw_code rc = sw_gguf_open_bytes(&g, data, size, "fuzz", &err);

    if (rc == SW_OK) {
        MUST(g && err.code == SW_OK);
        check_tensors(g, data, size);
        read_keys(g);
        read_model(g);
        sw_gguf_close(g);
    } else {
        MUST((rc == SW_E_FORMAT || rc == SW_E_UNSUPPORTED) && err.code == rc);
        MUST(!strncmp(err.text, "fuzz: ", 6) && !g);
    }
    return 0;
}
