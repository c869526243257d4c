/* card.c - see card.h: where a card's facts come from, and where it goes. */
#include "tools/card/card.h"

#include <stdio.h>
#include <string.h>

#include "formats/checkpoint/side_files.h"
#include "formats/io/file_content.h"
#include "tools/cli/cmd.h"
#include "tools/recipe/selection.h"

static const sw_json_caps manifest_caps = {
    .max_bytes = (size_t)64 << 20, .max_depth = 32, .max_values = 4000000};

/* Does the source's own README.md come along? */
static sw_code own_name(const char **out, const sw_checkpoint *source, sw_err *err)
{
    sw_arena arena = {0};
    sw_dir_list list = {0};
    sw_code rc = SW_OK;

    *out = "README.md";
    if (!source->is_file) rc = sw_dir_read(&list, source->dir, &arena, err);
    for (int64_t i = 0; i < list.n_entries; i++)
        if (list.entries[i].role == SW_DIR_SIDE && !strcmp(list.entries[i].name, "README.md"))
            *out = "SWAGE.md";
    sw_arena_free(&arena);
    return rc;
}

static sw_code write_card(const sw_card *card, const char *work_dir, sw_err *err)
{
    char path[SW_PATH_BYTES], *text = NULL;
    sw_code rc = sw_card_text(&text, card, err);

    if (rc == SW_OK) rc = sw_path_join(path, work_dir, card->own_name, err);
    if (rc == SW_OK) rc = sw_file_put(path, text, strlen(text), err);
    sw_mem_put(text);
    return rc;
}

static void scheme_text(char out[SW_SPEC_TEXT_BYTES + 16], const sw_checkpoint *ckpt)
{
    char text[SW_SPEC_TEXT_BYTES];

    if (ckpt->dialect)
        (void)snprintf(out, SW_SPEC_TEXT_BYTES + 16, "%s%s", ckpt->rules ? "mixed, most " : "",
                       sw_qspec_text(text, &ckpt->qconfig.spec));
    else
        (void)snprintf(out, SW_SPEC_TEXT_BYTES + 16, "floats, %s",
                       sw_dtype_name(ckpt->model.dtype));
}

sw_code sw_card_put(cJSON *manifest, const cJSON *sources, const sw_checkpoint *source,
                    const char *work_dir, sw_err *err)
{
    char scheme[SW_SPEC_TEXT_BYTES + 16];
    sw_load_findings loaders = {.n = 0};
    sw_checkpoint ckpt = {0};
    sw_card card = {.ckpt = &ckpt, .manifest = manifest, .sources = sources, .loaders = &loaders,
                    .scheme = scheme};
    sw_code rc = own_name(&card.own_name, source, err);

    if (rc == SW_OK) rc = sw_checkpoint_open_headers(&ckpt, work_dir, err);
    if (rc == SW_OK) rc = sw_loaders_check(&loaders, &ckpt, err);
    if (rc == SW_OK) {
        scheme_text(scheme, &ckpt);
        if (!source->is_file) rc = sw_front_matter_read(&card.front, source->dir, err);
        if (rc == SW_OK) rc = write_card(&card, work_dir, err);
    }
    if (rc == SW_OK)
        rc = sw_cmd_json_added(cJSON_AddStringToObject(manifest, "card", card.own_name), err);
    sw_loaders_free(&loaders);
    sw_checkpoint_close(&ckpt);
    return rc;
}

/* NULL where there is none that can be read. */
static cJSON *read_manifest(const sw_checkpoint *ckpt)
{
    char path[SW_PATH_BYTES];
    cJSON *manifest = NULL;
    sw_err ignored = {0};

    if (!ckpt->is_file && sw_path_join(path, ckpt->dir, "manifest.json", &ignored) == SW_OK &&
        sw_path_exists(path))
        (void)!sw_json_read(&manifest, path, &manifest_caps, &ignored);
    return manifest;
}

sw_code sw_card_of_report(const char *path, const sw_report *report, bool may_replace, sw_err *err)
{
    sw_checkpoint ckpt = {0};
    sw_card card = {.ckpt = &ckpt, .loaders = &report->loaders, .scheme = report->scheme,
                    .own_name = "README.md", .report = report};
    cJSON *manifest = NULL;
    char *text = NULL;
    sw_code rc = sw_checkpoint_open_headers(&ckpt, report->checkpoint_dir, err);

    if (rc == SW_OK) {
        card.manifest = card.sources = manifest = read_manifest(&ckpt);
        if (!ckpt.is_file) rc = sw_front_matter_read(&card.front, ckpt.dir, err);
        if (rc == SW_OK) rc = sw_card_text(&text, &card, err);
    }
    if (rc == SW_OK) rc = sw_file_put_new(path, text, strlen(text), may_replace, err);
    sw_mem_put(text);
    cJSON_Delete(manifest);
    sw_checkpoint_close(&ckpt);
    return rc;
}
