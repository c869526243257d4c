/* fuzz_quant_config.c - hostile quantization_config objects, and tensors made of the same bytes.
 *
 * The text is read as a quantization_config: what is accepted must be a scheme of ours and must
 * survive being written and read again. Weights decoded from the bytes under that scheme must
 * come back unchanged from encoding. The text is also taken for a config.json to splice into.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/dialect/dialect.h"
#include "formats/dialect/rules.h"
#include "formats/file/config_text.h"

#define K_IN 128

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

static void rewrite(const sw_dialect *dialect, const sw_qconfig *config, sw_arena *arena)
{
    sw_qconfig back = {0};
    cJSON *object = NULL;
    sw_err err = {0};

    if (config->n_rules) return; /* patterns of others are read, not written */
    if (dialect->write_config(&object, config, &err) != SW_OK) return;
    insist(dialect->is_mine(object));
    insist(dialect->read_config(&back, object, arena, &err) == SW_OK);
    insist(back.spec.num == config->spec.num);
    insist(back.spec.is_symmetric == config->spec.is_symmetric);
    insist(back.spec.group_elems == config->spec.group_elems);
    cJSON_Delete(object);
}

/* Whatever the rules are, each path has one scheme or none, and patterns come to an end. */
static void ask_rules(const sw_qconfig *config)
{
    static const char *const paths[] = {"model.layers.0.self_attn.q_proj", "aaaaaaaaaaaaaaaa", ""};
    sw_rules *rules = NULL;
    sw_err err = {0};

    if (sw_rules_new(&rules, config, &err) != SW_OK) return;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        sw_qspec spec = {.num = NULL};
        if (sw_rules_find(&spec, rules, paths[i], &err) == SW_OK) insist(spec.num != NULL);
    }
    sw_rules_free(rules);
}

/* Buffers of the declared sizes; filled with the input, over and over, when there is one. */
static int take_parts(void *out[SW_DIALECT_TENSORS_MAX], uint64_t bytes[SW_DIALECT_TENSORS_MAX],
                      const sw_dialect *dialect, const sw_qspec *spec, const uint8_t *data,
                      size_t size)
{
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    int n = dialect->declare(parts, spec, n_out_of(dialect), K_IN);

    for (int i = 0; i < n; i++) {
        insist(sw_shape_bytes(&bytes[i], parts[i].dtype, parts[i].n_dims, parts[i].shape, NULL) ==
               SW_OK);
        insist(sw_mem_get(&out[i], (int64_t)bytes[i], 1, "part", NULL) == SW_OK);
        for (uint64_t b = 0; size && b < bytes[i]; b++)
            ((uint8_t *)out[i])[b] = data[(b + (uint64_t)i * 7) % size];
    }
    return n;
}

static void put_parts(void *parts[SW_DIALECT_TENSORS_MAX], int n)
{
    for (int i = 0; i < n; i++) sw_mem_put(parts[i]);
}

static void expect_same(const sw_qtensor *a, const sw_qtensor *b)
{
    size_t n_groups = (size_t)(a->n_out * a->n_groups);

    insist(!memcmp(a->codes, b->codes, (size_t)(a->n_out * a->k_in)));
    insist(!memcmp(a->scales, b->scales, n_groups * sizeof *a->scales));
    insist(!a->zeros == !b->zeros && !a->g_idx == !b->g_idx);
    insist(!a->zeros || !memcmp(a->zeros, b->zeros, n_groups));
    insist(!a->g_idx || !memcmp(a->g_idx, b->g_idx, (size_t)a->k_in * sizeof *a->g_idx));
}

static void decode(const sw_dialect *dialect, const sw_qspec *spec, const uint8_t *data,
                   size_t size)
{
    void *parts[SW_DIALECT_TENSORS_MAX] = {NULL}, *again[SW_DIALECT_TENSORS_MAX] = {NULL};
    uint64_t bytes[SW_DIALECT_TENSORS_MAX];
    sw_qtensor q = {0}, back = {0};
    int n = take_parts(parts, bytes, dialect, spec, data, size);

    insist(sw_qtensor_alloc(&q, spec, n_out_of(dialect), K_IN, NULL) == SW_OK);
    if (dialect->decode(&q, (const void *const *)parts, NULL) == SW_OK &&
        sw_qtensor_check(&q, NULL) == SW_OK) {
        (void)take_parts(again, bytes, dialect, &q.spec, NULL, 0); /* a plain g_idx is dropped */
        insist(sw_qtensor_alloc(&back, &q.spec, n_out_of(dialect), K_IN, NULL) == SW_OK);
        if (dialect->encode(again, &q, NULL) == SW_OK) {
            insist(dialect->decode(&back, (const void *const *)again, NULL) == SW_OK);
            expect_same(&back, &q);
        }
        sw_qtensor_free(&back);
    }
    sw_qtensor_free(&q);
    put_parts(parts, n);
    put_parts(again, n);
}

static void splice(const char *text, size_t size)
{
    cJSON *quant = cJSON_CreateObject(), *parsed = NULL;
    char *spliced = NULL;
    sw_err err = {0};

    if (quant && sw_config_splice(&spliced, text, size, quant, NULL, &err) == SW_OK) {
        insist(sw_json_parse(&parsed, spliced, strlen(spliced), &sw_json_caps_config, "spliced",
                             &err) == SW_OK);
        insist(sw_json_member(parsed, "quantization_config") != NULL);
        cJSON_Delete(parsed);
    }
    sw_mem_put(spliced);
    cJSON_Delete(quant);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cJSON *object = NULL;
    sw_err err = {0};

    if (sw_json_parse(&object, (const char *)data, size, &sw_json_caps_config, "input", &err) !=
        SW_OK)
        return 0;
    for (const sw_dialect *const *d = sw_dialects; *d; d++) {
        sw_qconfig config = {.spec.scale_dtype = size % 2 ? SW_DTYPE_F16 : SW_DTYPE_BF16};
        sw_arena arena = {0};
        memset(&err, 0, sizeof err);
        if ((*d)->read_config(&config, object, &arena, &err) == SW_OK) {
            insist(config.spec.num != NULL && config.spec.group_elems >= 0);
            rewrite(*d, &config, &arena);
            ask_rules(&config);
            if (config.spec.group_elems <= K_IN) decode(*d, &config.spec, data, size);
        } else {
            insist(err.text[0] != '\0');
        }
        sw_arena_free(&arena);
    }
    if (cJSON_IsObject(object)) splice((const char *)data, size);
    cJSON_Delete(object);
    return 0;
}
