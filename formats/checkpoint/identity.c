/* identity.c - see manifest.h. */
#include "formats/checkpoint/manifest.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/file/config_text.h"

/* A line per tensor: its hash, and what it is. */
static sw_code add_tensor(char **lines, sw_arena *arena, const sw_st_tensor *t, sw_err *err)
{
    char digest[SW_SHA256_HEX_BYTES], what[160];
    sw_st_bytes bytes = {0};
    sw_code rc = sw_st_fetch(&bytes, t, err);

    if (rc == SW_OK) rc = sw_sha256_hex(digest, bytes.data, t->view.size_bytes, err);
    sw_st_drop(&bytes);
    if (rc != SW_OK) return rc;
    sw_map_forget(t->view.data, t->view.size_bytes);
    sw_view_describe(what, sizeof what, &t->view);
    return sw_arena_print(lines, arena, err, "%s %s %s\n", digest, what, t->name);
}

sw_code sw_checkpoint_identity(char out[SW_SHA256_HEX_BYTES], const sw_checkpoint *checkpoint,
                               sw_err *err)
{
    const sw_st *st = checkpoint->st;
    char chain[SW_SHA256_HEX_BYTES], *text = NULL, *line = NULL;
    sw_arena arena = {0};
    sw_code rc;

    if ((rc = sw_json_pretty(&text, checkpoint->config, 0, err)) != SW_OK) return rc;
    rc = sw_sha256_hex(chain, text, strlen(text), err);
    /* a chain, because the names of a large model are megabytes */
    for (int64_t i = 0; i < sw_st_count(st) && rc == SW_OK; i++) {
        sw_arena_mark mark = sw_arena_save(&arena);
        char *both = NULL;
        if ((rc = add_tensor(&line, &arena, sw_st_at(st, i), err)) != SW_OK ||
            (rc = sw_arena_print(&both, &arena, err, "%s %s", chain, line)) != SW_OK)
            break;
        rc = sw_sha256_hex(chain, both, strlen(both), err);
        sw_arena_reset(&arena, mark);
    }
    if (rc == SW_OK) memcpy(out, chain, sizeof chain);
    sw_arena_free(&arena);
    sw_mem_put(text);
    return rc;
}
