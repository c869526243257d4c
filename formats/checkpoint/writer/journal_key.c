/* journal_key.c - where the inputs of an unfinished run and of the present one part. */
#include <stdio.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/checkpoint/writer/journal.h"

#define VALUE_BYTES 28

typedef struct difference {
    char path[120]; /* "settings.damp" */
    char then[VALUE_BYTES], now[VALUE_BYTES];
} difference;

static void describe(char out[VALUE_BYTES], const cJSON *value)
{
    char *text = NULL;

    if (value) (void)!sw_json_print(&text, value, false, NULL);
    (void)snprintf(out, VALUE_BYTES, "%.27s", text ? text : "absent");
    if (strlen(out) == VALUE_BYTES - 1) memcpy(out + VALUE_BYTES - 4, "...", 4);
    sw_mem_put(text);
}

/* The path grows by `name`; returns its old length, for cutting it back. */
static size_t enter(difference *d, const char *name)
{
    size_t n = strlen(d->path);

    (void)snprintf(d->path + n, sizeof d->path - n, "%s%s", n ? "." : "", name);
    return n;
}

static bool differ(difference *d, const cJSON *then, const cJSON *now)
{
    describe(d->then, then);
    describe(d->now, now);
    return true;
}

static bool scalars_differ(const cJSON *then, const cJSON *now)
{
    if (cJSON_IsNumber(then)) return then->valuedouble != now->valuedouble;
    if (cJSON_IsString(then)) return strcmp(then->valuestring, now->valuestring) != 0;
    return false; /* the types agree, and the others have one value */
}

static const char *name_of(const cJSON *item, const char *otherwise)
{
    const cJSON *name = sw_json_member(item, "name");

    return cJSON_IsString(name) ? name->valuestring : otherwise;
}

/* Objects by key and arrays by place go through the same walk: `now` is looked up by either.
 * Texts nest as deep as the parser allows, so the recursion is bounded. */
static bool find_difference(difference *d, const cJSON *then, const cJSON *now)
{
    const cJSON *item;
    int i = 0;

    if (!then || !now || ((then->type ^ now->type) & 0xff)) return differ(d, then, now);
    if (!cJSON_IsObject(then) && !cJSON_IsArray(then))
        return scalars_differ(then, now) && differ(d, then, now);
    cJSON_ArrayForEach(item, then) {
        const char *name = item->string ? item->string : name_of(item, "item");
        const cJSON *other = item->string
                                 ? cJSON_GetObjectItemCaseSensitive(now, item->string)
                                 : cJSON_GetArrayItem(now, i++);
        size_t n = enter(d, name);
        if (find_difference(d, item, other)) return true;
        d->path[n] = '\0';
    }
    if (cJSON_GetArraySize(then) == cJSON_GetArraySize(now)) return false;
    cJSON_ArrayForEach(item, now)
        if (item->string && !cJSON_GetObjectItemCaseSensitive(then, item->string)) {
            (void)enter(d, item->string);
            return differ(d, NULL, item);
        }
    (void)enter(d, "items");
    (void)snprintf(d->then, sizeof d->then, "%d", cJSON_GetArraySize(then));
    (void)snprintf(d->now, sizeof d->now, "%d", cJSON_GetArraySize(now));
    return true;
}

sw_code sw_journal_check_key(const sw_journal *journal, const cJSON *now, const char *path,
                             sw_err *err)
{
    /* numbers as they come back from text */
    char *text = NULL;
    sw_code rc = sw_json_print(&text, now, false, err);
    cJSON *again = text ? cJSON_Parse(text) : NULL;
    difference d = {.path = ""};

    if (rc == SW_OK && !again)
        rc = SW_FAIL(err, SW_E_NOMEM, "key of the journal");
    else if (rc == SW_OK && find_difference(&d, journal->key, again))
        rc = SW_FAIL(err, SW_E_USAGE,
                     "%s: an unfinished run from other inputs: %s was %s and is %s; give it what "
                     "it had, drop it with --restart, or choose another output",
                     path, d.path, d.then, d.now);
    sw_mem_put(text);
    cJSON_Delete(again);
    return rc;
}
