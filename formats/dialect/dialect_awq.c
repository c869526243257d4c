/* dialect_awq.c - quant_method "awq", as AutoAWQ writes it, in two layouts.
 *
 * Per linear P of K inputs, N outputs, G groups, 4 bits. Version "gemm":
 *   P.qweight  I32      [K, N/8]   eight channels in turns (interleave.h)
 *   P.qzeros   I32      [G, N/8]   likewise, zero points as they are
 *   P.scales   F16|BF16 [G, N]
 * Version "gemv", for an older kernel:
 *   P.qweight  I32      [N, K/8]   streams along k
 *   P.qzeros   I32      [N, W]     streams along the groups; W words hold 8 W >= G of them
 *   P.scales   F16|BF16 [N, 8 W]   zero beyond G
 * with W = ceil(ceil(G/8) / m) * m, m = 1, 2, 4 for groups of at least 128, 64, 32.
 *
 * There are always zero points: a symmetric weight stores 8 everywhere. The extra key "sym", which
 * loaders pass over, tells this reader of it, and then each of them must be 8.
 */
#include <string.h>

#include "formats/base/size.h"
#include "formats/dialect/dialect_common.h"
#include "formats/pack/interleave.h"
#include "formats/pack/words.h"

#define BITS 4
#define CODES 8 /* in a word */
#define ELSEWHERE "use --format gptq_v2, compressed-tensors or swage"

enum { PART_QWEIGHT, PART_QZEROS, PART_SCALES, PART_COUNT };

static sw_code hold(const char *name, const sw_qspec *spec, int64_t k_in, sw_err *err)
{
    sw_code rc = sw_hold_groups(name, spec, k_in, err);

    if (rc != SW_OK || (rc = sw_hold_neighbours(name, spec, err)) != SW_OK) return rc;
    if (spec->num->bits != BITS)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: holds 4 bits, not %d; " ELSEWHERE, name,
                       spec->num->bits);
    return SW_OK;
}

static sw_code gemm_can_hold(const sw_qspec *spec, int64_t n_out, int64_t k_in, sw_err *err)
{
    sw_code rc = hold("awq", spec, k_in, err);

    if (rc != SW_OK || n_out % CODES == 0) return rc;
    return SW_FAIL(err, SW_E_UNSUPPORTED, "awq: %lld outputs are no multiple of 8, which share a "
                   "word; use --format compressed-tensors or swage", (long long)n_out);
}

/* Words of zero points in a row; 0: the kernel knows no such group size. */
static int64_t zero_words(const sw_qspec *spec, int64_t k_in)
{
    int64_t group = spec->group_elems ? spec->group_elems : k_in;
    int64_t multiple = group >= 128 ? 1 : group == 64 ? 2 : group == 32 ? 4 : 0;
    int64_t words = sw_ceil_div(sw_qspec_groups(spec, k_in), CODES);

    return multiple ? sw_ceil_div(words, multiple) * multiple : 0;
}

static sw_code gemv_can_hold(const sw_qspec *spec, int64_t n_out, int64_t k_in, sw_err *err)
{
    sw_code rc = hold("awq_gemv", spec, k_in, err);

    (void)n_out;
    if (rc != SW_OK) return rc;
    if (k_in % CODES)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "awq_gemv: %lld inputs are no multiple of 8, which "
                       "share a word; use --format compressed-tensors or swage", (long long)k_in);
    if (!zero_words(spec, k_in))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "awq_gemv: groups of 32, 64, or 128 and more, not "
                       "%lld; use --format awq", (long long)spec->group_elems);
    return SW_OK;
}

static int gemm_declare(sw_part out[SW_DIALECT_TENSORS_MAX], const sw_qspec *spec, int64_t n_out,
                        int64_t k_in)
{
    int64_t n_groups = sw_qspec_groups(spec, k_in);

    out[PART_QWEIGHT] = sw_part_2d("qweight", SW_DTYPE_I32, k_in, n_out / CODES);
    out[PART_QZEROS] = sw_part_2d("qzeros", SW_DTYPE_I32, n_groups, n_out / CODES);
    out[PART_SCALES] = sw_part_2d("scales", spec->scale_dtype, n_groups, n_out);
    out[PART_SCALES].is_scale = true;
    return PART_COUNT;
}

static int gemv_declare(sw_part out[SW_DIALECT_TENSORS_MAX], const sw_qspec *spec, int64_t n_out,
                        int64_t k_in)
{
    int64_t words = zero_words(spec, k_in);

    out[PART_QWEIGHT] = sw_part_2d("qweight", SW_DTYPE_I32, n_out, k_in / CODES);
    out[PART_QZEROS] = sw_part_2d("qzeros", SW_DTYPE_I32, n_out, words);
    out[PART_SCALES] = sw_part_2d("scales", spec->scale_dtype, n_out, words * CODES);
    out[PART_SCALES].is_scale = true;
    return PART_COUNT;
}

/* Zero points of a weight that may have none of its own. Freed by sw_mem_put. */
static sw_code zeros_of(uint8_t **out, const sw_qtensor *q, sw_err *err)
{
    int64_t n = q->n_out * q->n_groups;
    sw_code rc = SW_MEM_GET(out, n, "zero points", err);

    if (rc != SW_OK) return rc;
    if (q->zeros)
        memcpy(*out, q->zeros, (size_t)n);
    else
        memset(*out, q->spec.num->sym_zero, (size_t)n);
    return SW_OK;
}

/* Into q, or, when it is symmetric, held to the middle. */
static sw_code take_zeros(sw_qtensor *q, const uint8_t *zeros, sw_err *err)
{
    int64_t n = q->n_out * q->n_groups;
    int middle = q->spec.num->sym_zero;

    if (q->zeros) memcpy(q->zeros, zeros, (size_t)n);
    for (int64_t i = 0; i < n && !q->zeros; i++)
        if (zeros[i] != middle)
            return SW_FAIL(err, SW_E_FORMAT, "qzeros hold %d at row %lld, group %lld where "
                           "\"sym\": true means %d", zeros[i], (long long)(i / q->n_groups),
                           (long long)(i % q->n_groups), middle);
    return SW_OK;
}

static sw_code refuse_g_idx(const sw_qtensor *q, sw_err *err)
{
    if (!q->g_idx) return SW_OK;
    return SW_FAIL(err, SW_E_UNSUPPORTED, "awq has groups of neighbouring columns, and a g_idx "
                   "scatters these; use --format gptq");
}

static sw_code gemm_encode(void *const parts[], const sw_qtensor *q, sw_err *err)
{
    uint8_t *zeros = NULL;
    sw_code rc = refuse_g_idx(q, err);

    if (rc != SW_OK || (rc = zeros_of(&zeros, q, err)) != SW_OK) return rc;
    sw_interleave_pack(parts[PART_QWEIGHT], q->codes, q->n_out, q->k_in);
    sw_interleave_pack(parts[PART_QZEROS], zeros, q->n_out, q->n_groups);
    sw_scales_store(parts[PART_SCALES], q, true);
    sw_mem_put(zeros);
    return SW_OK;
}

static sw_code check_side(int64_t side, const char *what, sw_err *err)
{
    if (side % CODES == 0) return SW_OK;
    return SW_FAIL(err, SW_E_FORMAT, "%lld %s are no multiple of 8, which share a word",
                   (long long)side, what);
}

static sw_code gemm_decode(sw_qtensor *q, const void *const parts[], sw_err *err)
{
    uint8_t *zeros = NULL;
    sw_code rc = check_side(q->n_out, "outputs", err);

    if (rc != SW_OK ||
        (rc = SW_MEM_GET(&zeros, q->n_out * q->n_groups, "zero points", err)) != SW_OK)
        return rc;
    sw_interleave_unpack(q->codes, parts[PART_QWEIGHT], q->n_out, q->k_in);
    sw_interleave_unpack(zeros, parts[PART_QZEROS], q->n_out, q->n_groups);
    sw_scales_load(q, parts[PART_SCALES], true);
    rc = take_zeros(q, zeros, err);
    sw_mem_put(zeros);
    return rc;
}

/* Streams of n_groups zero points in rows of `words` words. */
static sw_words gemv_zeros(const sw_qtensor *q)
{
    sw_words at = {BITS, q->n_out, q->n_groups, 1, q->n_groups, 1,
                   zero_words(&q->spec, q->k_in)};

    return at;
}

static sw_code gemv_encode(void *const parts[], const sw_qtensor *q, sw_err *err)
{
    size_t scale_bytes = (size_t)sw_dtype_bits(q->spec.scale_dtype) / 8;
    size_t row_bytes = (size_t)(zero_words(&q->spec, q->k_in) * CODES) * scale_bytes;
    sw_words at = gemv_zeros(q);
    uint8_t *zeros = NULL;
    sw_code rc = refuse_g_idx(q, err);

    if (rc != SW_OK || (rc = zeros_of(&zeros, q, err)) != SW_OK) return rc;
    sw_words_pack(parts[PART_QZEROS], zeros, &at, 0);
    sw_packs[SW_PACK_K_WORDS].layout(&at, q->n_out, q->k_in, BITS);
    sw_words_pack(parts[PART_QWEIGHT], q->codes, &at, 0);
    for (int64_t n = 0; n < q->n_out && rc == SW_OK; n++)
        rc = sw_float_encode_n((uint8_t *)parts[PART_SCALES] + (size_t)n * row_bytes,
                               q->spec.scale_dtype, q->scales + n * q->n_groups, q->n_groups, err);
    sw_mem_put(zeros);
    return rc;
}

static sw_code gemv_decode(sw_qtensor *q, const void *const parts[], sw_err *err)
{
    size_t scale_bytes = (size_t)sw_dtype_bits(q->spec.scale_dtype) / 8;
    size_t row_bytes = (size_t)(zero_words(&q->spec, q->k_in) * CODES) * scale_bytes;
    sw_words at = gemv_zeros(q);
    uint8_t *zeros = NULL;
    sw_code rc = check_side(q->k_in, "inputs", err);

    if (rc != SW_OK ||
        (rc = SW_MEM_GET(&zeros, q->n_out * q->n_groups, "zero points", err)) != SW_OK)
        return rc;
    sw_words_unpack(zeros, parts[PART_QZEROS], &at, 0);
    sw_packs[SW_PACK_K_WORDS].layout(&at, q->n_out, q->k_in, BITS);
    sw_words_unpack(q->codes, parts[PART_QWEIGHT], &at, 0);
    for (int64_t n = 0; n < q->n_out && rc == SW_OK; n++)
        rc = sw_float_decode_n(q->scales + n * q->n_groups,
                               (const uint8_t *)parts[PART_SCALES] + (size_t)n * row_bytes,
                               q->spec.scale_dtype, q->n_groups, err);
    if (rc == SW_OK) rc = take_zeros(q, zeros, err);
    sw_mem_put(zeros);
    return rc;
}

/* Loaders look for each text anywhere in a module's path, so whole paths are safest. Routed experts
 * are one module to them, whose path holds that of none of its experts. */
static bool add_ignored(cJSON *root, const sw_qconfig *config)
{
    cJSON *list;
    bool ok = true;

    if (!config->n_ignore)
        return cJSON_AddNullToObject(root, "modules_to_not_convert") != NULL;
    list = cJSON_AddArrayToObject(root, "modules_to_not_convert");
    for (int64_t i = 0; list && ok && i < config->n_ignore; i++)
        if (!sw_config_whole_experts(config, config->ignore[i]))
            ok = sw_config_append(list, config->ignore[i]);
    for (int64_t i = 0; list && ok && i < config->n_whole_experts; i++)
        ok = sw_config_append(list, config->whole_experts[i]);
    return list && ok;
}

static sw_code write_config(cJSON **out, const sw_qconfig *config, const char *version,
                            sw_err *err)
{
    const sw_qspec *spec = &config->spec;
    cJSON *root;
    bool ok;
    sw_code rc = sw_config_one_scheme("awq", config, ELSEWHERE, err);

    if (rc != SW_OK) return rc;
    root = cJSON_CreateObject();
    ok = root && cJSON_AddStringToObject(root, "quant_method", "awq") &&
         cJSON_AddNumberToObject(root, "bits", BITS) &&
         cJSON_AddNumberToObject(root, "group_size", (double)sw_config_group_value(spec)) &&
         cJSON_AddBoolToObject(root, "zero_point", true) &&
         (!spec->is_symmetric || cJSON_AddBoolToObject(root, "sym", true)) &&
         (!config->has_head || cJSON_AddBoolToObject(root, "lm_head", true)) &&
         cJSON_AddStringToObject(root, "version", version) && add_ignored(root, config);
    return sw_config_done(out, root, ok, err);
}

static sw_code gemm_write_config(cJSON **out, const sw_qconfig *config, sw_err *err)
{
    return write_config(out, config, "gemm", err);
}

static sw_code gemv_write_config(cJSON **out, const sw_qconfig *config, sw_err *err)
{
    return write_config(out, config, "gemv", err);
}

static const char *text_or(const cJSON *object, const char *key, const char *absent)
{
    const cJSON *member = sw_json_member(object, key);

    return cJSON_IsString(member) ? member->valuestring : absent;
}

static bool is_version(const cJSON *object, const char *name)
{
    const char *version = text_or(object, "version", "gemm");
    size_t i = 0;

    while (name[i] && (version[i] | 0x20) == name[i]) i++; /* AutoAWQ writes "GEMM" as well */
    return !name[i] && !version[i];
}

static sw_code refuse_kin(const cJSON *object, sw_err *err)
{
    const char *backend = text_or(object, "backend", "autoawq");
    bool zero_point = true;
    sw_code rc = sw_json_bool(&zero_point, object, "zero_point", err);

    if (rc != SW_OK) return rc;
    if (!is_version(object, "gemm") && !is_version(object, "gemv"))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "awq version \"%.60s\"; gemm and gemv can be read",
                       text_or(object, "version", ""));
    if (strcmp(backend, "autoawq") != 0)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "awq backend \"%.60s\"; autoawq can be read",
                       backend);
    if (!zero_point)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "awq with \"zero_point\": false; this layout always "
                       "has zero points");
    return SW_OK;
}

/* Older files say w_bit and q_group_size. */
static sw_code read_config(sw_qconfig *out, const cJSON *object, sw_arena *arena, sw_err *err)
{
    sw_qconfig config = {.spec.scale_dtype = out->spec.scale_dtype};
    const char *group_key = sw_json_member(object, "group_size") ? "group_size" : "q_group_size";
    int64_t bits = BITS;
    sw_code rc;

    if ((rc = refuse_kin(object, err)) != SW_OK ||
        (rc = sw_json_int(&bits, object, "w_bit", 1, 32, err)) != SW_OK ||
        (rc = sw_json_int(&bits, object, "bits", 1, 32, err)) != SW_OK)
        return rc;
    if (bits != BITS)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "awq of %lld bits; 4 can be read", (long long)bits);
    if (!sw_json_member(object, group_key))
        return SW_FAIL(err, SW_E_FORMAT, "quantization_config has no \"group_size\"");
    config.spec.num = sw_num_by_bits(BITS);
    if ((rc = sw_config_group(&config.spec.group_elems, object, group_key, err)) != SW_OK ||
        (rc = sw_json_bool(&config.spec.is_symmetric, object, "sym", err)) != SW_OK ||
        (rc = sw_config_read_ignore(&config, object, "modules_to_not_convert", arena, err)) !=
            SW_OK)
        return rc;
    *out = config;
    return SW_OK;
}

static sw_code gemv_read_config(sw_qconfig *out, const cJSON *object, sw_arena *arena,
                                sw_err *err)
{
    sw_qconfig config = {.spec.scale_dtype = out->spec.scale_dtype};
    sw_code rc = read_config(&config, object, arena, err);
    int64_t group = config.spec.group_elems;

    if (rc != SW_OK) return rc;
    if (group && group < 128 && group != 64 && group != 32)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "awq gemv in groups of %lld; 32, 64, 128 and more "
                       "can be read", (long long)group);
    *out = config;
    return SW_OK;
}

static bool is_awq(const cJSON *object)
{
    return !strcmp(text_or(object, "quant_method", ""), "awq");
}

static bool gemv_is_mine(const cJSON *object)
{
    return is_awq(object) && is_version(object, "gemv");
}

/* Also those of versions that read_config then refuses by name. */
static bool gemm_is_mine(const cJSON *object) { return is_awq(object) && !gemv_is_mine(object); }

const sw_dialect sw_dialect_awq = {
    .name = "awq",
    .summary = "AutoAWQ's gemm layout, 4 bits: vLLM, SGLang, transformers, TGI",
    .scale_dtype = sw_scale_dtype_f16,
    .can_hold = gemm_can_hold,
    .declare = gemm_declare,
    .encode = gemm_encode,
    .decode = gemm_decode,
    .write_config = gemm_write_config,
    .read_config = read_config,
    .is_mine = gemm_is_mine,
};

const sw_dialect sw_dialect_awq_gemv = {
    .name = "awq_gemv",
    .summary = "AutoAWQ's older gemv layout, 4 bits: to read old checkpoints",
    .scale_dtype = sw_scale_dtype_f16,
    .can_hold = gemv_can_hold,
    .declare = gemv_declare,
    .encode = gemv_encode,
    .decode = gemv_decode,
    .write_config = gemv_write_config,
    .read_config = gemv_read_config,
    .is_mine = gemv_is_mine,
};
