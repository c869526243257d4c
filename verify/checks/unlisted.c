/* unlisted.c - see checks.h: linears of the decoder that are none of a layer's.
 *
 * Engines build every linear by what the config says of its name. One that stays in floats and that
 * no list names becomes a quantized one whose codes are looked for in vain: some engines refuse,
 * others compute with what memory held (tests/bench/engines.csv has such a run). */
#include <stdlib.h>
#include <string.h>

#include "verify/checks/checks.h"
#include "verify/checks/claims.h"
#include "verify/decoders/decode_spec_parts.h"

static int compare_paths(const void *a, const void *b)
{
    return strcmp(((const sw_subject_linear *)a)->path, ((const sw_subject_linear *)b)->path);
}

/* What engines build without asking the config, or ask it in one version and not in another:
 * writers whose models have these as plain matrices do not list them, and are right. */
static bool is_built_in_floats(const sw_model *m, const char *path)
{
    static const sw_slot slots[] = {
        SW_SLOT_ROUTER,       SW_SLOT_SHARED_ROUTER,  SW_SLOT_COPY_ROUTER, SW_SLOT_INDEX_Q,
        SW_SLOT_INDEX_K,      SW_SLOT_INDEX_WEIGHT,   SW_SLOT_INDEX_KV,    SW_SLOT_INDEX_GATE,
        SW_SLOT_COMPRESS_KV,  SW_SLOT_COMPRESS_GATE,  SW_SLOT_HYPER_ATTN,  SW_SLOT_HYPER_MLP,
    };
    char at[256];

    for (int64_t l = 0; l < m->n_layers; l++)
        for (size_t i = 0; i < sizeof slots / sizeof *slots; i++)
            if (sw_model_slot_path(at, m, l, slots[i], -1) && !strcmp(at, path)) return true;
    return false;
}

/* Publishers of fp8 checkpoints whose code knows what stays in floats write no list at all. */
static bool has_no_list(const sw_subject *s)
{
    const cJSON *config = sw_json_member(s->config, "quantization_config");
    const cJSON *lists[] = {sw_json_member(config, "ignored_layers"),
                            sw_json_member(config, "modules_to_not_convert")};

    if (strncmp(s->scheme.reader->name, "fp8", 3) != 0) return false;
    return (!lists[0] || !lists[0]->child) && (!lists[1] || !lists[1]->child);
}

static sw_code check_one(sw_report *report, const sw_subject *s, const sw_st_tensor *t,
                         const char *path, sw_err *err)
{
    const sw_subject_linear l = {.ref = {.slot = SW_SLOT_FOUND, .expert = -1}, .path = path};
    const char *why;
    sw_claim claim;
    sw_err broken = {0}; /* a broken list is found where the layers' linears are asked */
    sw_code rc = sw_claim_of(&claim, &why, s, &l, &broken);

    if (rc == SW_E_FORMAT) return SW_OK;
    if (rc != SW_OK) {
        *err = broken;
        return rc;
    }
    if (claim != SW_CLAIM_CODES || is_built_in_floats(&s->model, path)) return SW_OK;
    return sw_report_find(report, "config", path, err, "%s is stored in floats, but "
                          "quantization_config tells engines that it is quantized (%.100s): list "
                          "it among the modules that are not", t->name, why);
}

sw_code sw_verify_unlisted(sw_report *report, const sw_subject *s, const sw_subject *original,
                           sw_err *err)
{
    sw_arena arena = {0};
    sw_subject_linear *linears, key = {.path = NULL};
    int64_t n = 0;
    sw_code rc;

    if (!s->is_quantized || s->is_gguf || s->model.found || !s->scheme.reader || has_no_list(s))
        return SW_OK;
    rc = sw_subject_linears(&linears, &n, &s->model, &arena, err);
    if (rc == SW_OK) qsort(linears, (size_t)n, sizeof *linears, compare_paths);
    for (int64_t i = 0; i < sw_st_count(s->st) && rc == SW_OK; i++) {
        const sw_st_tensor *t = sw_st_at(s->st, i);
        char path[256];

        key.path = path;
        if (original && !sw_st_find(original->st, t->name)) continue;
        if (sw_dtype_is_float(t->view.dtype) && sw_model_owns(&s->model, t->name) &&
            sw_model_matrix_path(path, &s->model, t->name, t->view.n_dims) &&
            !bsearch(&key, linears, (size_t)n, sizeof *linears, compare_paths))
            rc = check_one(report, s, t, path, err);
    }
    sw_arena_free(&arena);
    return rc;
}
