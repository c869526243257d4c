/* model_args.c - see model_args.h. */
#include "tools/cli/model_args.h"

#include <errno.h>
#include <string.h>

#include "formats/checkpoint/hub_cache.h"

static bool takes_model(const sw_cmd *cmd)
{
    for (const sw_opt *row = cmd->options; row->name; row++)
        if (!strcmp(row->name, "follow-links")) return true;
    return false;
}

/* What a path means comes first, so that no id can hide a directory of the user's. */
static sw_code find_model(const char **word, sw_arena *arena, const sw_progress *progress,
                          sw_err *err)
{
    char dir[SW_PATH_BYTES], *kept = NULL;
    sw_hub_id id;
    sw_code rc;

    if (!*word || sw_path_exists(*word)) return SW_OK;
    if (errno == EACCES)
        return SW_FAIL(err, SW_E_IO, "%s: cannot be looked at: %s", *word, strerror(errno));
    if (!sw_hub_id_parse(&id, *word)) return SW_OK;
    if ((rc = sw_hub_find(dir, &id, err)) != SW_OK ||
        (rc = sw_arena_text(&kept, arena, dir, strlen(dir), err)) != SW_OK)
        return rc;
    sw_progress_note(progress, "%s is %s", *word, dir);
    *word = kept;
    return SW_OK;
}

sw_code sw_model_args(const sw_cmd *cmd, void *fields, sw_opt_args *args, sw_arena *arena,
                      const sw_progress *progress, sw_err *err)
{
    sw_code rc = SW_OK;

    if (!takes_model(cmd)) return SW_OK;
    for (int i = 0; i < args->n && rc == SW_OK; i++)
        rc = find_model(&args->items[i], arena, progress, err);
    for (const sw_opt *row = cmd->options; row->name && rc == SW_OK; row++)
        if (row->is_model)
            rc = find_model((const char **)(void *)((char *)fields + row->offset), arena, progress,
                            err);
    return rc;
}
