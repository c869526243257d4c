/* opt.c - see opt.h: finding rows, storing values. Numbers and help are in opt_text.c. */
#include "tools/cli/opt.h"

#include <string.h>
#include <strings.h>

typedef struct parser {
    void *fields;
    const sw_opt *table;
    int argc, at;
    bool *is_set;
    bool is_again; /* the option at hand was on the line before */
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

static const char *choice_of(const sw_opt *row, const char *word, size_t n_bytes)
{
    const char *name;

    for (int i = 0; (name = row->choices(i)) != NULL; i++)
        if (strlen(name) == n_bytes && !strncasecmp(name, word, n_bytes)) return name;
    return NULL;
}

/* One more name behind those that the field holds; a name that is there already changes nothing. */
static sw_code add_choice(const parser *p, const char **field, const char *name)
{
    size_t n_had = *field ? strlen(*field) : 0, n_more = strlen(name);
    char *text = NULL;
    sw_code rc;

    if (!n_had) *field = name;
    if (!n_had || sw_opt_has_choice(*field, name)) return SW_OK;
    rc = SW_ARENA_TAKE(&text, p->arena, (int64_t)(n_had + n_more + 2), p->err);
    if (rc != SW_OK) return rc;
    memcpy(text, *field, n_had);
    text[n_had] = ',';
    memcpy(text + n_had + 1, name, n_more + 1);
    *field = text;
    return SW_OK;
}

static sw_code store_choice(const parser *p, const sw_opt *row, const char *what,
                            const char *value)
{
    const char **field = field_of(p, row), *chosen = p->is_again && row->is_many ? *field : NULL;
    const char *at = value, *end;
    sw_code rc = SW_OK;

    do {
        const char *name;
        size_t n_bytes = row->is_many ? strcspn(at, ",") : strlen(at);
        char word[64];
        end = at + n_bytes;
        if (!(name = choice_of(row, at, n_bytes))) {
            (void)snprintf(word, sizeof word, "%.*s", (int)n_bytes, at);
            return sw_opt_unknown(what, n_bytes < sizeof word ? word : value, row->choices,
                                  p->err);
        }
        rc = add_choice(p, &chosen, name);
        at = end + 1;
    } while (rc == SW_OK && *end);
    if (rc == SW_OK) *field = chosen;
    return rc;
}

bool sw_opt_has_choice(const char *chosen, const char *name)
{
    size_t n = strlen(name);

    for (const char *at = chosen; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strcspn(at, ",") == n && !memcmp(at, name, n)) return true;
    return false;
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
    p->is_again = p->is_set[row - p->table];
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
