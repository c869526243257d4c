/* swage.c - the program's entry: find the command, parse its options, run it, report.
 *
 * Exit codes are sw_code values (formats/base/status.h). Help that was asked for goes to stdout
 * with exit 0; help that corrects a mistake goes to stderr with exit 2.
 */
#include <cblas.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/parallel.h"
#include "formats/io/file.h"
#include "formats/io/profile.h"
#include "formats/io/watch.h"
#include "formats/model/model.h"
#include "kernels/device.h"
#include "tools/cli/cmd.h"
#include "tools/cli/model_args.h"
#include "tools/cli/signals.h"
#include "tools/device/cpu_setup.h"
#include "tools/device/ranks.h"
#include "tools/shell/commands.h"

#define MMAP_THRESHOLD_BYTES (1 << 20)
#define N_FIRST_EXAMPLES 3

static void print_overview(FILE *out)
{
    (void)fputs("swage - quantize language models, convert checkpoints, and verify them\n\n"
                "usage: swage COMMAND ...\n\n",
                out);
    for (int i = 0; sw_commands[i]; i++)
        (void)fprintf(out, "  %-10s %s\n", sw_commands[i]->name, sw_commands[i]->summary);
    (void)fputs("\nswage COMMAND --help shows options and examples; swage --version.\n"
                "Results go to stdout, messages to stderr.\n" SW_UNITS_HELP "Exit codes: ",
                out);
    for (int i = 0; i < sw_n_exit_codes; i++)
        (void)fprintf(out, "%d %s%s", (int)sw_exit_codes[i].code, sw_exit_codes[i].brief,
                      i + 1 == sw_n_exit_codes ? ".\n"
                      : i % 6 == 5             ? ",\n"
                                               : ", ");
}

/* The first examples come before the options, for that is what most readers look for. */
static void print_command_help(FILE *out, const sw_cmd *cmd)
{
    int i;

    (void)fprintf(out, "swage %s - %s\n\nusage: swage %s %s\n", cmd->name, cmd->summary, cmd->name,
                  cmd->args);
    (void)fputs("\nexamples:\n", out);
    for (i = 0; cmd->examples[i] && i < N_FIRST_EXAMPLES; i++)
        (void)fprintf(out, "  %s\n", cmd->examples[i]);
    if (cmd->more) (void)fprintf(out, "\n%s", cmd->more);
    sw_opt_print(out, cmd->options);
    if (cmd->examples[i]) (void)fputs("\nmore examples:\n", out);
    for (; cmd->examples[i]; i++) (void)fprintf(out, "  %s\n", cmd->examples[i]);
}

/* A pipeline that asked for JSON gets an object when the run fails as well. */
static void print_json_error(sw_run *run, const sw_cmd *cmd, const sw_err *err)
{
    cJSON *object = NULL;
    sw_err ignored = {0};

    if (sw_cmd_json_new(&object, "error", &ignored) != SW_OK) return;
    if (cJSON_AddStringToObject(object, "command", cmd->name) &&
        cJSON_AddStringToObject(object, "code", sw_code_name(err->code)) &&
        cJSON_AddNumberToObject(object, "exit", err->code) &&
        cJSON_AddStringToObject(object, "message", err->text))
        (void)!sw_cmd_json_print(run, object, &ignored);
    cJSON_Delete(object);
}

static sw_code check_args(const sw_cmd *cmd, const sw_opt_args *args, sw_err *err)
{
    if (args->n < cmd->min_args)
        return SW_FAIL(err, SW_E_USAGE, "too few arguments; usage: swage %s %s", cmd->name,
                       cmd->args);
    if (args->n > cmd->max_args)
        return SW_FAIL(err, SW_E_USAGE, "'%s' is one argument too many; usage: swage %s %s",
                       args->items[cmd->max_args], cmd->name, cmd->args);
    return SW_OK;
}

/* Help wins over everything else on the line, so that asking never needs a valid command. */
static bool asks_for_help(int argc, char *const argv[])
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return true;
    return false;
}

/* Has who read the result gone, as head does when it has seen enough? Nobody is to be told then. */
static bool is_reader_gone(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    struct stat info;

    return fstat(STDOUT_FILENO, &info) == 0 && S_ISFIFO(info.st_mode) && poll(&out, 1, 0) == 1 &&
           (out.revents & POLLERR);
}

static sw_code flush_result(sw_err *err)
{
    int failed = ferror(stdout);

    failed |= fflush(stdout);
    return failed ? SW_FAIL(err, SW_E_IO, "cannot write the result to stdout") : SW_OK;
}

static bool takes_threads(const sw_cmd *cmd)
{
    for (const sw_opt *row = cmd->options; row->name; row++)
        if (!strcmp(row->name, "threads")) return true;
    return false;
}

/* Nobody wants to learn at the end of a long run that the trace has no place. */
static sw_code begin_profile(const char *path, sw_err *err)
{
    if (!path) return SW_OK;
    if (access(path, F_OK) == 0)
        return SW_FAIL(err, SW_E_USAGE, "--profile %s: there is a file already; give another name",
                       path);
    sw_profile_begin();
    return SW_OK;
}

/* Of a run that failed as well: its time went somewhere. The run's own failure is the first. */
static sw_code end_profile(const char *path, sw_code rc, sw_err *err)
{
    sw_err local = {0};
    sw_code wrote;

    if (!sw_profile_is_on()) return rc;
    wrote = sw_profile_write(path, &local);
    sw_profile_end();
    if (rc != SW_OK || wrote == SW_OK) return rc;
    *err = local;
    return wrote;
}

static void say_end(sw_run *run, const sw_cmd *cmd, const sw_cmd_common *common, sw_code rc,
                    const sw_err *err)
{
    if (rc != SW_OK && common && common->json && !run->has_result) print_json_error(run, cmd, err);
    if (rc != SW_OK) sw_term_error(run->term, cmd->name, err);
    sw_term_end(run->term, (int)rc);
}

static int run_command(const sw_cmd *cmd, int argc, char *const argv[])
{
    sw_arena arena = {0};
    sw_term term;
    sw_err err = {0};
    sw_opt_args args = {0};
    sw_run run = {.term = &term, .arena = &arena};
    sw_cmd_common *common = NULL;
    bool is_heard = true;
    sw_code rc;

    sw_term_init(&term, false);
    if (asks_for_help(argc, argv)) {
        print_command_help(stdout, cmd);
        rc = flush_result(&err);
        is_heard = rc == SW_OK || !is_reader_gone();
        goto done;
    }
    if ((rc = sw_arena_take((void **)&common, &arena, 1, cmd->options_bytes, &err)) != SW_OK)
        goto done;
    if (cmd->defaults) memcpy(common, cmd->defaults, cmd->options_bytes);
    if ((rc = sw_opt_parse(common, &args, cmd->options, argc, argv, &arena, &err)) != SW_OK ||
        (rc = check_args(cmd, &args, &err)) != SW_OK)
        goto done;
    run.args = args.items;
    if ((rc = sw_ranks_begin(&run, cmd, common, &err)) != SW_OK) goto done;
    if (!common->threads) common->threads = sw_cpu_count();
    sw_team_use_threads(run.team, (int)common->threads);
    term.team = run.team;
    term.is_quiet = common->quiet != 0;
    sw_term_begin(&term, common->progress, common->color, cmd->name);
    sw_path_follow_links(common->follow_links != 0);
    sw_arch_allow_unknown(cmd->takes_any_family);
    if ((rc = sw_arch_stand_in(common->arch_like, &err)) != SW_OK) goto done;
    run.options = common;
    run.args = args.items;
    run.n_args = args.n;
    run.is_set = args.is_set;
    if (takes_threads(cmd) &&
        (rc = sw_parallel_reserve((int)common->threads, &err)) != SW_OK)
        goto done;
    if ((rc = begin_profile(common->profile, &err)) != SW_OK) goto done;
    sw_signals_catch(cmd->name, common->json != 0, cmd->is_long);
    sw_watch_begin();
    sw_ranks_note(&run, common);
    if ((rc = sw_model_args(cmd, common, &args, &arena, &term.progress, &err)) == SW_OK)
        rc = cmd->run(&run, &err);
    rc = end_profile(common->profile, rc, &err);
    sw_term_clear(&term);
    if (rc == SW_OK && common->arch_like && !sw_arch_stood_in())
        sw_progress_note(&term.progress, "--arch-like %s was not needed: the model_type is known",
                         common->arch_like);
    if (rc == SW_OK && (rc = flush_result(&err)) != SW_OK) is_heard = !is_reader_gone();
done:
    rc = sw_team_end(run.team, rc, &err);
    if (is_heard && sw_team_speaks(run.team)) say_end(&run, cmd, common, rc, &err);
    (void)fflush(NULL);
    sw_team_close(run.team, rc);
    sw_watch_end();
    sw_arena_free(&arena);
    return (int)rc;
}

static int misuse(const char *word)
{
    const char *near = sw_opt_nearest(word, sw_command_name);

    char guess[64] = "";

    if (near) (void)snprintf(guess, sizeof guess, "; did you mean %s?", near);
    (void)fprintf(stderr, "swage: unknown command '%s'%s (swage --help lists them)\n", word,
                  guess);
    return SW_E_USAGE;
}

int main(int argc, char *argv[])
{
    const sw_cmd *cmd;
    sw_err err = {0};

    sw_cpu_setup(argv);
    /* matrices go back to the system when they are freed; the C library would learn to keep them */
    (void)mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES);
    (void)signal(SIGXFSZ, SIG_IGN); /* a file size limit is then a write that fails, not a death */
    openblas_set_num_threads(1);    /* threads come from sw_parallel_for alone */
    if (argc < 2) {
        print_overview(stderr);
        return SW_E_USAGE;
    }
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "version")) {
        (void)printf("swage " SW_VERSION " (" SW_CONFIG " build, compiler " __VERSION__ ", %s)\n",
                     sw_device_is_built() ? "CPU and CUDA" : "CPU only");
        return (int)flush_result(&err);
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        if (argc > 2 && argv[1][0] == 'h') {
            if ((cmd = sw_command_find(argv[2])) == NULL) return misuse(argv[2]);
            print_command_help(stdout, cmd);
        } else {
            print_overview(stdout);
        }
        return (int)flush_result(&err);
    }
    cmd = sw_command_find(argv[1]);
    return cmd ? run_command(cmd, argc - 2, argv + 2) : misuse(argv[1]);
}
