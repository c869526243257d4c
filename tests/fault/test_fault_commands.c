/* test_fault_commands.c - whole commands with memory, reads and writes failing: the right code, no
 * leak, and an output that is complete or absent. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/fault/fault.h"
#include "tests/support/cases/quantized_dir.h"
#include "tests/support/scratch.h"
#include "tests/support/toys/recipe_model.h"
#include "tools/cli/cmd.h"

#define MODEL "^model" /* of RECIPE, which is small: every attempt is a whole command */
#define RECIPE "tests/golden/small_llama"
#define WEIGHTS MODEL "/model.safetensors"
#define TOKENS "tests/golden/arch/llama/reference.safetensors" /* 2 windows of 48 */
#define WORDS_MAX 24

#define SW_CMD(id) extern const sw_cmd sw_cmd_##id;
#include "tools/cli/cmds.def"
#undef SW_CMD

typedef struct command_case {
    const sw_cmd *cmd;
    char *argv[WORDS_MAX];
    int argc;
    scratch s;
} command_case;

static scratch shared; /* what all tests read */

/* As the program runs it, but for signals and the printing of errors. */
static sw_code run_command(command_case *c, sw_err *err)
{
    sw_arena arena = {0};
    sw_term term;
    sw_opt_args args = {0};
    sw_run run = {.term = &term, .arena = &arena};
    sw_cmd_common *common = NULL;
    sw_code rc = sw_arena_take((void **)&common, &arena, 1, c->cmd->options_bytes, err);

    if (rc != SW_OK) goto done;
    if (c->cmd->defaults) memcpy(common, c->cmd->defaults, c->cmd->options_bytes);
    rc = sw_opt_parse(common, &args, c->cmd->options, c->argc, c->argv, &arena, err);
    if (rc != SW_OK) goto done;
    common->threads = 1;
    sw_term_init(&term, true);
    run.options = common;
    run.args = args.items;
    run.n_args = args.n;
    run.is_set = args.is_set;
    rc = c->cmd->run(&run, err);
done:
    sw_arena_free(&arena);
    return rc;
}

static sw_code attempt(void *ctx, sw_err *err)
{
    int real, null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    sw_code rc;

    fflush(stdout);
    real = dup(STDOUT_FILENO);
    dup2(null, STDOUT_FILENO);
    rc = run_command(ctx, err);
    fflush(stdout);
    dup2(real, STDOUT_FILENO);
    close(real);
    close(null);
    return rc;
}

static void whole_or_absent(void *ctx)
{
    command_case *c = ctx;

    /* finished blocks stay, but nothing else does */
    if (sw_path_exists(scratch_path(&c->s, "out.partial")))
        assert_true(sw_path_exists(scratch_path(&c->s, "out.partial/journal")));
    assert_false(scratch_has(&c->s, ".tmp"));
    if (sw_path_exists(scratch_path(&c->s, "out"))) /* only the reading back can fail then */
        assert_true(sw_path_exists(scratch_path(&c->s, "out/manifest.json")));
}

static void drop_output(void *ctx)
{
    command_case *c = ctx;
    char line[SW_PATH_BYTES + 32];

    snprintf(line, sizeof line, "rm -rf '%s' '%s.partial'", scratch_path(&c->s, "out"),
             scratch_path(&c->s, "out"));
    assert_int_equal(system(line), 0);
}

/* "@name" is a path in the scratch directory of a test, "^name" one in that of all. */
static const char *path_of(const command_case *c, const char *word)
{
    return word[0] == '@' ? scratch_path(&c->s, word + 1)
         : word[0] == '^' ? scratch_path(&shared, word + 1) : word;
}

/* Words up to NULL. */
static void set_words(command_case *c, const sw_cmd *cmd, const char *const *words)
{
    c->cmd = cmd;
    c->argc = 0;
    for (; *words; words++) {
        assert_true(c->argc < WORDS_MAX);
        c->argv[c->argc++] = strdup(path_of(c, *words));
    }
}

static void free_words(command_case *c)
{
    for (int i = 0; i < c->argc; i++) free(c->argv[i]);
}

static void fail_all(const sw_cmd *cmd, unsigned kinds, int64_t max_runs, const char *const *words)
{
    command_case c;
    fault_plan plan = {.name = cmd->name, .kinds = kinds, .attempt = attempt,
                       .before = drop_output, .after_failure = whole_or_absent, .ctx = &c,
                       .max_runs = max_runs};

    scratch_open(&c.s);
    quantized_dir_make(scratch_path(&c.s, "q"), path_of(&c, MODEL), "swage", 4, true, 32);
    set_words(&c, cmd, words);
    fault_run(&plan);
    free_words(&c);
    scratch_close(&c.s);
}

static void quantize_survives_faults(void **state)
{
    static const char *const gptq[] = {
        MODEL, "-o", "@out", "--calib", TOKENS, "--samples", "2", "--seq-len", "48", "--ignore",
        "layers.1|mlp", "--group-size", "32", "--json", NULL
    };
    static const char *const rtn[] = {
        MODEL, "-o", "@out", "--method", "rtn", "--group-size", "32", "--format", "gptq",
        "--shard-size", "30K", NULL
    };

    (void)state;
    fail_all(&sw_cmd_quantize, FAULT_MEMORY | FAULT_READ, 40, gptq);
    fail_all(&sw_cmd_quantize, FAULT_ALL, 40, rtn);
}

/* What a failed run left is continued by the next one, to the bytes of an undisturbed run. */
static void continue_and_compare(void *ctx)
{
    command_case *c = ctx;
    char line[3 * SW_PATH_BYTES];
    sw_err err = {0};

    whole_or_absent(ctx);
    if (!sw_path_exists(scratch_path(&c->s, "out")) && attempt(ctx, &err) != SW_OK)
        fail_msg("continuing: %s", err.text);
    assert_false(sw_path_exists(scratch_path(&c->s, "out.partial")));
    snprintf(line, sizeof line, "diff -r '%s' '%s'", scratch_path(&c->s, "whole"),
             scratch_path(&c->s, "out"));
    assert_int_equal(system(line), 0);
}

/* Runs quantize without a fault; what it made is "whole" from then on. */
static void make_whole(command_case *c, const char *const *words)
{
    sw_err err = {0};

    scratch_open(&c->s);
    set_words(c, &sw_cmd_quantize, words);
    assert_int_equal(attempt(c, &err), SW_OK);
    assert_int_equal(rename(scratch_path(&c->s, "out"), scratch_path(&c->s, "whole")), 0);
}

static void quantize_continues_after_faults(void **state)
{
    static const char *const words[] = {
        MODEL, "-o", "@out", "--calib", TOKENS, "--samples", "2", "--seq-len", "48",
        "--shard-size", "50K", "--ignore", "mlp", "--group-size", "32", NULL
    };
    command_case c;
    fault_plan plan = {.name = "continue", .kinds = FAULT_OUTPUT | FAULT_MEMORY,
                       .attempt = attempt, .before = drop_output,
                       .after_failure = continue_and_compare, .ctx = &c, .max_runs = 28};

    (void)state;
    make_whole(&c, words);
    fault_run(&plan);
    free_words(&c);
    scratch_close(&c.s);
}

static const char *const pair[2] = {"out/W4A16-swage", "out/W4A16-gptq"};

/* Of two outputs of one run: each is whole or absent. Returns how many are there. */
static int count_whole(command_case *c)
{
    int n = 0;

    for (int i = 0; i < 2; i++) {
        char path[64];
        if (!sw_path_exists(scratch_path(&c->s, pair[i]))) continue;
        (void)snprintf(path, sizeof path, "%s/manifest.json", pair[i]);
        assert_true(sw_path_exists(scratch_path(&c->s, path)));
        n++;
    }
    return n;
}

/* A write that fails is one output's alone: the other is whole, and the same command makes both. */
static void other_is_whole(void *ctx)
{
    command_case *c = ctx;
    char line[3 * SW_PATH_BYTES];
    sw_err err = {0};

    assert_true(count_whole(c) >= 1);
    if (attempt(ctx, &err) != SW_OK) fail_msg("again: %s", err.text);
    snprintf(line, sizeof line, "diff -r '%s' '%s'", scratch_path(&c->s, "whole"),
             scratch_path(&c->s, "out"));
    assert_int_equal(system(line), 0);
}

static void each_is_whole_or_absent(void *ctx)
{
    (void)count_whole(ctx);
}

static void one_output_fails_alone(void **state)
{
    static const char *const words[] = {
        MODEL, "-o", "@out", "--calib", TOKENS, "--samples", "2", "--seq-len", "48", "--ignore",
        "layers.1|mlp", "--group-size", "32", "--format", "swage,gptq", "--json", NULL
    };
    command_case c;
    fault_plan plan = {.name = "one output", .kinds = FAULT_WRITE | FAULT_SYNC,
                       .attempt = attempt, .before = drop_output,
                       .after_failure = other_is_whole, .ctx = &c, .max_runs = 16};

    (void)state;
    make_whole(&c, words);
    fault_run(&plan);
    plan.name = "two outputs";
    plan.max_runs = 28;
    plan.kinds = FAULT_NAME | FAULT_MEMORY | FAULT_READ;
    plan.after_failure = each_is_whole_or_absent;
    fault_run(&plan);
    free_words(&c);
    scratch_close(&c.s);
}

static void sweep_survives_faults(void **state)
{
    static const char *const words[] = {
        MODEL, "-o", "@out", "--method", "rtn", "--group-size", "32", "--format", "swage,gptq",
        "--text", TOKENS, "--window", "48", "--max-windows", "1", "--max-kl", "100", NULL
    };
    command_case c;
    fault_plan plan = {.name = "sweep", .kinds = FAULT_ALL, .attempt = attempt,
                       .before = drop_output, .after_failure = each_is_whole_or_absent, .ctx = &c,
                       .max_runs = 20};

    (void)state;
    scratch_open(&c.s);
    set_words(&c, &sw_cmd_sweep, words);
    fault_run(&plan);
    free_words(&c);
    scratch_close(&c.s);
}

static void convert_survives_faults(void **state)
{
    static const char *const exact[] = {
        "@q", "--to", "compressed-tensors", "-o", "@out", "--shard-size", "30K", NULL
    };
    static const char *const rounded[] = {
        "@q", "--to", "gptq", "-o", "@out", "--allow-requantize", "--scheme", "W8A16", "--json",
        NULL
    };
    static const char *const plain[] = {"@q", "--to", "f32", "-o", "@out", NULL};

    (void)state;
    fail_all(&sw_cmd_convert, FAULT_ALL, 40, exact);
    fail_all(&sw_cmd_convert, FAULT_ALL, 30, rounded);
    fail_all(&sw_cmd_convert, FAULT_ALL, 30, plain);
}

static void verify_survives_faults(void **state)
{
    static const char *const words[] = {
        "@q", "--against", MODEL, "--text", TOKENS, "--window", "48", "--report", "@report.json",
        "--html", "@page.html", "--force", "--max-kl", "100", NULL
    };

    (void)state;
    fail_all(&sw_cmd_verify, FAULT_ALL, 40, words);
}

static void looking_survives_faults(void **state)
{
    static const char *const inspect[] = {WEIGHTS, "--tensors", "--values", "--json", NULL};
    /* nearly all of its calls are of a tokenizer's, which test_fault_text.c has on its own */
    static const char *const directory[] = {"calib_data/tiny-llama", "--json", NULL};
    /* the same few allocations for each of many rows */
    static const char *const list[] = {"--json", NULL};

    (void)state;
    fail_all(&sw_cmd_inspect, FAULT_MEMORY, 40, inspect);
    fail_all(&sw_cmd_inspect, FAULT_MEMORY | FAULT_READ, 12, directory);
    fail_all(&sw_cmd_list, FAULT_MEMORY, 40, list);
}

static void report_survives_faults(void **state)
{
    static const char *const words[] = {"@q", MODEL, "-o", "@page.html", "--force", "--json", NULL};

    (void)state;
    fail_all(&sw_cmd_report, FAULT_ALL, 80, words);
}

static void generate_survives_faults(void **state)
{
    static const char *const words[] = {
        "calib_data/tiny-llama", "-n", "4", "--temperature", "1", "--out", "@out.u16", "--force",
        "--json", NULL
    };

    (void)state;
    fail_all(&sw_cmd_generate, FAULT_ALL, 25, words);
}

static int make_shared(void **state)
{
    sw_err err = {0};

    (void)state;
    scratch_open(&shared);
    scratch_make_dir(&shared, "model");
    if (recipe_model_make(path_of(NULL, MODEL), RECIPE, "config.json", &err) != SW_OK)
        fail_msg("%s", err.text);
    return 0;
}

static int remove_shared(void **state)
{
    (void)state;
    scratch_close(&shared);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantize_survives_faults),
        cmocka_unit_test(quantize_continues_after_faults),
        cmocka_unit_test(one_output_fails_alone),
        cmocka_unit_test(sweep_survives_faults),
        cmocka_unit_test(convert_survives_faults),
        cmocka_unit_test(verify_survives_faults),
        cmocka_unit_test(looking_survives_faults),
        cmocka_unit_test(report_survives_faults),
        cmocka_unit_test(generate_survives_faults),
    };
    return cmocka_run_group_tests(tests, make_shared, remove_shared);
}
