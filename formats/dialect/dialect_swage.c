/* dialect_swage.c - Swage tiles in a container, ready to be mapped and run.
 *
 * Per linear P of K inputs, N outputs, G groups (tiles.h has the inside of a tile):
 *   P.tiles        U8       [ceil(N/64), ceil(K/64), 512 * bits], bits 2, 3, 4 or 8
 *   P.tile_scales  F16, ...  [ceil(N/64), G, 64]        or what the format fixes
 *   P.tile_shape   I64      [2]                 N, K: what is padding follows from it
 *   P.tile_zeros   U8       [ceil(N/64), G, 64] asymmetric only
 *   P.tile_global  F32      [1]                 multiplies all values; with a global scale only
 *   P.input_scale  F32      [1]                 inputs under a stored scale only
 *   P.outlier_index  I32    [n]                 n input channels, rising; with outliers only
 *   P.outlier_values F16    [N, n]              their weights; their codes stand for 0
 * Layout name and version stand in quantization_config and in the container's metadata.
 */
#include <math.h>
#include <string.h>

#include "formats/base/size.h"
#include "formats/dialect/dialect_common.h"
#include "formats/num/half.h"
#include "formats/pack/tiles.h"

#define LAYOUT "swage-tiles"
#define LAYOUT_VERSION "2"
_Static_assert(SW_TILES_VERSION == 2, "the texts here name version 2");

enum { PART_TILES, PART_SCALES, PART_SHAPE, PART_REST };

/* Where the parts lie that not every scheme has; -1: nowhere. */
typedef struct rest_parts {
    int zeros, global, input, outliers, n; /* two of the outliers, index first */
} rest_parts;

static rest_parts rest_of(const sw_qspec *spec)
{
    rest_parts at = {-1, -1, -1, -1, PART_REST};

    if (!spec->is_symmetric) at.zeros = at.n++;
    if (spec->has_global) at.global = at.n++;
    if (sw_act_needs_input_scale(&spec->act)) at.input = at.n++;
    if (spec->n_outliers) {
        at.outliers = at.n;
        at.n += 2;
    }
    return at;
}

static float single_of(const void *const parts[], int at)
{
    return at < 0 ? 0.0f : sw_f32_from_bits(sw_load_le32(parts[at]));
}

static sw_code can_hold(const sw_qspec *spec, int64_t n_out, int64_t k_in, sw_err *err)
{
    sw_qspec codes = *spec;
    sw_code rc;

    (void)n_out;
    codes.n_outliers = 0;
    if ((rc = sw_hold_division("swage", &codes, k_in, err)) != SW_OK ||
        (rc = sw_hold_neighbours("swage", spec, err)) != SW_OK)
        return rc;
    if (spec->n_outliers < 0 || spec->n_outliers > k_in)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "swage: %lld outlier channels of %lld",
                       (long long)spec->n_outliers, (long long)k_in);
    if (spec->group_elems % 16)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "swage: tiles need groups of a multiple of 16, not "
                       "%lld; use 16, 32, 64, 128 or channel", (long long)spec->group_elems);
    return SW_OK;
}

static int declare(sw_part out[SW_DIALECT_TENSORS_MAX], const sw_qspec *spec, int64_t n_out,
                   int64_t k_in)
{
    int64_t n_tiles = sw_tiles_n(n_out), n_groups = sw_qspec_groups(spec, k_in);
    int64_t tile_bytes = sw_tile_bytes(sw_tiles_stored_bits(spec->num));
    rest_parts at = rest_of(spec);

    out[PART_TILES] = sw_part_3d("tiles", SW_DTYPE_U8, n_tiles, sw_tiles_k(k_in), tile_bytes);
    out[PART_SCALES] = sw_part_3d("tile_scales", spec->scale_dtype, n_tiles, n_groups, SW_TILE_N);
    out[PART_SCALES].is_scale = true;
    out[PART_SHAPE] = sw_part_1d("tile_shape", SW_DTYPE_I64, 2);
    out[PART_SHAPE].is_shape = true;
    if (at.zeros >= 0)
        out[at.zeros] = sw_part_3d("tile_zeros", SW_DTYPE_U8, n_tiles, n_groups, SW_TILE_N);
    if (at.global >= 0) out[at.global] = sw_part_1d("tile_global", SW_DTYPE_F32, 1);
    if (at.input >= 0) out[at.input] = sw_part_1d("input_scale", SW_DTYPE_F32, 1);
    if (at.outliers < 0) return at.n;
    out[at.outliers] = sw_part_1d("outlier_index", SW_DTYPE_I32, spec->n_outliers);
    out[at.outliers + 1] = sw_part_2d("outlier_values", SW_DTYPE_F16, n_out, spec->n_outliers);
    return at.n;
}

static void store_outliers(void *const parts[], const sw_qtensor *q)
{
    int at = rest_of(&q->spec).outliers;

    for (int64_t i = 0; i < q->spec.n_outliers; i++)
        sw_store_le32((uint8_t *)parts[at] + 4 * i, (uint32_t)q->outlier_cols[i]);
    for (int64_t i = 0; i < q->n_out * q->spec.n_outliers; i++)
        sw_store_le16((uint8_t *)parts[at + 1] + 2 * i, sw_f16_encode(q->outlier_values[i]));
}

static void load_outliers(sw_qtensor *q, const void *const parts[])
{
    int at = rest_of(&q->spec).outliers;

    for (int64_t i = 0; i < q->spec.n_outliers; i++)
        q->outlier_cols[i] = (int32_t)sw_load_le32((const uint8_t *)parts[at] + 4 * i);
    for (int64_t i = 0; i < q->n_out * q->spec.n_outliers; i++)
        q->outlier_values[i] =
            sw_f16_decode(sw_load_le16((const uint8_t *)parts[at + 1] + 2 * i));
}

/* What a kernel reads without looking: channels within the weight, finite values. */
static sw_code check_outliers(const sw_tiles *t, sw_err *err)
{
    int64_t n = t->spec.n_outliers;

    for (int64_t i = 0; i < n; i++)
        if (t->outlier_cols[i] < 0 || t->outlier_cols[i] >= t->k_in ||
            (i && t->outlier_cols[i] <= t->outlier_cols[i - 1]))
            return SW_FAIL(err, SW_E_FORMAT, "outlier_index[%lld] is %d; must rise, and stay below "
                           "%lld", (long long)i, t->outlier_cols[i], (long long)t->k_in);
    for (int64_t i = 0; i < t->n_out * n; i++)
        if (!isfinite(sw_f16_decode(t->outlier_values[i])))
            return SW_FAIL(err, SW_E_FORMAT, "outlier_values of row %lld, column %d is not finite",
                           (long long)(i / n), t->outlier_cols[i % n]);
    return SW_OK;
}

static sw_code encode(void *const parts[], const sw_qtensor *q, sw_err *err)
{
    rest_parts at = rest_of(&q->spec);

    sw_shape_store(parts[PART_SHAPE], q);
    if (at.global >= 0) sw_store_le32(parts[at.global], sw_f32_bits(q->global_scale));
    if (at.input >= 0) sw_store_le32(parts[at.input], sw_f32_bits(q->input_scale));
    store_outliers(parts, q);
    return sw_tiles_pack_stored(parts[PART_TILES], parts[PART_SCALES],
                                q->zeros ? parts[at.zeros] : NULL, q, err);
}

/* The stored parts as tiles; nothing is checked. */
static sw_tiles tiles_of(const sw_qspec *spec, int64_t n_out, int64_t k_in,
                         const void *const parts[])
{
    rest_parts at = rest_of(spec);
    sw_tiles tiles = {.spec = *spec, .n_out = n_out, .k_in = k_in,
                      .n_groups = sw_qspec_groups(spec, k_in),
                      .container_bits = sw_tiles_stored_bits(spec->num),
                      .codes = parts[PART_TILES], .scales = parts[PART_SCALES],
                      .zeros = at.zeros < 0 ? NULL : parts[at.zeros],
                      .global_scale = single_of(parts, at.global),
                      .input_scale = single_of(parts, at.input),
                      .outlier_cols = at.outliers < 0 ? NULL : parts[at.outliers],
                      .outlier_values = at.outliers < 0 ? NULL : parts[at.outliers + 1]};

    return tiles;
}

static sw_code decode(sw_qtensor *q, const void *const parts[], sw_err *err)
{
    sw_tiles tiles = tiles_of(&q->spec, q->n_out, q->k_in, parts);
    sw_code rc = sw_shape_check(parts[PART_SHAPE], "tile_shape", q->n_out, q->k_in, err);

    if (rc != SW_OK) return rc;
    load_outliers(q, parts);
    return sw_tiles_unpack(q, &tiles, err);
}

/* Scales of real channels must be legal, those of padding zero bits. */
static sw_code check_record(const sw_tiles *t, int64_t n, int64_t g, sw_err *err)
{
    int64_t at = (n / SW_TILE_N * t->n_groups + g) * SW_TILE_N + sw_tile_slot((int)(n % SW_TILE_N));
    size_t bytes = (size_t)sw_dtype_bits(t->spec.scale_dtype) / 8;
    const uint8_t *stored = (const uint8_t *)t->scales + (size_t)at * bytes;
    static const uint8_t zero[4];
    float scale;
    sw_code rc = sw_float_decode_n(&scale, stored, t->spec.scale_dtype, 1, err);

    if (rc != SW_OK) return rc;
    if (n < t->n_out) return sw_scale_check(scale, &t->spec, t->global_scale, n, g, err);
    if (memcmp(stored, zero, bytes) == 0) return SW_OK;
    return SW_FAIL(err, SW_E_FORMAT, "scale %g at row %lld, group %lld; must be 0 in padding",
                   (double)scale, (long long)n, (long long)g);
}

static sw_code check_scales(const sw_tiles *t, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t n = 0; n < sw_tiles_n(t->n_out) * SW_TILE_N; n++)
        for (int64_t g = 0; g < t->n_groups && rc == SW_OK; g++) rc = check_record(t, n, g, err);
    return rc;
}

static sw_code map_tiles(sw_tiles *out, const sw_qspec *spec, int64_t n_out, int64_t k_in,
                         const void *const parts[], sw_err *err)
{
    sw_tiles tiles = tiles_of(spec, n_out, k_in, parts);
    sw_code rc = sw_shape_check(parts[PART_SHAPE], "tile_shape", n_out, k_in, err);

    if (rc != SW_OK || (rc = check_scales(&tiles, err)) != SW_OK ||
        (rc = check_outliers(&tiles, err)) != SW_OK)
        return rc;
    *out = tiles;
    return SW_OK;
}

/* Is there anything that the keys of integer schemes do not say? */
static bool is_beyond(const sw_qconfig *config)
{
    bool is = !sw_spec_is_classic(&config->spec);

    for (int64_t i = 0; i < config->n_rules; i++)
        is = is || !sw_spec_is_classic(&config->rules[i].spec);
    return is;
}

/* "modules": {"model.layers.0.mlp.down_proj": {"bits": 8, "group_size": 64, "sym": true}, ...}
 * for those that differ from the scheme of all. */
static bool add_modules(cJSON *root, const sw_qconfig *config)
{
    cJSON *modules = NULL;
    bool ok = true;

    if (!config->n_rules) return true;
    modules = cJSON_AddObjectToObject(root, "modules");
    for (int64_t i = 0; modules && ok && i < config->n_rules; i++) {
        const sw_qrule *rule = &config->rules[i];
        cJSON *object;
        if (sw_qspec_same(&rule->spec, &config->spec)) continue;
        object = cJSON_AddObjectToObject(modules, rule->pattern);
        ok = object && sw_config_add_spec(object, &rule->spec) &&
             (!is_beyond(config) || sw_config_add_beyond(object, &rule->spec));
    }
    return modules && ok;
}

static sw_code write_config(cJSON **out, const sw_qconfig *config, sw_err *err)
{
    const sw_qspec *spec = &config->spec;
    cJSON *root = cJSON_CreateObject(), *ignore = NULL;
    bool ok = root && cJSON_AddStringToObject(root, "quant_method", "swage") &&
              cJSON_AddStringToObject(root, "layout", LAYOUT) &&
              cJSON_AddNumberToObject(root, "layout_version", SW_TILES_VERSION) &&
              sw_config_add_spec(root, spec) &&
              (!is_beyond(config) || sw_config_add_beyond(root, spec)) && add_modules(root, config);

    ignore = ok ? cJSON_AddArrayToObject(root, "ignore") : NULL;
    ok = ignore != NULL;
    for (int64_t i = 0; ok && i < config->n_ignore; i++)
        ok = sw_config_append(ignore, config->ignore[i]);
    return sw_config_done(out, root, ok, err);
}

/* Codes of 2 and 3 bits lay in other containers in version 1. */
static sw_code check_first(const sw_qconfig *config, sw_err *err)
{
    int bits = config->spec.num->bits;

    for (int64_t i = 0; i < config->n_rules; i++)
        if (config->rules[i].spec.num->bits < bits) bits = config->rules[i].spec.num->bits;
    if (bits >= 4) return SW_OK;
    return SW_FAIL(err, SW_E_UNSUPPORTED, LAYOUT " version 1 with %d-bit codes, which version "
                   LAYOUT_VERSION " stores in less; quantize again", bits);
}

static sw_code check_layout(bool *is_first, const cJSON *object, sw_err *err)
{
    const char *layout = "absent";
    int64_t version = 0;
    sw_code rc;

    if ((rc = sw_json_text(&layout, object, "layout", err)) != SW_OK ||
        (rc = sw_json_int(&version, object, "layout_version", 0, 1 << 20, err)) != SW_OK)
        return rc;
    if (strcmp(layout, LAYOUT) || version < 1 || version > SW_TILES_VERSION)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "layout \"%.60s\" version %lld; " LAYOUT " up to "
                       "version " LAYOUT_VERSION " can be read", layout, (long long)version);
    *is_first = version == 1;
    return SW_OK;
}

static sw_code read_modules(sw_qconfig *out, const cJSON *object, sw_arena *arena, sw_err *err)
{
    const cJSON *modules = sw_json_member(object, "modules"), *module;
    sw_qrule *rules = NULL;
    char *path;
    sw_code rc;

    if (!modules) return SW_OK;
    if (!cJSON_IsObject(modules)) return SW_FAIL(err, SW_E_FORMAT, "modules: not an object");
    if ((rc = SW_ARENA_TAKE(&rules, arena, cJSON_GetArraySize(modules), err)) != SW_OK) return rc;
    cJSON_ArrayForEach(module, modules)
    {
        const char *name = module->string;
        sw_qrule rule = {.is_exact = true, .spec = out->spec};
        if (!cJSON_IsObject(module))
            return SW_FAIL(err, SW_E_FORMAT, "modules: %.100s: not an object", name);
        if ((rc = sw_config_read_bits(&rule.spec.num, module, err)) != SW_OK ||
            (rc = sw_config_read_shape(&rule.spec, module, err)) != SW_OK ||
            (rc = sw_config_read_beyond(&rule.spec, module, err)) != SW_OK) {
            sw_err_prefix(err, "modules: %.100s", name);
            return rc;
        }
        if ((rc = sw_arena_text(&path, arena, name, strlen(name), err)) != SW_OK) return rc;
        rule.pattern = path;
        rules[out->n_rules++] = rule;
    }
    out->rules = rules;
    return SW_OK;
}

static sw_code read_config(sw_qconfig *out, const cJSON *object, sw_arena *arena, sw_err *err)
{
    sw_qconfig config = {.spec = {.scale_dtype = out->spec.scale_dtype, .is_symmetric = true}};
    bool is_first = false;
    sw_code rc;

    if ((rc = check_layout(&is_first, object, err)) != SW_OK ||
        (rc = sw_config_read_bits(&config.spec.num, object, err)) != SW_OK ||
        (rc = sw_config_group(&config.spec.group_elems, object, "group_size", err)) != SW_OK ||
        (rc = sw_json_bool(&config.spec.is_symmetric, object, "sym", err)) != SW_OK ||
        (rc = sw_json_int(&config.spec.n_outliers, object, "outliers", 0, INT32_MAX, err)) !=
            SW_OK ||
        (rc = sw_config_read_beyond(&config.spec, object, err)) != SW_OK ||
        (rc = sw_config_read_ignore(&config, object, "ignore", arena, err)) != SW_OK ||
        (rc = read_modules(&config, object, arena, err)) != SW_OK ||
        (is_first && (rc = check_first(&config, err)) != SW_OK))
        return rc;
    *out = config;
    return SW_OK;
}

static bool is_mine(const cJSON *object)
{
    return sw_config_method_is(object, "swage");
}

static const char *const metadata[] = {"swage.layout", LAYOUT, "swage.layout_version",
                                       LAYOUT_VERSION, NULL};

const sw_dialect sw_dialect_swage = {
    .name = "swage",
    .summary = "Swage tiles: the order that all kernels of Swage read, without repacking",
    .metadata = metadata,
    .scale_dtype = sw_scale_dtype_f16,
    .can_hold = can_hold,
    .declare = declare,
    .encode = encode,
    .decode = decode,
    .map_tiles = map_tiles,
    .write_config = write_config,
    .read_config = read_config,
    .is_mine = is_mine,
};
