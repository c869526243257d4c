/* test_opt.c - option tables: what parses, what is refused and how, and that help shows it all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tools/cli/cmd.h"

typedef struct fields {
    int flag;
    int64_t count;
    double rate;
    const char *text;
    uint64_t size;
    const char *color;
    sw_opt_list files;
} fields;

static const char *color_name(int i)
{
    static const char *const names[] = {"red", "green", "blue", NULL};
    return names[i];
}

static const sw_opt table[] = {
    {.name = "on", .letter = 'n', .kind = SW_OPT_FLAG, .offset = offsetof(fields, flag),
     .set_to = 1, .help = "h-on"},
    {.name = "off", .kind = SW_OPT_FLAG, .offset = offsetof(fields, flag), .set_to = 2,
     .help = "h-off"},
    {.name = "count", .letter = 'c', .kind = SW_OPT_INT, .offset = offsetof(fields, count),
     .arg = "N", .min = -5, .max = 10, .help = "h-count"},
    {.name = "rate", .kind = SW_OPT_REAL, .offset = offsetof(fields, rate), .arg = "R", .min = 0,
     .max = 1, .help = "h-rate", .word = "auto"},
    {.name = "text", .kind = SW_OPT_TEXT, .offset = offsetof(fields, text), .arg = "T",
     .help = "h-text"},
    {.name = "size", .kind = SW_OPT_SIZE, .offset = offsetof(fields, size), .arg = "S",
     .help = "h-size"},
    {.name = "color", .kind = SW_OPT_CHOICE, .offset = offsetof(fields, color), .arg = "C",
     .choices = color_name, .help = "h-color"},
    {.name = "file", .kind = SW_OPT_LIST, .offset = offsetof(fields, files), .arg = "F",
     .help = "h-file"},
    {0},
};

#define MAX_WORDS 16

typedef struct parsed {
    fields f;
    sw_opt_args args;
    sw_arena arena;
    sw_err err;
    sw_code rc;
} parsed;

/* `line` is cut at blanks; "_" stands for an empty word. */
static void parse(parsed *p, char *words, const char *line)
{
    char *argv[MAX_WORDS + 1];
    int argc = 0;

    memset(p, 0, sizeof *p);
    (void)snprintf(words, 256, "%s", line);
    for (char *w = strtok(words, " "); w; w = strtok(NULL, " ")) {
        assert_true(argc < MAX_WORDS);
        argv[argc++] = strcmp(w, "_") ? w : w + 1;
    }
    p->rc = sw_opt_parse(&p->f, &p->args, table, argc, argv, &p->arena, &p->err);
}

static void test_values_land(void **state)
{
    parsed p;
    char words[256];

    (void)state;
    parse(&p, words, "a --count -3 --rate=0.25 -n --text=x=y --size 3K --color GREEN b");
    assert_int_equal(p.rc, SW_OK);
    assert_int_equal(p.f.count, -3);
    assert_true(p.f.rate == 0.25);
    assert_int_equal(p.f.flag, 1);
    assert_string_equal(p.f.text, "x=y");
    assert_int_equal(p.f.size, 3072);
    assert_string_equal(p.f.color, "green");
    assert_int_equal(p.args.n, 2);
    assert_string_equal(p.args.items[0], "a");
    assert_string_equal(p.args.items[1], "b");
    sw_arena_free(&p.arena);
    {
        static const struct {
            const char *line;
            uint64_t want;
        } sizes[] = {{"--size 7", 7}, {"--size 2KiB", 2048}, {"--size 2kB", 2000},
                     {"--size 5GB", 5000000000u}, {"--size 1g", 1u << 30}, {"--size 9B", 9},
                     {"--size 4.5G", UINT64_C(9) << 29}, {"--size 0.25k", 256},
                     {"--size 1.5kB", 1500}, {"--size 8192T", UINT64_C(1) << 53}};
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            parse(&p, words, sizes[i].line);
            assert_int_equal(p.rc, SW_OK);
            assert_int_equal(p.f.size, sizes[i].want);
            sw_arena_free(&p.arena);
        }
    }
    parse(&p, words, "--rate auto");
    assert_true(p.rc == SW_OK && p.f.rate == SW_OPT_WORD);
    sw_arena_free(&p.arena);
}

static void test_list_takes_words_up_to_next_option(void **state)
{
    parsed p;
    char words[256];

    (void)state;
    parse(&p, words, "a --file x y --off --file=z w -- --on");
    assert_int_equal(p.rc, SW_OK);
    assert_int_equal(p.f.files.n, 3);
    assert_string_equal(p.f.files.items[1], "y");
    assert_string_equal(p.f.files.items[2], "z");
    assert_int_equal(p.f.flag, 2); /* the --on behind "--" is a word */
    assert_int_equal(p.args.n, 3);
    assert_string_equal(p.args.items[2], "--on");
    sw_arena_free(&p.arena);
}

static void test_refusals_say_why(void **state)
{
    static const struct {
        const char *line, *want;
    } cases[] = {
        {"--cuont 3", "unknown option --cuont; did you mean --count?"},
        {"--nothing-like-it", "unknown option --nothing-like-it; --help lists them"},
        {"-x", "unknown option -x; --help lists them"},
        {"-nc", "unknown option -nc; --help lists them"},
        {"--count", "--count needs N"},
        {"--count --on", "--count needs N"},
        {"--count 11", "--count: 11 is outside -5..10"},
        {"--count 3x", "--count: '3x' is not a whole number"},
        {"--count 99999999999999999999", "--count: '99999999999999999999' is not a whole number"},
        {"-c= ", "unknown option -c=; --help lists them"},
        {"--rate 1.5", "--rate: 1.5 is outside 0..1"},
        {"--rate nan", "--rate: 'nan' is not a number"},
        {"--on=1", "--on takes no value"},
        {"--text _", "--text needs a value, not an empty one"},
        {"--text=", "--text needs a value, not an empty one"},
        {"--file=", "--file needs a value, not an empty one"},
        {"--size 3Q", "--size: '3Q' is not a size such as 512M or 2G"},
        {"--size 1.5", "--size: '1.5' is not a size such as 512M or 2G"},
        {"--size 8192.1T", "--size: '8192.1T' is not a size such as 512M or 2G"},
        {"--size 3.G", "--size: '3.G' is not a size such as 512M or 2G"},
        {"--size 3Ki", "--size: '3Ki' is not a size such as 512M or 2G"},
        {"--size 3GBx", "--size: '3GBx' is not a size such as 512M or 2G"},
        {"--size -1", "--size: '-1' is not a size such as 512M or 2G"},
        {"--size 99999999999T", "--size: '99999999999T' is not a size such as 512M or 2G"},
        {"--color rde", "--color does not know 'rde'; did you mean red? (there are red, green, "
                        "blue)"},
        {"--color x", "--color does not know 'x'; there are red, green, blue"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        parsed p;
        char words[256];
        parse(&p, words, cases[i].line);
        assert_int_equal(p.rc, SW_E_USAGE);
        assert_string_equal(p.err.text, cases[i].want);
        sw_arena_free(&p.arena);
    }
}

static void test_several_choices(void **state)
{
    const sw_opt many[] = {{.name = "color", .kind = SW_OPT_CHOICE, .is_many = true, .arg = "C,...",
                             .offset = offsetof(fields, color), .choices = color_name,
                             .help = "h"}, {0}};
    char words[] = "--color\0Blue,red\0--color=RED\0--color\0green";
    char slip[] = "--color=red,bleu", gap[] = "--color=red,";
    char *const argv[] = {words, words + 8, words + 17, words + 29, words + 37};
    char *const wrong[] = {slip}, *const empty[] = {gap};
    sw_arena arena = {0};
    sw_opt_args args;
    fields f = {.color = "red"};
    sw_err err = {0};

    (void)state;
    assert_int_equal(sw_opt_parse(&f, &args, many, 2, argv, &arena, &err), SW_OK);
    assert_string_equal(f.color, "blue,red"); /* not the default and these */
    assert_int_equal(sw_opt_parse(&f, &args, many, 5, argv, &arena, &err), SW_OK);
    assert_string_equal(f.color, "blue,red,green");
    assert_true(sw_opt_has_choice(f.color, "green") && sw_opt_has_choice(f.color, "blue"));
    assert_false(sw_opt_has_choice(f.color, "re") || sw_opt_has_choice(NULL, "red"));
    assert_int_equal(sw_opt_parse(&f, &args, many, 1, wrong, &arena, &err), SW_E_USAGE);
    assert_string_equal(err.text, "--color does not know 'bleu'; did you mean blue? (there are "
                                  "red, green, blue)");
    err = (sw_err){0};
    assert_int_equal(sw_opt_parse(&f, &args, many, 1, empty, &arena, &err), SW_E_USAGE);
    sw_arena_free(&arena);
}

static void test_sizes(void **state)
{
    uint64_t size = 0;
    sw_err err = {0};

    (void)state;
    assert_int_equal(sw_opt_size(&size, "4.5G", "s", &err), SW_OK);
    assert_int_equal(size, UINT64_C(9) << 29);
    assert_int_equal(sw_opt_size(&size, "0.25k", "s", &err), SW_OK);
    assert_int_equal(size, 256);
    assert_int_equal(sw_opt_size(&size, "8192T", "s", &err), SW_OK);
    assert_int_equal(sw_opt_size(&size, "8192.1T", "s", &err), SW_E_USAGE);
    assert_int_equal(sw_opt_size(&size, "1.5", "s", &err), SW_E_USAGE); /* half a byte */
    assert_int_equal(sw_opt_size(&size, ".5G", "s", &err), SW_E_USAGE);
}

static void test_distance(void **state)
{
    (void)state;
    assert_int_equal(sw_opt_distance("abc", "abc"), 0);
    assert_int_equal(sw_opt_distance("abc", "acb"), 1);
    assert_int_equal(sw_opt_distance("", "abc"), 3);
    assert_int_equal(sw_opt_distance("Kitten", "sitting"), 3);
}

static void test_join_is_cut(void **state)
{
    char text[12];

    (void)state;
    sw_opt_join(text, sizeof text, color_name);
    assert_string_equal(text, "red, gre...");
}

/* How often `line_start` begins a line of `text`. */
static int count_lines(const char *text, const char *line_start)
{
    size_t n = strlen(line_start);
    int count = 0;

    for (const char *at = text; at != NULL; at = strchr(at, '\n')) {
        at += *at == '\n';
        count += !strncmp(at, line_start, n) && (at[n] == ' ' || at[n] == '\n');
    }
    return count;
}

/* The row has a group, and help lists it exactly once: with its text, or by its name alone when
 * another command describes it. */
static void check_listed_once(const char *help, const sw_opt *o)
{
    char line[80], named[80];

    (void)snprintf(line, sizeof line, "      --%s", o->name);
    if (o->letter) (void)snprintf(line, sizeof line, "  -%c, --%s", o->letter, o->name);
    (void)snprintf(named, sizeof named, "  --%s%s%s", o->name, o->arg ? " " : "",
                   o->arg ? o->arg : "");
    assert_in_range(o->group, SW_OPT_COMMON, SW_OPT_GROUP_COUNT - 1);
    assert_int_equal(count_lines(help, line), o->listed_by ? 0 : 1);
    if (o->listed_by) assert_non_null(strstr(help, named));
}

static void test_help_prints_groups(void **state)
{
    static const sw_opt rows[] = {
        {.name = "rare", .group = SW_OPT_EXPERT, .help = "h-rare"},
        {.name = "file", .letter = 'f', .group = SW_OPT_COMMON, .arg = "F", .help = "h-file",
         .kind = SW_OPT_CHOICE, .choices = color_name},
        {.name = "path", .group = SW_OPT_COMMON, .arg = "F", .kind = SW_OPT_CHOICE,
         .choices = color_name, .alias_of = "file"},
        {.name = "far", .group = SW_OPT_COMMON, .arg = "X", .kind = SW_OPT_TEXT, .help = "h-far",
         .listed_by = "other"},
        {.name = "lost", .help = "h-lost"},
        {0},
    };
    char *help = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&help, &n);

    (void)state;
    assert_non_null(out);
    sw_opt_print(out, rows);
    fclose(out);
    assert_string_equal(help,
                        "\noptions:\n"
                        "  -f, --file F                h-file: red, green, blue\n"
                        "      --path F                the same as --file\n"
                        "\noptions for special cases:\n"
                        "      --rare                  h-rare\n"
                        "\noptions of `swage other`, which have the same meaning here (see `swage "
                        "other --help`):\n"
                        "  --far X\n");
    free(help);
}

#define SW_CMD(id) extern const sw_cmd sw_cmd_##id;
#include "tools/cli/cmds.def"
#undef SW_CMD

/* Every command's table is sound, and its help names every option. */
static void test_command_tables(void **state)
{
    static const sw_cmd *const all[] = {
#define SW_CMD(id) &sw_cmd_##id,
#include "tools/cli/cmds.def"
#undef SW_CMD
    };

    (void)state;
    for (size_t c = 0; c < sizeof all / sizeof all[0]; c++) {
        const sw_cmd *cmd = all[c];
        char *help = NULL;
        size_t n = 0;
        FILE *out = open_memstream(&help, &n);
        assert_non_null(out);
        sw_opt_print(out, cmd->options);
        fclose(out);
        assert_non_null(cmd->run);
        assert_non_null(cmd->examples[0]);
        assert_true(cmd->min_args <= cmd->max_args);
        for (const sw_opt *o = cmd->options; o->name; o++) {
            check_listed_once(help, o);
            assert_true(o->alias_of ? !o->help : o->help && o->help[0]);
            assert_true(o->kind == SW_OPT_FLAG ? o->set_to != 0 && !o->arg : o->arg != NULL);
            assert_true((o->kind == SW_OPT_CHOICE) == (o->choices != NULL));
            assert_true(o->offset < cmd->options_bytes);
            for (const sw_opt *other = o + 1; other->name; other++) {
                assert_string_not_equal(o->name, other->name);
                assert_true(!o->letter || o->letter != other->letter);
            }
        }
        for (char *line = strtok(help, "\n"); line; line = strtok(NULL, "\n"))
            assert_true(strlen(line) <= 100);
        free(help);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_land),
        cmocka_unit_test(test_list_takes_words_up_to_next_option),
        cmocka_unit_test(test_refusals_say_why),
        cmocka_unit_test(test_several_choices),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_distance),
        cmocka_unit_test(test_join_is_cut),
        cmocka_unit_test(test_help_prints_groups),
        cmocka_unit_test(test_command_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
