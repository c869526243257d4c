/* output_size.c - see output_size.h. */
#include "tools/quantize/output_size.h"

#include <string.h>

#include "formats/checkpoint/side_files.h"
#include "formats/file/config_text.h"
#include "tools/card/card_command.h"
#include "tools/recipe/left_parts.h"

#define CARD_MOST ((uint64_t)8 << 10)   /* beside the metadata of the source's card */
#define REST_MOST ((uint64_t)4 << 10)   /* of the manifest: counts, statistics, id of the Hub */
#define FILE_MOST ((uint64_t)224)       /* a row of its lists of files, beside the name */
#define TRANSFORMS_OF_BLOCK 8           /* groups that a transform may look at */
#define LONG_NUMBER (-1.2345678901234567e-100) /* no double is printed in more digits */
#define LONG_COUNT ((int64_t)1 << 50)

/* A report with every figure at its longest: one that fell back has fewer, in place of a reason. */
static void fill(sw_solve_report *r, bool is_expert, const sw_qspec *spec)
{
    *r = (sw_solve_report){.method = "smoothquant+gptq",
                           .damp = LONG_NUMBER, .n_damp_retries = 1000,
                           .input_strength = LONG_NUMBER, .residual_strength = LONG_NUMBER,
                           .n_dead = LONG_COUNT, .n_tokens = LONG_COUNT,
                           .n_routed = is_expert ? LONG_COUNT : -1, .shared_weight = LONG_NUMBER,
                           .error_rtn = LONG_NUMBER, .error = -LONG_NUMBER,
                           .scale_min = LONG_NUMBER, .scale_max = LONG_NUMBER};
    for (int i = 0; i < 3 && spec->is_pow2_scale; i++) r->n_by_ocp[i] = LONG_COUNT;
}

static sw_code add_transforms(sw_quantize_report *report, sw_err *err)
{
    sw_transform_report t = {.method = "smoothquant+gptq", .is_accepted = true,
                             .loss_before = LONG_NUMBER, .loss = LONG_NUMBER,
                             .scale_min = LONG_NUMBER, .scale_max = LONG_NUMBER};
    sw_code rc = SW_OK;

    memset(t.producer, 'x', sizeof t.producer / 2);
    memset(t.choice, 'x', sizeof t.choice - 1);
    for (int i = 0; i < TRANSFORMS_OF_BLOCK && rc == SW_OK; i++)
        rc = sw_quantize_report_transform(report, &t, err);
    return rc;
}

static sw_code add_layer(sw_quantize_report *report, const sw_quantize_job *j, int64_t layer,
                         sw_err *err)
{
    const sw_model *m = &j->source.model;
    int64_t n = sw_model_linears(m, layer, NULL, 0);
    sw_linear_ref *refs = NULL;
    char path[256];
    sw_code rc = SW_MEM_GET(&refs, n, "linears of a block", err);

    if (rc != SW_OK) return rc;
    (void)sw_model_linears(m, layer, refs, n);
    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        const sw_qspec *spec;
        sw_solve_report solve;
        sw_qspec longest;
        if (!sw_model_slot_path(path, m, layer, refs[i].slot, refs[i].expert) ||
            !(spec = sw_selection_spec(&j->selection, path)))
            continue;
        longest = *spec;
        longest.is_symmetric = false; /* a letter more, and a width and a group with more digits */
        longest.n_outliers = LONG_COUNT;
        longest.group_elems = 100000;
        fill(&solve, refs[i].expert >= 0, spec);
        rc = sw_quantize_report_add(report, path, &refs[i], &longest, &solve, -1.23456789e-30F,
                                    err);
    }
    sw_mem_put(refs);
    if (rc == SW_OK && j->settings.quant.algo->transform) rc = add_transforms(report, err);
    if (rc == SW_OK && j->settings.quant.kv_num)
        rc = sw_quantize_report_kv(report, layer, -1.23456789e-30F, -1.23456789e-30F, err);
    return rc;
}

/* The longest manifest of this job, as it is printed, but for the lists of files. */
static sw_code print_manifest(uint64_t *out, const sw_quantize_job *j, sw_err *err)
{
    sw_quantize_options o = *j->o;
    const sw_card_command command = {"quantize", &o, &sw_quantize_defaults, sw_quantize_rows,
                                     j->recipe.n_overrides ? o.recipe : NULL};
    sw_quantize_settings settings = j->settings;
    sw_quantize_report report = {0};
    sw_left_parts left;
    char *text = NULL;
    sw_code rc;

    settings.target_bytes = o.target_bytes = UINT64_C(1) << 53; /* what fits hangs on no digit */
    settings.predicted_kl = -LONG_NUMBER;
    settings.has_chosen_outliers = true;
    rc = sw_quantize_report_new(&report, &settings,
                                j->calibration.calib.ids ? &j->calibration : NULL, &j->o->calib,
                                &j->selection, err);
    for (int64_t layer = 0; layer <= j->source.model.n_layers && rc == SW_OK; layer++)
        rc = add_layer(&report, j, layer, err);
    sw_left_parts_find(&left, &j->source);
    if (rc == SW_OK) rc = sw_left_parts_add_json(report.manifest, &left, err);
    if (rc == SW_OK) rc = sw_card_command_add(report.manifest, &command, &j->source, err);
    if (rc == SW_OK) rc = sw_json_pretty(&text, report.manifest, 0, err);
    if (rc == SW_OK) *out = strlen(text);
    sw_mem_put(text);
    sw_quantize_report_free(&report);
    return rc;
}

/* Rows for the source's files, some of which are outputs too; what its own manifest becomes the
 * origin of; and the metadata that the card takes over. */
static sw_code count_source(uint64_t *sum, const sw_quantize_job *j, sw_err *err)
{
    sw_arena arena = {0};
    sw_dir_list list = {0};
    sw_code rc = sw_dir_read(&list, j->source.dir, &arena, err);

    for (int64_t i = 0; i < list.n_entries && rc == SW_OK; i++) {
        const sw_dir_entry *e = &list.entries[i];
        *sum += 2 * (6 * strlen(e->name) + FILE_MOST); /* a name may be escaped */
        if (!strcmp(e->name, "manifest.json")) *sum += 2 * e->size_bytes;
        if (!strcmp(e->name, "README.md") && !j->o->no_card) *sum += 2 * e->size_bytes;
    }
    sw_arena_free(&arena);
    return rc;
}

sw_code sw_output_size_papers(uint64_t *most, const sw_quantize_job *j, sw_err *err)
{
    uint64_t source_bytes = 0, n_shards, sum = 0;
    sw_code rc = print_manifest(&sum, j, err);

    if (rc == SW_OK) rc = count_source(&sum, j, err);
    if (rc != SW_OK) return rc;
    for (int64_t i = 0; i < sw_st_count(j->source.st); i++)
        source_bytes += sw_st_at(j->source.st, i)->view.size_bytes;
    n_shards = 1 + (j->o->shard_bytes ? 4 * (source_bytes / j->o->shard_bytes) : 0);
    *most = sum + REST_MOST + (8 + n_shards) * (64 + FILE_MOST) + (j->o->no_card ? 0 : CARD_MOST);
    return SW_OK;
}

sw_code sw_output_size_rest(uint64_t *out, const sw_quantize_job *j, sw_err *err)
{
    const sw_qconfig qconfig = sw_quantize_job_config(j);

    return sw_ckpt_foresee(out, &j->source, j->dialect, &qconfig, j->selection.linears,
                           j->selection.n_linears, j->o->shard_bytes, err);
}

sw_code sw_output_size_written(uint64_t *out, const char *dir, sw_err *err)
{
    sw_arena arena = {0};
    sw_dir_list list = {0};
    sw_code rc = sw_dir_read(&list, dir, &arena, err);

    *out = 0;
    for (int64_t i = 0; i < list.n_entries && rc == SW_OK; i++) *out += list.entries[i].size_bytes;
    sw_arena_free(&arena);
    return rc;
}
