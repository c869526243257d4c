/* test_team.c - ranks of one host: what arrives, in which order; that all end when one fails, with
 * one text; that a rank with another input is refused by name.
 *
 * A test forks a process that becomes rank 0 of a team, so that no rank returns into cmocka.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "quant/team/team.h"
#include "tests/support/toys/message.h"

enum { RANKS_MAX = 7, TEXT_BYTES = SW_ERR_TEXT_BYTES };

/* What each rank leaves for the test to look at. */
typedef struct notes {
    int line[RANKS_MAX]; /* of the first check that failed; 0: none did */
    int code[RANKS_MAX]; /* of sw_team_end; -1: the rank did not come so far */
    char text[RANKS_MAX][TEXT_BYTES];
} notes;

static notes *seen;

#define CHECK(condition)                        \
    do {                                        \
        if (!(condition)) {                     \
            seen->line[sw_team_rank(team)] = __LINE__; \
            return SW_E_BUG;                    \
        }                                       \
    } while (0)
#define TRY(call)                                  \
    do {                                           \
        sw_code tried = (call);                    \
        if (tried != SW_OK) return tried;          \
    } while (0)

typedef sw_code (*body)(sw_team *team, sw_err *err);

static void be_rank(int n_ranks, body run)
{
    sw_team *team = NULL;
    sw_err err = {0};
    sw_code rc = sw_team_fork_local(&team, n_ranks, &err);

    if (rc == SW_OK) rc = run(team, &err);
    rc = sw_team_end(team, rc, &err);
    seen->code[sw_team_rank(team)] = (int)rc;
    (void)snprintf(seen->text[sw_team_rank(team)], TEXT_BYTES, "%s", err.text);
    sw_team_close(team, rc);
    _exit((int)rc);
}

/* The exit status of rank 0. */
static int run_ranks(int n_ranks, body run)
{
    int status = 0;
    pid_t first;

    memset(seen, 0, sizeof *seen);
    for (int r = 0; r < RANKS_MAX; r++) seen->code[r] = -1;
    first = fork();
    assert_true(first >= 0);
    if (first == 0) be_rank(n_ranks, run);
    assert_int_equal(waitpid(first, &status, 0), first);
    assert_true(WIFEXITED(status));
    for (int r = 0; r < n_ranks; r++) {
        if (seen->line[r]) print_error("rank %d: line %d\n", r, seen->line[r]);
        assert_int_equal(seen->line[r], 0);
    }
    return WEXITSTATUS(status);
}

static void all_is_well(int n_ranks, body run)
{
    const int status = run_ranks(n_ranks, run);

    if (status != 0) print_error("rank 0 says: %s\n", seen->text[0]);
    assert_int_equal(status, 0);
    for (int r = 0; r < n_ranks; r++) assert_int_equal(seen->code[r], 0);
}

static int make_notes(void **state)
{
    (void)state;
    seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return seen == MAP_FAILED;
}

/* --- what arrives --- */

static const size_t sizes[] = {0,      1,      7,       4096,    (128 << 10) - 1, 128 << 10,
                               (128 << 10) + 1, 3000000, 0, (1 << 20) + 5, 17u << 20};
enum { N_SIZES = sizeof sizes / sizeof *sizes, LARGEST = 17 << 20 };

/* Around the circle; every rank sends first, so this needs exchange. */
static sw_code circle(sw_team *team, sw_err *err)
{
    const int rank = sw_team_rank(team), size = sw_team_size(team);
    const int next = (rank + 1) % size, before = (rank + size - 1) % size;
    uint8_t *out = malloc(LARGEST), *in = malloc(LARGEST);

    CHECK(out && in);
    for (int i = 0; i < N_SIZES; i++) {
        message_fill(out, sizes[i], rank, i);
        TRY(sw_team_exchange(team, next, out, sizes[i], before, in, sizes[i], err));
        CHECK(message_is_whole(in, sizes[i], before, i));
    }
    free(out);
    free(in);
    return SW_OK;
}

/* Ranks that move by one thread meet those that move by several. */
static sw_code circle_by_threads(sw_team *team, sw_err *err)
{
    sw_team_use_threads(team, 2 * (sw_team_rank(team) % 3));
    return circle(team, err);
}

static void test_circle(void **state)
{
    (void)state;
    all_is_well(2, circle);
    all_is_well(3, circle);
    all_is_well(RANKS_MAX, circle);
    all_is_well(2, circle_by_threads);
    all_is_well(3, circle_by_threads);
}

/* Every pair, many messages, the receiver slower than the sender and faster. */
static sw_code pairs(sw_team *team, sw_err *err)
{
    const int rank = sw_team_rank(team), size = sw_team_size(team);
    uint8_t data[3000];

    for (int from = 0; from < size; from++)
        for (int to = 0; to < size; to++)
            for (int i = 0; from != to && i < 300; i++) {
                const size_t n = (size_t)(i * 37 % 3000);
                if (rank == from) {
                    message_fill(data, n, from, i);
                    TRY(sw_team_send(team, to, data, n, err));
                } else if (rank == to) {
                    if (i % 100 == 50) (void)usleep(2000);
                    TRY(sw_team_receive(team, from, data, n, err));
                    CHECK(message_is_whole(data, n, from, i));
                }
            }
    return SW_OK;
}

static void test_pairs(void **state)
{
    (void)state;
    all_is_well(2, pairs);
    all_is_well(5, pairs);
}

static sw_code broadcasts(sw_team *team, sw_err *err)
{
    uint8_t *data = malloc(LARGEST);

    CHECK(data);
    for (int from = 0; from < sw_team_size(team); from++)
        for (int i = 0; i < N_SIZES; i++) {
            memset(data, 0, sizes[i]);
            if (from == sw_team_rank(team)) message_fill(data, sizes[i], from, i);
            TRY(sw_team_broadcast(team, from, data, sizes[i], err));
            CHECK(message_is_whole(data, sizes[i], from, i));
        }
    free(data);
    return SW_OK;
}

static void test_broadcast(void **state)
{
    (void)state;
    all_is_well(2, broadcasts);
    all_is_well(3, broadcasts);
    all_is_well(6, broadcasts);
}

/* Each rank has another number of items, one none; before and behind them is nobody's. */
static sw_code gathers(sw_team *team, sw_err *err)
{
    const int me = sw_team_rank(team), size = sw_team_size(team);
    const int64_t n_most = 40000; /* items of the last ranks travel along the chain */
    size_t begins[RANKS_MAX + 1] = {sizeof(int64_t)};
    int64_t *items = calloc((size_t)(RANKS_MAX * n_most + 2), sizeof *items), n;

    CHECK(items);
    for (int rank = 0; rank < size; rank++)
        begins[rank + 1] = begins[rank] +
                           sizeof *items * (size_t)(rank == 1 ? 0 : n_most * rank / size + 1);
    n = (int64_t)(begins[size] / sizeof *items);
    for (int64_t i = (int64_t)(begins[me] / sizeof *items);
         i < (int64_t)(begins[me + 1] / sizeof *items); i++)
        items[i] = i;
    TRY(sw_team_gather(team, items, begins, err));
    for (int64_t i = 0; i < n; i++) CHECK(items[i] == i);
    CHECK(items[n] == 0);
    free(items);
    return SW_OK;
}

/* Parts of all sizes from ranks in no order, of some ranks none; each rank has some in their places
 * and nothing in the others'. */
static sw_code shares(sw_team *team, sw_err *err)
{
    enum { N = 23 };
    const int me = sw_team_rank(team), size = sw_team_size(team);
    sw_team_part parts[N];
    sw_code rc;

    for (int i = 0; i < N; i++) {
        const size_t n_bytes = i % 7 == 3 ? 0 : (size_t)(1 + i * i * i * 97) % 700001;

        parts[i] = (sw_team_part){(i * i + i / 5) % size, calloc(n_bytes + 1, 1), n_bytes};
        CHECK(parts[i].data);
        if (parts[i].from == me) message_fill(parts[i].data, n_bytes, me, i);
    }
    rc = sw_team_share(team, parts, N, err);
    for (int i = 0; i < N && rc == SW_OK; i++) {
        const uint8_t *data = parts[i].data;

        CHECK(message_is_whole(data, parts[i].n_bytes, parts[i].from, i));
        CHECK(data[parts[i].n_bytes] == 0);
    }
    for (int i = 0; i < N; i++) free(parts[i].data);
    return rc;
}

static void test_share(void **state)
{
    (void)state;
    for (int n_ranks = 1; n_ranks <= 6; n_ranks++) all_is_well(n_ranks, shares);
}

static void test_gather(void **state)
{
    (void)state;
    all_is_well(1, gathers);
    all_is_well(2, gathers);
    all_is_well(5, gathers);
}

static void test_one_rank(void **state)
{
    sw_team *team = NULL;
    sw_err err = {0};
    int value = 7;

    (void)state;
    assert_int_equal(sw_team_fork_local(&team, 1, &err), SW_OK);
    assert_null(team);
    assert_int_equal(sw_team_rank(team), 0);
    assert_int_equal(sw_team_size(team), 1);
    assert_true(sw_team_speaks(team));
    assert_int_equal(sw_team_broadcast(team, 0, &value, sizeof value, &err), SW_OK);
    assert_int_equal(sw_team_barrier(team, &err), SW_OK);
    assert_int_equal(sw_team_check_same(team, "file", &value, sizeof value, &err), SW_OK);
    assert_int_equal(sw_team_agree(team, SW_E_IO, &err), SW_E_IO);
    assert_int_equal(sw_team_end(team, SW_OK, &err), SW_OK);
    sw_team_close(team, SW_OK);
    assert_int_equal(sw_team_send(team, 1, &value, sizeof value, &err), SW_E_BUG);
    assert_int_equal(sw_team_fork_local(&team, SW_TEAM_RANKS_MAX + 1, &err), SW_E_USAGE);
}

/* --- agreement --- */

static sw_code agrees(sw_team *team, sw_err *err)
{
    sw_code mine = SW_OK;

    TRY(sw_team_agree(team, SW_OK, err));
    TRY(sw_team_barrier(team, err));
    if (sw_team_rank(team) == 2) mine = SW_FAIL(err, SW_E_NOMEM, "no room for a Hessian");
    if (sw_team_rank(team) == 1) mine = SW_FAIL(err, SW_E_IO, "no such file");
    return sw_team_agree(team, mine, err);
}

static void test_agree(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(4, agrees), SW_E_NOMEM);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(seen->code[r], SW_E_NOMEM);
        assert_string_equal(seen->text[r], r == 2 ? "no room for a Hessian"
                                                  : "rank 2: no room for a Hessian");
    }
}

/* A failure that all know need not be the end: the next collective serves. */
static sw_code goes_on(sw_team *team, sw_err *err)
{
    sw_err passed = {0};
    sw_code mine = sw_team_rank(team) == 1 ? SW_FAIL(&passed, SW_E_IO, "a disk") : SW_OK;
    int value = sw_team_rank(team);

    CHECK(sw_team_agree(team, mine, &passed) == SW_E_IO);
    TRY(sw_team_broadcast(team, 1, &value, sizeof value, err));
    CHECK(value == 1);
    return SW_OK;
}

static void test_goes_on(void **state)
{
    (void)state;
    all_is_well(3, goes_on);
}

static sw_code checks_same(sw_team *team, sw_err *err)
{
    char config[] = "hidden_size 4096";

    TRY(sw_team_check_same(team, "config.json", config, sizeof config, err));
    if (sw_team_agreed(team) != SW_OK) return SW_FAIL(err, SW_E_BUG, "agreed on nothing");
    if (sw_team_rank(team) == 2) config[3] = 'x';
    if (sw_team_check_same(team, "config.json", config, sizeof config, err) == SW_OK) return SW_OK;
    return sw_team_agreed(team);
}

static void test_check_same(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(4, checks_same), SW_E_USAGE);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(seen->code[r], SW_E_USAGE);
        assert_non_null(strstr(seen->text[r], "rank 2 has another config.json than rank 0"));
    }
}

/* --- failure --- */

/* A failure that the others learn while they wait for this rank. */
static sw_code fails_alone(sw_team *team, sw_err *err)
{
    char byte = 0;

    if (sw_team_rank(team) == 2) return SW_FAIL(err, SW_E_CUDA, "the device fell off the bus");
    return sw_team_receive(team, 2, &byte, 1, err);
}

static void test_fails_alone(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(4, fails_alone), SW_E_CUDA);
    assert_string_equal(seen->text[0], "rank 2: the device fell off the bus");
    assert_string_equal(seen->text[2], "the device fell off the bus");
}

/* In the middle of a message, which fits into no ring. */
static sw_code dies(sw_team *team, sw_err *err)
{
    uint8_t *data = calloc(1, LARGEST);

    CHECK(data);
    sw_team_use_threads(team, 4);
    if (sw_team_rank(team) == 1) {
        (void)ualarm(100000, 0); /* kills: nobody takes what is sent */
        return sw_team_send(team, 2, data, LARGEST, err);
    }
    if (sw_team_rank(team) == 2) {
        while (!sw_team_has_failed(team)) (void)usleep(1000); /* rank 0 finds it out */
        return sw_team_receive(team, 1, data, LARGEST, err);
    }
    return sw_team_barrier(team, err);
}

static void test_dies(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(3, dies), SW_E_IO);
    assert_non_null(strstr(seen->text[0], "rank 1 of 3 has ended without a word"));
    assert_int_equal(seen->code[1], -1);
    assert_int_equal(seen->code[2], SW_E_IO);
}

/* The first rank may die as well; nobody stays behind. */
static sw_code loses_the_first(sw_team *team, sw_err *err)
{
    if (sw_team_rank(team) == 0) _exit(99);
    TRY(sw_team_barrier(team, err));
    return SW_OK;
}

static void test_loses_the_first(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(3, loses_the_first), 99);
    for (int r = 0; r < 3; r++) assert_int_not_equal(seen->code[r], SW_OK);
}

static sw_code stalls(sw_team *team, sw_err *err)
{
    char byte = 0;

    if (sw_team_rank(team) == 1)
        for (;;) (void)pause();
    return sw_team_receive(team, 1, &byte, 1, err);
}

static void test_stalls(void **state)
{
    (void)state;
    assert_int_equal(setenv("SWAGE_RANK_WAIT", "0.3", 1), 0);
    assert_int_equal(run_ranks(2, stalls), SW_E_IO);
    assert_int_equal(unsetenv("SWAGE_RANK_WAIT"), 0);
    assert_non_null(strstr(seen->text[0], "rank 1 of 2 has not answered rank 0"));
}

/* Other sizes at both ends are a fault of the program, not bytes of something else. */
static sw_code mixes_up(sw_team *team, sw_err *err)
{
    int32_t data[4] = {0};

    if (sw_team_rank(team) == 1) return sw_team_send(team, 0, data, 4, err);
    return sw_team_receive(team, 1, data, 8, err);
}

/* Of what has stripes, too: those that nobody sends are not waited for. */
static sw_code mixes_up_much(sw_team *team, sw_err *err)
{
    uint8_t *data = calloc(1, LARGEST);
    sw_code rc;

    CHECK(data);
    sw_team_use_threads(team, 4);
    rc = sw_team_rank(team) == 1 ? sw_team_send(team, 0, data, 4, err)
                                 : sw_team_receive(team, 1, data, LARGEST, err);
    free(data);
    return rc;
}

static void test_mixes_up(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(2, mixes_up_much), SW_E_BUG);
    assert_non_null(strstr(seen->text[0], "rank 1 sends 4 bytes where rank 0 expects"));
    assert_int_equal(run_ranks(2, mixes_up), SW_E_BUG);
    assert_non_null(strstr(seen->text[0], "rank 1 sends 4 bytes where rank 0 expects 8"));
}

/* What a rank sent before it finished arrives; what it did not send is not waited for. */
static sw_code leaves_early(sw_team *team, sw_err *err)
{
    char bytes[2] = {1, 2};

    if (sw_team_rank(team) == 1) {
        TRY(sw_team_send(team, 0, &bytes[1], 1, err));
        sw_team_close(team, SW_OK);
        _exit(0);
    }
    (void)usleep(200000);
    TRY(sw_team_receive(team, 1, &bytes[0], 1, err));
    CHECK(bytes[0] == 2);
    return sw_team_receive(team, 1, &bytes[0], 1, err);
}

static void test_leaves_early(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(2, leaves_early), SW_E_BUG);
    assert_string_equal(seen->text[0], "rank 0 waits for rank 1, which has finished");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_circle),       cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_broadcast),    cmocka_unit_test(test_share),
        cmocka_unit_test(test_gather),       cmocka_unit_test(test_one_rank),
        cmocka_unit_test(test_agree),        cmocka_unit_test(test_goes_on),
        cmocka_unit_test(test_check_same),   cmocka_unit_test(test_fails_alone),
        cmocka_unit_test(test_dies),         cmocka_unit_test(test_loses_the_first),
        cmocka_unit_test(test_stalls),       cmocka_unit_test(test_mixes_up),
        cmocka_unit_test(test_leaves_early),
    };

    return cmocka_run_group_tests(tests, make_notes, NULL);
}
