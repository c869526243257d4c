/* mpi_transport.c - transfers between the ranks of an MPI program; becomes libswage_mpi.so.
 *
 * Nothing waits inside MPI: a transfer is started, then tested between short sleeps, so that a rank
 * that waits takes no processor from those that compute, hears of another's failure, and ends at
 * the limit. MPI counts in int, so a message travels in pieces, all but the last of PIECE_BYTES.
 *
 * A rank that fails tells all others with a message of its own kind. It waits a while until rank 0
 * answers with such a message, since rank 0 is to print it; then MPI_Abort ends what still runs.
 */
#include <mpi.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "formats/base/mem.h"
#include "quant/team/transport.h"

#define PIECE_BYTES ((size_t)64 << 20)
#define GRACE_S 10.0

enum { TAG_DATA = 1, TAG_FAILURE = 2 };

/* What a rank says that fails. */
typedef struct failure {
    int32_t code, rank;
    char text[SW_ERR_TEXT_BYTES];
} failure;

typedef struct mpi {
    MPI_Comm all;
    int rank, size;
    double wait_limit_s;
    atomic_bool has_failed; /* a failure is known, `first` */
    bool has_heard_0;       /* one came from rank 0 */
    failure first, said;
} mpi;

const char sw_mpi_abi[] = SW_ABI;

static double now_s(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The longer a wait has lasted, the later it is looked at again; at first at once. */
static void doze(double waited_s)
{
    const long ns = waited_s < 2e-4 ? 0 : waited_s < 0.1 ? 20000 : 500000;
    const struct timespec pause = {.tv_nsec = ns};

    if (ns) (void)nanosleep(&pause, NULL);
}

static sw_code check(int mpi_code, const char *what, sw_err *err)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;

    if (mpi_code == MPI_SUCCESS) return SW_OK;
    (void)MPI_Error_string(mpi_code, text, &n);
    return SW_FAIL(err, SW_E_IO, "MPI cannot %s: %.400s", what, text);
}

/* --- failures of others --- */

static void hear(mpi *m)
{
    int is_there = 0;
    failure f;

    while (MPI_Iprobe(MPI_ANY_SOURCE, TAG_FAILURE, m->all, &is_there, MPI_STATUS_IGNORE) ==
               MPI_SUCCESS && is_there) {
        if (MPI_Recv(&f, (int)sizeof f, MPI_BYTE, MPI_ANY_SOURCE, TAG_FAILURE, m->all,
                     MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return;
        f.text[sizeof f.text - 1] = '\0';
        m->has_heard_0 |= f.rank == 0;
        if (!m->has_failed) m->first = f;
        m->has_failed = true;
    }
}

static sw_code heard(mpi *m, sw_err *err)
{
    hear(m);
    if (!m->has_failed) return SW_OK;
    return SW_FAIL(err, (sw_code)m->first.code, "rank %d: %s", (int)m->first.rank, m->first.text);
}

/* --- transfers --- */

typedef struct half {
    bool is_out;
    int other; /* -1: nothing to do */
    uint8_t *data;
    size_t n_bytes, begin, n_piece;
    bool is_started, is_over;
    MPI_Request request;
} half;

static sw_code start_piece(half *h, mpi *m, sw_err *err)
{
    const size_t left = h->n_bytes - h->begin;
    int rc;

    h->n_piece = left < PIECE_BYTES ? left : PIECE_BYTES;
    h->is_started = true;
    rc = h->is_out ? MPI_Isend(h->data + h->begin, (int)h->n_piece, MPI_BYTE, h->other, TAG_DATA,
                               m->all, &h->request)
                   : MPI_Irecv(h->data + h->begin, (int)h->n_piece, MPI_BYTE, h->other, TAG_DATA,
                               m->all, &h->request);
    return check(rc, h->is_out ? "send" : "receive", err);
}

static sw_code check_size(const half *h, const mpi *m, int mpi_code, MPI_Status *status,
                          sw_err *err)
{
    int n = 0, kind = MPI_SUCCESS;

    if (mpi_code != MPI_SUCCESS) (void)MPI_Error_class(mpi_code, &kind);
    if (kind != MPI_ERR_TRUNCATE && mpi_code != MPI_SUCCESS)
        return check(mpi_code, h->is_out ? "send" : "receive", err);
    if (!h->is_out && kind == MPI_SUCCESS) (void)MPI_Get_count(status, MPI_BYTE, &n);
    if (h->is_out || (kind == MPI_SUCCESS && (size_t)n == h->n_piece)) return SW_OK;
    return SW_FAIL(err, SW_E_BUG, "rank %d sends %s bytes than the %zu that rank %d expects",
                   h->other, kind == MPI_SUCCESS ? "fewer" : "more", h->n_bytes, m->rank);
}

/* *is_done: a piece is over that was not before. */
static sw_code step(bool *is_done, half *h, mpi *m, sw_err *err)
{
    MPI_Status status;
    int is_complete = 0, rc;
    sw_code code;

    *is_done = false;
    if (h->is_over) return SW_OK;
    if (!h->is_started && (code = start_piece(h, m, err)) != SW_OK) return code;
    rc = MPI_Test(&h->request, &is_complete, &status);
    if (rc == MPI_SUCCESS && !is_complete) return SW_OK;
    if ((code = check_size(h, m, rc, &status, err)) != SW_OK) return code;
    *is_done = true;
    h->is_started = false;
    h->begin += h->n_piece;
    h->is_over = h->begin == h->n_bytes;
    return SW_OK;
}

static sw_code fail_stalled(const mpi *m, const half *h, sw_err *err)
{
    return SW_FAIL(err, SW_E_IO, "rank %d of %d has not answered rank %d for %.0f s; with "
                   "SWAGE_RANK_WAIT=SECONDS it waits longer", h->other, m->size, m->rank,
                   m->wait_limit_s);
}

static sw_code run_halves(mpi *m, half halves[2], sw_err *err)
{
    double since_s = now_s();
    bool is_done[2];
    sw_code rc;

    while (!(halves[0].is_over && halves[1].is_over)) {
        for (int i = 0; i < 2; i++)
            if ((rc = step(&is_done[i], &halves[i], m, err)) != SW_OK) return rc;
        if (is_done[0] || is_done[1]) {
            since_s = now_s();
            continue;
        }
        if ((rc = heard(m, err)) != SW_OK) return rc;
        if (now_s() - since_s > m->wait_limit_s)
            return fail_stalled(m, &halves[halves[0].is_over], err);
        doze(now_s() - since_s);
    }
    return SW_OK;
}

static sw_code move(void *self, const sw_transfer *t, sw_err *err)
{
    mpi *m = self;
    half halves[2] = {
        {.is_out = false, .other = t->from, .data = t->in, .n_bytes = t->n_in_bytes,
         .is_over = t->from < 0},
        {.is_out = true, .other = t->to, .n_bytes = t->n_out_bytes, .is_over = t->to < 0}};

    memcpy(&halves[1].data, &t->out, sizeof t->out); /* it is only read */
    return run_halves(m, halves, err);
}

/* --- the end --- */

/* Small enough that MPI takes it at once; a rank that never hears it is ended by MPI_Abort. */
static void tell(mpi *m, int to)
{
    MPI_Request request;
    int is_complete = 0;

    if (MPI_Isend(&m->said, (int)sizeof m->said, MPI_BYTE, to, TAG_FAILURE, m->all, &request) !=
        MPI_SUCCESS)
        return;
    (void)MPI_Test(&request, &is_complete, MPI_STATUS_IGNORE);
    if (!is_complete) (void)MPI_Request_free(&request);
}

static bool fail(void *self, sw_err *err)
{
    mpi *m = self;
    sw_err first = {0};
    const double begin_s = now_s();

    if (heard(m, &first) != SW_OK && first.code != err->code) *err = first;
    m->said.code = (int32_t)err->code;
    m->said.rank = m->rank;
    memcpy(m->said.text, err->text, sizeof m->said.text);
    for (int r = 0; r < m->size; r++)
        if (r != m->rank) tell(m, r);
    m->has_failed = true;
    while (m->rank != 0 && !m->has_heard_0 && now_s() - begin_s < GRACE_S) {
        doze(now_s() - begin_s);
        hear(m);
    }
    return m->rank == 0 || m->has_heard_0;
}

/* As far as a transfer has heard: MPI may be asked by one thread alone. */
static bool has_failed(const void *self)
{
    const mpi *m = self;

    return m->has_failed;
}

/* After a failure rank 0, or who spoke in its place, ends all; the others give it time to. */
static void close_mpi(void *self, sw_code code)
{
    mpi *m = self;
    const struct timespec pause = {.tv_sec = (time_t)GRACE_S};

    if (!m->has_failed) {
        (void)MPI_Comm_free(&m->all);
        (void)MPI_Finalize();
        sw_mem_put(m);
        return;
    }
    if (m->rank != 0 && m->has_heard_0) (void)nanosleep(&pause, NULL);
    (void)MPI_Abort(m->all, (int)code);
}

static const sw_transport transport = {.move = move, .fail = fail, .has_failed = has_failed,
                                        .close = close_mpi};

/* --- the beginning --- */

static sw_code find_host(sw_team *team, const mpi *m, sw_err *err)
{
    MPI_Comm host;
    int rc = MPI_Comm_split_type(m->all, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);

    if (rc == MPI_SUCCESS) rc = MPI_Comm_rank(host, &team->host_rank);
    if (rc == MPI_SUCCESS) rc = MPI_Comm_size(host, &team->host_size);
    if (rc == MPI_SUCCESS) rc = MPI_Comm_free(&host);
    return check(rc, "tell which ranks are of one host", err);
}

static sw_code find_ranks(mpi *m, sw_err *err)
{
    int rc = MPI_Comm_dup(MPI_COMM_WORLD, &m->all);

    if (rc == MPI_SUCCESS) rc = MPI_Comm_set_errhandler(m->all, MPI_ERRORS_RETURN);
    if (rc == MPI_SUCCESS) rc = MPI_Comm_rank(m->all, &m->rank);
    if (rc == MPI_SUCCESS) rc = MPI_Comm_size(m->all, &m->size);
    return check(rc, "number the ranks", err);
}

sw_code sw_mpi_join(sw_team *team, sw_err *err)
{
    mpi *m = NULL;
    int level = MPI_THREAD_SINGLE;
    sw_code rc;

    /* Other threads compute and write files; this one alone speaks to the others. */
    if ((rc = check(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level), "begin", err)) !=
            SW_OK ||
        (rc = SW_MEM_GET(&m, 1, "ranks", err)) != SW_OK)
        return rc;
    m->wait_limit_s = sw_team_wait_limit_s();
    if (level < MPI_THREAD_FUNNELED)
        rc = SW_FAIL(err, SW_E_UNSUPPORTED, "this MPI serves no program with threads");
    if (rc == SW_OK) rc = find_ranks(m, err);
    if (rc == SW_OK) rc = find_host(team, m, err);
    if (rc != SW_OK) {
        sw_mem_put(m);
        return rc;
    }
    team->transport = &transport;
    team->self = m;
    team->rank = m->rank;
    team->size = m->size;
    return SW_OK;
}
