/* gguf_keys.c - see gguf_keys.h: rows of tables, written and read. */
#include "formats/gguf/keys/gguf_keys.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_MAX ((int64_t)1 << 31)

/* --- writing ------------------------------------------------------------------------------ */

static void full_key(char out[SW_GGUF_KEY_BYTES], const sw_gguf_arch *arch, const char *leaf)
{
    (void)snprintf(out, SW_GGUF_KEY_BYTES, "%s.%s", arch->gguf, leaf);
}

sw_code sw_gguf_write_int(const sw_gguf_config_writer *c, const char *leaf, int64_t v)
{
    char key[SW_GGUF_KEY_BYTES];

    full_key(key, c->arch, leaf);
    return sw_gguf_put_int(c->w, key, SW_GGUF_U32, v, c->err);
}

sw_code sw_gguf_write_real(const sw_gguf_config_writer *c, const char *leaf, double v)
{
    char key[SW_GGUF_KEY_BYTES];

    full_key(key, c->arch, leaf);
    return sw_gguf_put_real(c->w, key, v, c->err);
}

sw_code sw_gguf_write_bool(const sw_gguf_config_writer *c, const char *leaf, bool v)
{
    char key[SW_GGUF_KEY_BYTES];

    full_key(key, c->arch, leaf);
    return sw_gguf_put_int(c->w, key, SW_GGUF_BOOL, v, c->err);
}

sw_code sw_gguf_write_text(const sw_gguf_config_writer *c, const char *leaf, const char *text)
{
    char key[SW_GGUF_KEY_BYTES];

    full_key(key, c->arch, leaf);
    return sw_gguf_put_text(c->w, key, text, c->err);
}

sw_code sw_gguf_write_layers(const sw_gguf_config_writer *c, const char *leaf, sw_gguf_kind kind,
                             sw_gguf_of_layer of_layer)
{
    char key[SW_GGUF_KEY_BYTES];
    sw_code rc;

    full_key(key, c->arch, leaf);
    rc = sw_gguf_put_array(c->w, key, kind, (uint64_t)c->m->n_layers, c->err);
    for (int64_t l = 0; l < c->m->n_layers && rc == SW_OK; l++)
        rc = sw_gguf_put_elem_int(c->w, of_layer(c->m, l), c->err);
    return rc;
}

sw_code sw_gguf_refuse(const sw_gguf_config_writer *c, const char *what)
{
    return SW_FAIL(c->err, SW_E_UNSUPPORTED, "%s: loaders of GGUF architecture %s %s",
                   c->m->arch->name, c->arch->gguf, what);
}

static const void *field_of(const sw_model *m, const sw_gguf_key_row *k)
{
    return (const char *)m + k->field;
}

/* Refuse a model that differs from what every loader takes for granted. */
static sw_code check_fixed(const sw_gguf_config_writer *c, const sw_gguf_key_row *k)
{
    double have = k->value;

    if (k->field == SW_GGUF_NO_FIELD) return SW_OK;
    if (k->kind == SW_GGUF_FIXED_BOOL) have = *(const bool *)field_of(c->m, k);
    if (k->kind == SW_GGUF_FIXED_INT) have = (double)*(const int64_t *)field_of(c->m, k);
    if (k->kind == SW_GGUF_FIXED_REAL) have = *(const double *)field_of(c->m, k);
    return fabs(have - k->value) <= 1e-9 * fabs(k->value) ? SW_OK : sw_gguf_refuse(c, k->text);
}

static sw_code write_key(const sw_gguf_config_writer *c, const sw_gguf_key_row *k)
{
    const int64_t width = c->m->moe_intermediate ? c->m->moe_intermediate : 1;
    int64_t n;

    switch (k->kind) {
    case SW_GGUF_KEY_INT:
        n = *(const int64_t *)field_of(c->m, k);
        return n || k->value <= SW_GGUF_REQUIRED ? sw_gguf_write_int(c, k->leaf, n) : SW_OK;
    case SW_GGUF_KEY_SHARE:
        n = *(const int64_t *)field_of(c->m, k);
        if (n % width) return sw_gguf_refuse(c, "expect whole experts as the shared one");
        return sw_gguf_write_int(c, k->leaf, n / width);
    case SW_GGUF_KEY_REAL:
        return sw_gguf_write_real(c, k->leaf, *(const double *)field_of(c->m, k));
    case SW_GGUF_KEY_INVERSE:
        return sw_gguf_write_real(c, k->leaf, 1.0 / *(const double *)field_of(c->m, k));
    case SW_GGUF_KEY_BOOL:
        return sw_gguf_write_bool(c, k->leaf, *(const bool *)field_of(c->m, k));
    case SW_GGUF_FILE_INT:
        return sw_gguf_write_int(c, k->leaf, (int64_t)k->value);
    case SW_GGUF_FIXED_INT:
    case SW_GGUF_FIXED_REAL:
    case SW_GGUF_FIXED_BOOL:
        return check_fixed(c, k);
    default:
        return SW_OK;
    }
}

sw_code sw_gguf_write_keys(const sw_gguf_config_writer *c, const sw_gguf_key_row *keys)
{
    sw_code rc = SW_OK;

    for (; keys && keys->kind && rc == SW_OK; keys++) rc = write_key(c, keys);
    return rc;
}

/* --- reading ------------------------------------------------------------------------------ */

const char *sw_gguf_key_of(char out[SW_GGUF_KEY_BYTES], const sw_gguf_config_reader *r,
                           const char *leaf)
{
    full_key(out, r->arch, leaf);
    return out;
}

sw_code sw_gguf_added(const sw_gguf_config_reader *r, const void *item)
{
    return item ? SW_OK : SW_FAIL(r->err, SW_E_NOMEM, "no memory for the configuration");
}

sw_code sw_gguf_add_int(const sw_gguf_config_reader *r, const char *key, int64_t v)
{
    return sw_gguf_added(r, cJSON_AddNumberToObject(r->config, key, (double)v));
}

/* 1e-5 as a float is 9.99999974e-06 as a double. Find the shortest text that means the same
 * float. */
static double shortest(double v)
{
    char text[32];

    for (int digits = 1; digits < 10; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, v);
        if ((float)strtod(text, NULL) == (float)v) return strtod(text, NULL);
    }
    return v;
}

sw_code sw_gguf_add_real(const sw_gguf_config_reader *r, cJSON *to, const char *key, double v)
{
    return sw_gguf_added(r, cJSON_AddNumberToObject(to, key, shortest(v)));
}

sw_code sw_gguf_add_bool(const sw_gguf_config_reader *r, const char *key, bool v)
{
    return sw_gguf_added(r, cJSON_AddBoolToObject(r->config, key, v));
}

sw_code sw_gguf_add_text(const sw_gguf_config_reader *r, cJSON *to, const char *key,
                         const char *text)
{
    return sw_gguf_added(r, cJSON_AddStringToObject(to, key, text));
}

sw_code sw_gguf_add_words(const sw_gguf_config_reader *r, const char *key, const int64_t *index,
                          const char *const *words)
{
    cJSON *list = cJSON_AddArrayToObject(r->config, key);

    for (int64_t l = 0; list && l < r->n_layers; l++) {
        cJSON *word = cJSON_CreateString(words[index[l]]);
        if (!word || !cJSON_AddItemToArray(list, word)) return sw_gguf_added(r, NULL);
    }
    return sw_gguf_added(r, list);
}

bool sw_gguf_has_tensor(const sw_gguf_config_reader *r, const char *name)
{
    return sw_gguf_find(r->g, name) != NULL;
}

static sw_code missing(const sw_gguf_config_reader *r, const char *key)
{
    return SW_FAIL(r->err, SW_E_FORMAT, "%s: key %s is missing", sw_gguf_file_path(r->g, 0), key);
}

sw_code sw_gguf_read_count(int64_t *out, const sw_gguf_config_reader *r, const char *leaf,
                           double when_absent)
{
    char key[SW_GGUF_KEY_BYTES];
    sw_code rc;

    *out = when_absent <= SW_GGUF_REQUIRED ? -1 : (int64_t)when_absent;
    rc = sw_gguf_int(out, r->g, sw_gguf_key_of(key, r, leaf), 0, COUNT_MAX, r->err);
    return rc == SW_OK && *out < 0 ? missing(r, key) : rc;
}

sw_code sw_gguf_read_real(double *out, const sw_gguf_config_reader *r, const char *leaf)
{
    char key[SW_GGUF_KEY_BYTES];

    return sw_gguf_real(out, r->g, sw_gguf_key_of(key, r, leaf), r->err);
}

sw_code sw_gguf_read_layers(int64_t *out, bool *is_there, const sw_gguf_config_reader *r,
                            const char *leaf)
{
    char key[SW_GGUF_KEY_BYTES];
    const sw_gguf_value *v = sw_gguf_key(r->g, sw_gguf_key_of(key, r, leaf));
    int64_t one = 0;
    sw_code rc = SW_OK;

    *is_there = v != NULL;
    if (v && v->kind == SW_GGUF_ARRAY &&
        (v->elem_kind == SW_GGUF_TEXT || v->elem_kind == SW_GGUF_ARRAY ||
         v->elem_kind == SW_GGUF_F32 || v->elem_kind == SW_GGUF_F64 ||
         v->n < (uint64_t)r->n_layers))
        return SW_FAIL(r->err, SW_E_FORMAT, "%s: key %s is no list of a number for each of %lld "
                       "layers", sw_gguf_file_path(r->g, 0), key, (long long)r->n_layers);
    if (v && v->kind != SW_GGUF_ARRAY) rc = sw_gguf_int(&one, r->g, key, 0, COUNT_MAX, r->err);
    for (int64_t l = 0; l < r->n_layers && rc == SW_OK; l++) {
        out[l] = v && v->kind == SW_GGUF_ARRAY ? sw_gguf_elem_int(v, (uint64_t)l) : one;
        if (out[l] < 0 || out[l] > COUNT_MAX)
            return SW_FAIL(r->err, SW_E_FORMAT, "%s: key %s has %lld for layer %lld",
                           sw_gguf_file_path(r->g, 0), key, (long long)out[l], (long long)l);
    }
    return rc;
}

static bool has_leaf(const sw_gguf_config_reader *r, const char *leaf)
{
    char key[SW_GGUF_KEY_BYTES];

    return sw_gguf_key(r->g, sw_gguf_key_of(key, r, leaf)) != NULL;
}

static sw_code read_key(sw_gguf_config_reader *r, const sw_gguf_key_row *k)
{
    bool yes = k->value > 0.0;
    double real = k->value;
    char key[SW_GGUF_KEY_BYTES];
    int64_t n = 0;
    sw_code rc;

    if (!k->json) return SW_OK;
    if (k->kind == SW_GGUF_FIXED_TEXT) return sw_gguf_add_text(r, r->config, k->json, k->text);
    if (k->kind == SW_GGUF_FIXED_BOOL) return sw_gguf_add_bool(r, k->json, yes);
    if (k->kind == SW_GGUF_FIXED_INT) return sw_gguf_add_int(r, k->json, (int64_t)k->value);
    if (k->kind == SW_GGUF_FIXED_REAL) return sw_gguf_add_real(r, r->config, k->json, k->value);
    if (!has_leaf(r, k->leaf) && k->value <= SW_GGUF_UNSAID) return SW_OK;
    if (k->kind == SW_GGUF_KEY_BOOL) {
        rc = sw_gguf_bool(&yes, r->g, sw_gguf_key_of(key, r, k->leaf), r->err);
        return rc ? rc : sw_gguf_add_bool(r, k->json, yes);
    }
    if (k->kind == SW_GGUF_KEY_REAL || k->kind == SW_GGUF_KEY_INVERSE) {
        if ((rc = sw_gguf_read_real(&real, r, k->leaf)) != SW_OK) return rc;
        if (real <= SW_GGUF_REQUIRED) return missing(r, sw_gguf_key_of(key, r, k->leaf));
        return sw_gguf_add_real(r, r->config, k->json, real);
    }
    rc = sw_gguf_read_count(&n, r, k->leaf, k->value);
    return rc ? rc : sw_gguf_add_int(r, k->json, n);
}

sw_code sw_gguf_read_keys(sw_gguf_config_reader *r, const sw_gguf_key_row *keys)
{
    sw_code rc = SW_OK;

    for (; keys && keys->kind && rc == SW_OK; keys++) rc = read_key(r, keys);
    return rc;
}
