/* local.c - ranks that are processes of one host, forked by the first of them.
 *
 * They share one mapping: rings per ordered pair, bells per rank, and the first failure. A large
 * message is cut into stripes, each with a ring and a bell of its own, for one thread copies far
 * slower than memory is. That a rank is alive the others see by a pipe whose only writing end it
 * holds: the kernel closes it, whatever ends the process. Who waits looks at the pipes and at the
 * clock several times a second.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/mem.h"
#include "formats/base/parallel.h"
#include "quant/team/ring.h"
#include "quant/team/transport.h"

#define STRIPES 4
#define ALIGNED_BYTES ((size_t)64)
#define STRIPED_BYTES ((size_t)1 << 20) /* a message from here on has stripes */
#define LOOK_MS 50
#define LEAD_MS 200
#define GRACE_S 2.0 /* after a failure, for the others to end: rank 0 alone writes */

typedef enum failure_state { NONE, WRITING, WRITTEN } failure_state;

typedef struct shared {
    sw_bell bells[SW_TEAM_RANKS_MAX][STRIPES];
    atomic_int has_ended[SW_TEAM_RANKS_MAX]; /* by sw_team_close, so its silence is no failure */
    atomic_int failure;                      /* failure_state */
    int failed_rank;                         /* whose text it is; -1: it names the rank itself */
    sw_code code;
    char text[SW_ERR_TEXT_BYTES];
    sw_ring rings[]; /* [from * size + to][STRIPES] */
} shared;

typedef struct local {
    shared *common;
    size_t common_bytes;
    int rank, size;
    double wait_limit_s;
    int alive[SW_TEAM_RANKS_MAX];     /* an end of each rank's pipe: own to hold, others' to read */
    pid_t process[SW_TEAM_RANKS_MAX]; /* at rank 0; 0 once it is waited for */
} local;

static double now_s(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void ring_all(shared *common, int rank)
{
    for (int s = 0; s < STRIPES; s++) sw_bell_ring(&common->bells[rank][s]);
}

/* --- failure --- */

/* The first one stays. */
static void publish(local *l, int rank, sw_code code, const char *text)
{
    int none = NONE;

    if (!atomic_compare_exchange_strong(&l->common->failure, &none, WRITING)) return;
    l->common->failed_rank = rank;
    l->common->code = code;
    (void)snprintf(l->common->text, sizeof l->common->text, "%s", text);
    atomic_store(&l->common->failure, WRITTEN);
    for (int r = 0; r < l->size; r++) ring_all(l->common, r);
}

static sw_code published(const local *l, sw_err *err)
{
    const shared *c = l->common;

    if (atomic_load(&c->failure) != WRITTEN) return SW_OK;
    if (c->failed_rank == l->rank || c->failed_rank < 0)
        return SW_FAIL(err, c->code, "%s", c->text);
    return SW_FAIL(err, c->code, "rank %d: %s", c->failed_rank, c->text);
}

/* Of what all ranks fail at alike, rank 0 is to tell. */
static bool fail(void *self, sw_err *err)
{
    local *l = self;
    sw_err first = {0};

    for (int ms = 0; l->rank != 0 && ms < LEAD_MS && !atomic_load(&l->common->failure); ms++)
        (void)usleep(1000);
    publish(l, l->rank, err->code, err->text);
    if (published(l, &first) != SW_OK && first.code != err->code) *err = first;
    return true;
}

static bool has_failed(const void *self)
{
    const local *l = self;

    return atomic_load(&l->common->failure) == WRITTEN;
}

static sw_code fail_lost(local *l, int rank, sw_err *err)
{
    char text[SW_ERR_TEXT_BYTES];

    (void)snprintf(text, sizeof text, "rank %d of %d has ended without a word, as a process does "
                   "that is killed, by the kernel where memory is short", rank, l->size);
    publish(l, -1, SW_E_IO, text);
    return published(l, err);
}

static sw_code fail_stalled(local *l, int rank, sw_err *err)
{
    char text[SW_ERR_TEXT_BYTES];

    (void)snprintf(text, sizeof text, "rank %d of %d has not answered rank %d for %.0f s; with "
                   "SWAGE_RANK_WAIT=SECONDS it waits longer", rank, l->size, l->rank,
                   l->wait_limit_s);
    publish(l, -1, SW_E_IO, text);
    return published(l, err);
}

/* The pipes of the others; one that has ended in good order is looked at no more. */
static sw_code look_at_others(local *l, sw_err *err)
{
    struct pollfd pipes[SW_TEAM_RANKS_MAX];

    for (int r = 0; r < l->size; r++) {
        pipes[r].fd = r == l->rank || atomic_load(&l->common->has_ended[r]) ? -1 : l->alive[r];
        pipes[r].events = 0;
        pipes[r].revents = 0;
    }
    if (poll(pipes, (nfds_t)l->size, 0) <= 0) return SW_OK;
    for (int r = 0; r < l->size; r++)
        if ((pipes[r].revents & POLLHUP) && !atomic_load(&l->common->has_ended[r]) &&
            atomic_load(&l->common->failure) == NONE)
            return fail_lost(l, r, err);
    return SW_OK;
}

/* --- transfers --- */

/* Why not to wait for rank `other` any longer. */
static sw_code look(local *l, int other, double since_s, sw_err *err)
{
    sw_code rc;

    if ((rc = published(l, err)) != SW_OK || (rc = look_at_others(l, err)) != SW_OK) return rc;
    return now_s() - since_s > l->wait_limit_s ? fail_stalled(l, other, err) : SW_OK;
}

static sw_ring *ring_of(const local *l, int from, int to, int stripe)
{
    return &l->common->rings[(from * l->size + to) * STRIPES + stripe];
}

static bool put_slot(local *l, const sw_transfer *t, int stripe, sw_ring_message *m)
{
    if (m->is_over || !sw_ring_put(ring_of(l, l->rank, t->to, stripe), m, t->out)) return false;
    sw_bell_ring(&l->common->bells[t->to][stripe]);
    return true;
}

static sw_code take_slot(bool *is_taken, local *l, const sw_transfer *t, int stripe,
                         sw_ring_message *m, sw_err *err)
{
    uint64_t sent_bytes = m->n_bytes;

    *is_taken = !m->is_over &&
                sw_ring_take(ring_of(l, t->from, l->rank, stripe), m, t->in, &sent_bytes);
    if (sent_bytes != m->n_bytes)
        return SW_FAIL(err, SW_E_BUG, "rank %d sends %llu bytes where rank %d expects %zu",
                       t->from, (unsigned long long)sent_bytes, l->rank, m->n_bytes);
    if (*is_taken) sw_bell_ring(&l->common->bells[t->from][stripe]);
    return SW_OK;
}

/* A transfer whose stripes several threads move. */
typedef struct striped {
    local *l;
    const sw_transfer *whole;
    atomic_bool has_failed; /* one of them: nobody waits for the rest */
    sw_code rc[STRIPES];
    sw_err err[STRIPES];
} striped;

static sw_code move_stripe(striped *of, const sw_transfer *t, int stripe, sw_err *err)
{
    local *l = of->l;
    sw_bell *bell = &l->common->bells[l->rank][stripe];
    sw_ring_message out = {.n_bytes = t->n_out_bytes, .is_over = t->to < 0};
    sw_ring_message in = {.n_bytes = t->n_in_bytes, .is_over = t->from < 0};
    const int other = t->from >= 0 ? t->from : t->to;
    double since_s = 0.0; /* waited without a break; 0: not at all */
    sw_code rc = published(l, err);

    while (rc == SW_OK && !(out.is_over && in.is_over) && !atomic_load(&of->has_failed)) {
        const unsigned seen = sw_bell_count(bell);
        const bool has_ended = atomic_load(&l->common->has_ended[other]) != 0;
        const bool is_put = put_slot(l, t, stripe, &out);
        bool is_taken = false;
        if ((rc = take_slot(&is_taken, l, t, stripe, &in, err)) != SW_OK) break;
        if (is_put || is_taken) {
            since_s = 0.0;
            continue;
        }
        if (has_ended)
            return SW_FAIL(err, SW_E_BUG, "rank %d waits for rank %d, which has finished", l->rank,
                           other);
        if (since_s == 0.0) since_s = now_s();
        sw_bell_wait(bell, seen, LOOK_MS);
        rc = look(l, other, since_s, err);
    }
    return rc;
}

static size_t stripe_begin(size_t n_bytes, int stripe)
{
    if (n_bytes < STRIPED_BYTES) return stripe ? n_bytes : 0;
    if (stripe == STRIPES) return n_bytes;
    return n_bytes / STRIPES / ALIGNED_BYTES * ALIGNED_BYTES * (size_t)stripe;
}

/* Both sides cut by the number of bytes alone. Stripe 0 is there also of an empty message. */
static void move_some(void *ctx, int64_t begin, int64_t end, int thread)
{
    striped *of = ctx;
    const sw_transfer *w = of->whole;

    (void)thread;
    for (int s = (int)begin; s < end; s++) {
        const size_t out = stripe_begin(w->n_out_bytes, s), in = stripe_begin(w->n_in_bytes, s);
        sw_transfer t = {.to = w->to, .from = w->from,
                         .n_out_bytes = stripe_begin(w->n_out_bytes, s + 1) - out,
                         .n_in_bytes = stripe_begin(w->n_in_bytes, s + 1) - in};

        if (t.to >= 0 && s && !t.n_out_bytes) t.to = -1;
        if (t.from >= 0 && s && !t.n_in_bytes) t.from = -1;
        if (t.to < 0 && t.from < 0) continue;
        if (t.n_out_bytes) t.out = (const uint8_t *)w->out + out;
        if (t.n_in_bytes) t.in = (uint8_t *)w->in + in;
        of->rc[s] = move_stripe(of, &t, s, &of->err[s]);
        if (of->rc[s] != SW_OK) atomic_store(&of->has_failed, true);
    }
}

static sw_code move(void *self, const sw_transfer *t, sw_err *err)
{
    const bool is_large = t->n_out_bytes >= STRIPED_BYTES || t->n_in_bytes >= STRIPED_BYTES;
    striped of = {.l = self, .whole = t};

    /* in their order, so that ranks of any number of threads meet */
    sw_parallel_for(is_large ? t->n_threads : 1, STRIPES, 1, move_some, &of);
    for (int s = 0; s < STRIPES; s++)
        if (of.rc[s] != SW_OK) return SW_FAIL(err, of.rc[s], "%s", of.err[s].text);
    return SW_OK;
}

/* --- the end --- */

/* A rank of a run that failed may be at work that looks at nothing: it is not waited for. */
static void wait_for(local *l, int rank, double until_s)
{
    while (l->process[rank] > 0 && now_s() < until_s) {
        pid_t done = waitpid(l->process[rank], NULL, WNOHANG);
        if (done == l->process[rank] || (done < 0 && errno != EINTR)) l->process[rank] = 0;
        else (void)usleep(1000);
    }
    if (l->process[rank] <= 0) return;
    (void)kill(l->process[rank], SIGKILL);
    while (waitpid(l->process[rank], NULL, 0) < 0 && errno == EINTR) continue;
}

static void close_local(void *self, sw_code code)
{
    local *l = self;
    const double until_s = now_s() + (code == SW_OK ? l->wait_limit_s : GRACE_S);

    atomic_store(&l->common->has_ended[l->rank], 1);
    for (int r = 0; r < l->size; r++) ring_all(l->common, r);
    for (int r = 1; r < l->size && l->rank == 0; r++) wait_for(l, r, until_s);
    for (int r = 0; r < l->size; r++)
        if (l->alive[r] >= 0) (void)close(l->alive[r]);
    (void)munmap(l->common, l->common_bytes);
    sw_mem_put(l);
}

static const sw_transport local_transport = {.move = move, .fail = fail,
                                              .has_failed = has_failed, .close = close_local};

/* --- the beginning --- */

static sw_code map_common(local *l, sw_err *err)
{
    const size_t n_rings = (size_t)l->size * (size_t)l->size * STRIPES;
    void *common;

    l->common_bytes = sizeof *l->common + n_rings * sizeof(sw_ring);
    common = mmap(NULL, l->common_bytes, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (common == MAP_FAILED)
        return SW_FAIL(err, SW_E_NOMEM, "cannot map %zu bytes that %d ranks share: %s",
                       l->common_bytes, l->size, strerror(errno));
    l->common = common; /* zeroed, and taken from the system when a ring is used */
    return SW_OK;
}

/* alive[r] is the reading end, holds[r] the writing one. */
static sw_code open_pipes(local *l, int holds[], sw_err *err)
{
    for (int r = 0; r < l->size; r++) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0)
            return SW_FAIL(err, SW_E_IO, "cannot open a pipe for %d ranks: %s", l->size,
                           strerror(errno));
        l->alive[r] = ends[0];
        holds[r] = ends[1];
    }
    return SW_OK;
}

/* Of all pipes' writing ends a rank keeps its own. */
static void keep_own(local *l, int holds[])
{
    for (int r = 0; r < l->size; r++) {
        int *unused = r == l->rank ? &l->alive[r] : &holds[r];
        if (*unused >= 0) (void)close(*unused);
        *unused = -1;
    }
    l->alive[l->rank] = holds[l->rank];
}

/* In a process that was just forked. */
static void become(local *l, int rank, pid_t parent)
{
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);

    l->rank = rank;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(SW_E_IO); /* it had ended before */
    if (nowhere >= 0) (void)dup2(nowhere, STDOUT_FILENO);
    if (nowhere >= 0) (void)close(nowhere);
}

static sw_code fork_all(local *l, sw_err *err)
{
    const pid_t parent = getpid();

    (void)fflush(NULL); /* else what is buffered is written by every process */
    for (int r = 1; r < l->size; r++) {
        pid_t process = fork();
        if (process == 0) {
            become(l, r, parent);
            return SW_OK;
        }
        if (process < 0)
            return SW_FAIL(err, SW_E_NOMEM, "cannot start rank %d of %d: %s", r, l->size,
                           strerror(errno));
        l->process[r] = process;
    }
    return SW_OK;
}

static sw_code start(local *l, sw_err *err)
{
    int holds[SW_TEAM_RANKS_MAX];
    sw_code rc = map_common(l, err);

    for (int r = 0; r < SW_TEAM_RANKS_MAX; r++) holds[r] = l->alive[r] = -1;
    if (rc != SW_OK) return rc;
    if ((rc = open_pipes(l, holds, err)) == SW_OK) rc = fork_all(l, err);
    keep_own(l, holds);
    return rc;
}

/* What a start that failed leaves. */
static sw_code stop(local *l, sw_err *err)
{
    if (!l->common) {
        sw_mem_put(l);
        return err ? err->code : SW_E_NOMEM;
    }
    publish(l, 0, SW_E_NOMEM, err ? err->text : "a rank could not be started");
    close_local(l, SW_E_NOMEM);
    return err ? err->code : SW_E_NOMEM;
}

sw_code sw_team_fork_local(sw_team **out, int n_ranks, sw_err *err)
{
    sw_team *team;
    local *l = NULL;
    sw_code rc;

    *out = NULL;
    if (n_ranks == 1) return SW_OK;
    if (n_ranks < 1 || n_ranks > SW_TEAM_RANKS_MAX)
        return SW_FAIL(err, SW_E_USAGE, "%d ranks on one host; between 1 and %d will do", n_ranks,
                       SW_TEAM_RANKS_MAX);
    if ((rc = SW_MEM_GET(&l, 1, "ranks", err)) != SW_OK) return rc;
    l->size = n_ranks;
    l->wait_limit_s = sw_team_wait_limit_s();
    if ((rc = SW_MEM_GET(&team, 1, "ranks", err)) != SW_OK) {
        sw_mem_put(l);
        return rc;
    }
    if (start(l, err) != SW_OK) {
        sw_mem_put(team);
        return stop(l, err);
    }
    *team = (sw_team){.transport = &local_transport, .self = l, .rank = l->rank,
                      .size = n_ranks, .host_rank = l->rank, .host_size = n_ranks};
    *out = team;
    return SW_OK;
}
