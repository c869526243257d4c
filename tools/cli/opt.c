/* opt.c - see opt.h: finding rows, storing values. Numbers and help are in opt_text.c. */
#include "tools/cli/opt.h"

#include <string.h>
#include <strings.h>

typedef struct parser {
    void *fields;
    const sw_opt *table;
    int argc, at;
    bool *is_set;
    char *const *argv;
    sw_arena *arena;
    sw_err *err;
} parser;

static void *field_of(const parser *p, const sw_opt *row)
{
    return (char *)p->fields + row->offset;
}

/* A word that is an option: "-" alone and negative numbers are values. */
static bool is_option(const char *word)
{
    return word[0] == '-' && word[1] && !(word[1] >= '0' && word[1] <= '9') && word[1] != '.';
}

static const sw_opt *find_long(const sw_opt *table, const char *name, size_t n_bytes)
{
    for (; table->name; table++)
        if (strlen(table->name) == n_bytes && !memcmp(table->name, name, n_bytes)) return table;
    return NULL;
}

static const sw_opt *find_letter(const sw_opt *table, char letter)
{
    for (; table->name; table++)
        if (table->letter == letter) return table;
    return NULL;
}

static sw_code unknown_option(const parser *p, const char *word)
{
    const char *best = NULL;
    int best_distance = 3;

    for (const sw_opt *row = p->table; row->name && word[1] == '-'; row++) {
        int distance = sw_opt_distance(word + 2, row->name);
        if (distance < best_distance) {
            best_distance = distance;
            best = row->name;
        }
    }
    if (best)
        return SW_FAIL(p->err, SW_E_USAGE, "unknown option %s; did you mean --%s?", word, best);
    return SW_FAIL(p->err, SW_E_USAGE, "unknown option %s; --help lists them", word);
}

typedef sw_code (*store_fn)(const parser *p, const sw_opt *row, const char *what,
                            const char *value);

static sw_code store_int(const parser *p, const sw_opt *row, const char *what, const char *value)
{
    return sw_opt_int(field_of(p, row), value, row->min, row->max, what, p->err);
}

static sw_code store_real(const parser *p, const sw_opt *row, const char *what, const char *value)
{
    double *field = field_of(p, row);

    if (!row->word || strcmp(row->word, value) != 0)
        return sw_opt_real(field, value, row->min, row->max, what, p->err);
    *field = SW_OPT_WORD;
    return SW_OK;
}

static sw_code store_size(const parser *p, const sw_opt *row, const char *what, const char *value)
{
    return sw_opt_size(field_of(p, row), value, what, p->err);
}

static sw_code store_text(const parser *p, const sw_opt *row, const char *what, const char *value)
{
    if (!value[0]) return SW_FAIL(p->err, SW_E_USAGE, "%s needs a value, not an empty one", what);
    *(const char **)field_of(p, row) = value;
    return SW_OK;
}

static sw_code store_choice(const parser *p, const sw_opt *row, const char *what,
                            const char *value)
{
    const char *name;

    for (int i = 0; (name = row->choices(i)) != NULL; i++) {
        if (strcasecmp(name, value) != 0) continue;
        *(const char **)field_of(p, row) = name;
        return SW_OK;
    }
    return sw_opt_unknown(what, value, row->choices, p->err);
}

/* A list never outgrows the command line, so its room is taken once. */
static sw_code store_list(const parser *p, const sw_opt *row, const char *what, const char *value)
{
    sw_opt_list *list = field_of(p, row);
    sw_code rc;

    if (!value[0]) return SW_FAIL(p->err, SW_E_USAGE, "%s needs a value, not an empty one", what);
    if (!list->items &&
        (rc = SW_ARENA_TAKE(&list->items, p->arena, p->argc, p->err)) != SW_OK)
        return rc;
    list->items[list->n++] = value;
    return SW_OK;
}

static const store_fn stores[SW_OPT_KIND_COUNT] = {
    [SW_OPT_INT] = store_int,   [SW_OPT_REAL] = store_real,     [SW_OPT_SIZE] = store_size,
    [SW_OPT_TEXT] = store_text, [SW_OPT_CHOICE] = store_choice, [SW_OPT_LIST] = store_list,
};

/* The option at p->at, with its value or values; moves past them. */
static sw_code take_option(parser *p)
{
    const char *word = p->argv[p->at++];
    const char *equals = word[1] == '-' ? strchr(word, '=') : NULL;
    size_t n_bytes = equals ? (size_t)(equals - word) : strlen(word);
    const sw_opt *row = word[1] == '-' ? find_long(p->table, word + 2, n_bytes - 2)
                        : n_bytes == 2 ? find_letter(p->table, word[1])
                                       : NULL;
    char what[64];
    const char *value;
    sw_code rc;

    if (!row) return unknown_option(p, word);
    p->is_set[row - p->table] = true;
    (void)snprintf(what, sizeof what, "%.*s", (int)n_bytes, word);
    if (row->kind == SW_OPT_FLAG) {
        if (equals) return SW_FAIL(p->err, SW_E_USAGE, "%s takes no value", what);
        *(int *)field_of(p, row) = row->set_to;
        return SW_OK;
    }
    if (!equals && (p->at == p->argc || is_option(p->argv[p->at])))
        return SW_FAIL(p->err, SW_E_USAGE, "%s needs %s", what, row->arg);
    value = equals ? equals + 1 : p->argv[p->at++];
    if ((rc = stores[row->kind](p, row, what, value)) != SW_OK || row->kind != SW_OPT_LIST ||
        equals)
        return rc;
    while (p->at < p->argc && !is_option(p->argv[p->at]))
        if ((rc = store_list(p, row, what, p->argv[p->at++])) != SW_OK) return rc;
    return SW_OK;
}

sw_code sw_opt_store(void *fields, const sw_opt *row, const char *what, const char *value,
                     sw_arena *arena, int list_room, sw_err *err)
{
    parser p = {.fields = fields, .table = row, .argc = list_room, .arena = arena, .err = err};

    return stores[row->kind](&p, row, what, value);
}

static int64_t count_rows(const sw_opt *table)
{
    int64_t n = 0;

    while (table[n].name) n++;
    return n;
}

sw_code sw_opt_parse(void *fields, sw_opt_args *args, const sw_opt *table, int argc,
                     char *const argv[], sw_arena *arena, sw_err *err)
{
    parser p = {.fields = fields, .table = table, .argc = argc, .argv = argv, .arena = arena,
                .err = err};
    bool only_words = false;
    sw_code rc;

    args->n = 0;
    if ((rc = SW_ARENA_TAKE(&args->items, arena, argc + 1, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&args->is_set, arena, count_rows(table) + 1, err)) != SW_OK)
        return rc;
    p.is_set = args->is_set;
    while (p.at < argc) {
        if (!only_words && !strcmp(argv[p.at], "--")) {
            only_words = true;
            p.at++;
        } else if (!only_words && is_option(argv[p.at])) {
            if ((rc = take_option(&p)) != SW_OK) return rc;
        } else {
            args->items[args->n++] = argv[p.at++];
        }
    }
    return SW_OK;
}
