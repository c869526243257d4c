/* card_command.c - see card_command.h. */
#include "tools/card/card_command.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/print_buf.h"
#include "formats/checkpoint/hub_cache.h"
#include "tools/cli/cmd.h"
#include "tools/recipe/recipe.h"

/* Options of the run, not of its output. */
static const char *const left_out[] = {"device", "follow_links", "allow_fallback", "verify",
                                       "no_card", NULL};
static const char *const files[] = {"calib", "stats", "recipe", "imatrix", NULL};

/* A word for a shell, single-quoted where it must be. Control characters, which no name of a file
 * needs, could end the block of the card that holds the command. */
static sw_code put_word(sw_print_buf *out, const char *word, sw_err *err)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_./@%+=:,-";
    bool is_plain = *word && strspn(word, plain) == strlen(word);
    sw_code rc = is_plain ? sw_print_fmt(out, err, " %s", word) : sw_print_add(out, " '", 2, err);

    if (is_plain) return rc;
    for (; *word && rc == SW_OK; word++) {
        char c = (unsigned char)*word < ' ' || *word == 127 ? '?' : *word;
        rc = c == '\'' ? sw_print_add(out, "'\\''", 4, err) : sw_print_add(out, &c, 1, err);
    }
    return rc == SW_OK ? sw_print_add(out, "'", 1, err) : rc;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash && slash[1] ? slash + 1 : path;
}

static sw_code put_value(sw_print_buf *out, const char *key, const cJSON *value, sw_err *err)
{
    char number[40];
    bool is_whole;

    if (cJSON_IsString(value))
        return put_word(out, sw_recipe_is_among(key, files) ? base_name(value->valuestring)
                                                            : value->valuestring, err);
    if (!cJSON_IsNumber(value)) return SW_OK; /* a flag */
    is_whole = fabs(value->valuedouble) < 0x1p53 &&
               value->valuedouble <= floor(value->valuedouble); /* sizes keep all their digits */
    (void)snprintf(number, sizeof number, is_whole ? "%.0f" : "%.10g", value->valuedouble);
    return put_word(out, number, err);
}

/* Another name of an option, which is there under the first. */
static bool is_alias(const sw_opt *table, const char *name)
{
    for (; table->name; table++)
        if (table->alias_of && !strcmp(table->name, name)) return true;
    return false;
}

static sw_code put_option(sw_print_buf *out, const sw_opt *table, const cJSON *option, sw_err *err)
{
    char name[64];
    const cJSON *item;
    sw_code rc;

    if (sw_recipe_is_among(option->string, left_out) || !strcmp(option->string, "overrides"))
        return SW_OK;
    (void)snprintf(name, sizeof name, "--%s", option->string);
    for (char *c = name; *c; c++)
        if (*c == '_') *c = '-';
    if (is_alias(table, name + 2)) return SW_OK;
    rc = put_word(out, name, err);
    if (rc == SW_OK && !cJSON_IsArray(option)) rc = put_value(out, option->string, option, err);
    if (!cJSON_IsArray(option)) return rc;
    cJSON_ArrayForEach(item, option)
        if (rc == SW_OK) rc = put_value(out, option->string, item, err);
    return rc;
}

static sw_code put_model(sw_print_buf *out, const sw_checkpoint *source, sw_err *err)
{
    sw_hub_id id;

    if (!sw_hub_origin(&id, source->dir, source->is_file))
        return sw_print_fmt(out, err, " %s", source->is_file ? "MODEL.gguf" : "MODEL");
    return sw_print_fmt(out, err, " %s@%s", id.repo, id.revision);
}

sw_code sw_card_command_add(cJSON *manifest, const sw_card_command *command,
                            const sw_checkpoint *source, sw_err *err)
{
    sw_print_buf text = {0};
    cJSON *options = NULL;
    const cJSON *option;
    sw_code rc = sw_recipe_object(&options, command->fields, command->defaults, command->table,
                                  NULL, err);

    if (rc == SW_OK) rc = sw_print_fmt(&text, err, "swage %s", command->name);
    if (rc == SW_OK) rc = put_model(&text, source, err);
    if (rc == SW_OK) rc = sw_print_fmt(&text, err, " -o OUT");
    if (rc == SW_OK && command->recipe) rc = sw_print_fmt(&text, err, " --recipe");
    if (rc == SW_OK && command->recipe) rc = put_word(&text, base_name(command->recipe), err);
    cJSON_ArrayForEach(option, options)
        if (rc == SW_OK) rc = put_option(&text, command->table, option, err);
    if (rc == SW_OK) rc = sw_print_add(&text, "", 1, err);
    if (rc == SW_OK)
        rc = sw_cmd_json_added(cJSON_AddStringToObject(manifest, "made_by", text.at), err);
    cJSON_Delete(options);
    sw_mem_put(text.at);
    return rc;
}
