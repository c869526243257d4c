/* made_text.c - see made_text.h. */
#include "tools/shell/made_text.h"

#include <stdarg.h>
#include <string.h>

void sw_made_add(sw_made_text *t, const char *text)
{
    if (t->rc == SW_OK) t->rc = sw_print_add(&t->buf, text, strlen(text), t->err);
}

void sw_made_fmt(sw_made_text *t, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    if (t->rc == SW_OK) t->rc = sw_print_vfmt(&t->buf, t->err, fmt, args);
    va_end(args);
}

void sw_made_word(sw_made_text *t, const char *text)
{
    sw_made_add(t, "'");
    for (char one[2] = ""; *text; text++) {
        one[0] = *text;
        sw_made_add(t, *text == '\'' ? "'\\''" : one);
    }
    sw_made_add(t, "'");
}

void sw_made_names(sw_made_text *t, sw_opt_choice_fn names)
{
    const char *name;

    for (int i = 0; names && (name = names(i)) != NULL; i++)
        sw_made_fmt(t, "%s%s", i ? " " : "", name);
}

static sw_code show_json(sw_run *run, const sw_made_text *t, const char *name, const char *key)
{
    cJSON *object = NULL;
    sw_code rc = sw_cmd_json_new(&object, name, t->err);

    if (rc != SW_OK) return rc;
    rc = sw_cmd_json_added(cJSON_AddStringToObject(object, key, t->buf.at), t->err);
    if (rc == SW_OK) rc = sw_cmd_json_print(run, object, t->err);
    cJSON_Delete(object);
    return rc;
}

sw_code sw_made_show(sw_run *run, sw_made_text *t, const char *name, const char *key)
{
    const sw_cmd_common *common = run->options;
    sw_code rc = t->rc == SW_OK ? sw_print_add(&t->buf, "", 1, t->err) : t->rc;

    if (rc == SW_OK && common->json) {
        rc = show_json(run, t, name, key);
    } else if (rc == SW_OK) {
        (void)fputs(t->buf.at, stdout);
        run->has_result = true;
    }
    sw_mem_put(t->buf.at);
    memset(&t->buf, 0, sizeof t->buf);
    return rc;
}

sw_opt_choice_fn sw_row_names(const sw_opt *row)
{
    return row->choices ? row->choices : row->offers;
}

bool sw_row_takes_many(const sw_opt *row)
{
    return sw_row_names(row) && row->arg && strstr(row->arg, ",...");
}

bool sw_row_takes_path(const sw_opt *row)
{
    if (row->kind != SW_OPT_TEXT && row->kind != SW_OPT_LIST) return false;
    return row->is_model || (row->arg && (strstr(row->arg, "FILE") || strstr(row->arg, "DIR")));
}
