/* team.c - see team.h: collectives out of transfers, the same for every transport.
 *
 * Short messages go to rank 0 and come back from it. A broadcast of much data goes along the ranks
 * as a chain, in pieces, so that every link works at the same time; one of little data along a
 * tree, so that few steps lie in a row. What each rank has some of goes round all of them.
 */
#include "quant/team/team.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "formats/base/mem.h"
#include "quant/team/transport.h"

#define CHAIN_BYTES ((size_t)1 << 18) /* a broadcast from here on is a chain */
#define PIECE_BYTES ((size_t)1 << 20)
#define WAIT_LIMIT_S 7200.0

int sw_team_rank(const sw_team *team) { return team ? team->rank : 0; }

int sw_team_size(const sw_team *team) { return team ? team->size : 1; }

int sw_team_host_rank(const sw_team *team) { return team ? team->host_rank : 0; }

int sw_team_host_size(const sw_team *team) { return team ? team->host_size : 1; }

void sw_team_use_threads(sw_team *team, int n_threads)
{
    if (team) team->n_threads = n_threads;
}

bool sw_team_speaks(const sw_team *team)
{
    return !team || team->rank == 0 || team->is_unheard;
}

bool sw_team_has_failed(const sw_team *team)
{
    return team && team->transport->has_failed(team->self);
}

sw_code sw_team_agreed(const sw_team *team) { return team ? team->agreed : SW_OK; }

double sw_team_wait_limit_s(void)
{
    const char *text = getenv("SWAGE_RANK_WAIT");
    double limit_s = text ? strtod(text, NULL) : 0.0;

    return limit_s > 0.0 ? limit_s : WAIT_LIMIT_S;
}

/* --- transfers --- */

static bool is_other(const sw_team *team, int rank)
{
    return rank >= 0 && rank < sw_team_size(team) && rank != sw_team_rank(team);
}

static sw_code move(sw_team *team, const sw_transfer *transfer, sw_err *err)
{
    sw_transfer wide = *transfer;
    sw_code rc;

    wide.n_threads = team->n_threads;

    if (team->is_broken)
        return SW_FAIL(err, SW_E_BUG, "rank %d goes on after the ranks have lost each other",
                       team->rank);
    rc = team->transport->move(team->self, &wide, err);
    team->is_broken = rc != SW_OK;
    return rc;
}

sw_code sw_team_exchange(sw_team *team, int to, const void *out, size_t n_out_bytes, int from,
                         void *in, size_t n_in_bytes, sw_err *err)
{
    const sw_transfer both = {.to = to, .out = out, .n_out_bytes = n_out_bytes,
                              .from = from, .in = in, .n_in_bytes = n_in_bytes};

    if (!is_other(team, to) || !is_other(team, from))
        return SW_FAIL(err, SW_E_BUG, "rank %d of %d cannot exchange with ranks %d and %d",
                       sw_team_rank(team), sw_team_size(team), to, from);
    return move(team, &both, err);
}

sw_code sw_team_send(sw_team *team, int to, const void *data, size_t n_bytes, sw_err *err)
{
    const sw_transfer half = {.to = to, .out = data, .n_out_bytes = n_bytes, .from = -1};

    if (!is_other(team, to))
        return SW_FAIL(err, SW_E_BUG, "rank %d of %d cannot send to rank %d", sw_team_rank(team),
                       sw_team_size(team), to);
    return move(team, &half, err);
}

sw_code sw_team_receive(sw_team *team, int from, void *data, size_t n_bytes, sw_err *err)
{
    const sw_transfer half = {.to = -1, .from = from, .in = data, .n_in_bytes = n_bytes};

    if (!is_other(team, from))
        return SW_FAIL(err, SW_E_BUG, "rank %d of %d cannot receive from rank %d",
                       sw_team_rank(team), sw_team_size(team), from);
    return move(team, &half, err);
}

/* --- broadcasts; `at` is the distance from the rank that has the data --- */

static int rank_at(const sw_team *team, int first, int at) { return (first + at) % team->size; }

static sw_code along_chain(sw_team *team, int first, uint8_t *data, size_t n_bytes, sw_err *err)
{
    const int at = (team->rank - first + team->size) % team->size;
    sw_code rc = SW_OK;

    for (size_t begin = 0; begin < n_bytes && rc == SW_OK; begin += PIECE_BYTES) {
        size_t n = n_bytes - begin < PIECE_BYTES ? n_bytes - begin : PIECE_BYTES;
        if (at > 0) rc = sw_team_receive(team, rank_at(team, first, at - 1), data + begin, n, err);
        if (rc == SW_OK && at + 1 < team->size)
            rc = sw_team_send(team, rank_at(team, first, at + 1), data + begin, n, err);
    }
    return rc;
}

/* In step s those below 2^s send to those 2^s further on. */
static sw_code along_tree(sw_team *team, int first, uint8_t *data, size_t n_bytes, sw_err *err)
{
    const int at = (team->rank - first + team->size) % team->size;
    sw_code rc = SW_OK;

    for (int reach = 1; reach < team->size && rc == SW_OK; reach *= 2) {
        if (at < reach && at + reach < team->size)
            rc = sw_team_send(team, rank_at(team, first, at + reach), data, n_bytes, err);
        else if (at >= reach && at < 2 * reach)
            rc = sw_team_receive(team, rank_at(team, first, at - reach), data, n_bytes, err);
    }
    return rc;
}

sw_code sw_team_broadcast(sw_team *team, int from, void *data, size_t n_bytes, sw_err *err)
{
    if (from < 0 || from >= sw_team_size(team))
        return SW_FAIL(err, SW_E_BUG, "there is no rank %d of %d", from, sw_team_size(team));
    if (!team || n_bytes == 0) return SW_OK;
    return n_bytes >= CHAIN_BYTES ? along_chain(team, from, data, n_bytes, err)
                                  : along_tree(team, from, data, n_bytes, err);
}

/* --- parts that go round --- */

/* The first part from `at` on that is a rank's and not empty; n: there is none. */
static int64_t part_of(const sw_team_part *parts, int64_t n, int64_t at, int from)
{
    while (at < n && (parts[at].from != from || !parts[at].n_bytes)) at++;
    return at;
}

/* One rank's parts to the rank behind this one, while another's come from the rank before. Their
 * numbers may differ: part i of the one goes while part i of the other comes, at every rank. */
static sw_code pass_on(sw_team *team, const sw_team_part *parts, int64_t n, int out, int in,
                       sw_err *err)
{
    int64_t i = part_of(parts, n, 0, out), j = part_of(parts, n, 0, in);
    sw_code rc = SW_OK;

    while (rc == SW_OK && (i < n || j < n)) {
        sw_transfer both = {.to = -1, .from = -1};

        if (i < n) {
            both.to = (team->rank + 1) % team->size;
            both.out = parts[i].data;
            both.n_out_bytes = parts[i].n_bytes;
            i = part_of(parts, n, i + 1, out);
        }
        if (j < n) {
            both.from = (team->rank + team->size - 1) % team->size;
            both.in = parts[j].data;
            both.n_in_bytes = parts[j].n_bytes;
            j = part_of(parts, n, j + 1, in);
        }
        rc = move(team, &both, err);
    }
    return rc;
}

sw_code sw_team_share(sw_team *team, const sw_team_part *parts, int64_t n, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int step = 0; step + 1 < sw_team_size(team) && rc == SW_OK; step++)
        rc = pass_on(team, parts, n, (team->rank - step + team->size) % team->size,
                     (team->rank - step - 1 + team->size) % team->size, err);
    return rc;
}

sw_code sw_team_gather(sw_team *team, void *data, const size_t *begins, sw_err *err)
{
    const int size = sw_team_size(team);
    sw_team_part *parts = NULL;
    sw_code rc = SW_MEM_GET(&parts, size, "parts of ranks", err);

    for (int rank = 0; rank < size && rc == SW_OK; rank++)
        parts[rank] = (sw_team_part){rank, (char *)data + begins[rank],
                                     begins[rank + 1] - begins[rank]};
    if (rc == SW_OK) rc = sw_team_share(team, parts, size, err);
    sw_mem_put(parts);
    return rc;
}

/* --- agreement --- */

typedef struct verdict {
    int32_t code, rank; /* of the rank that has it worst */
    char text[SW_ERR_TEXT_BYTES];
} verdict;

/* The text travels only with a failure. */
static sw_code send_verdict(sw_team *team, int to, const verdict *v, sw_err *err)
{
    sw_code rc = sw_team_send(team, to, v, offsetof(verdict, text), err);

    if (rc != SW_OK || v->code == SW_OK) return rc;
    return sw_team_send(team, to, v->text, sizeof v->text, err);
}

static sw_code receive_verdict(verdict *v, sw_team *team, int from, sw_err *err)
{
    sw_code rc = sw_team_receive(team, from, v, offsetof(verdict, text), err);

    if (rc != SW_OK || v->code == SW_OK) return rc;
    rc = sw_team_receive(team, from, v->text, sizeof v->text, err);
    v->text[sizeof v->text - 1] = '\0';
    return rc;
}

static sw_code gather_verdict(verdict *worst, sw_team *team, sw_err *err)
{
    sw_code rc = SW_OK;
    verdict theirs;

    for (int r = 1; r < team->size && rc == SW_OK; r++) {
        rc = receive_verdict(&theirs, team, r, err);
        if (rc == SW_OK && theirs.code > worst->code) *worst = theirs;
    }
    for (int r = 1; r < team->size && rc == SW_OK; r++) rc = send_verdict(team, r, worst, err);
    return rc;
}

sw_code sw_team_agree(sw_team *team, sw_code code, sw_err *err)
{
    verdict worst = {.code = code, .rank = sw_team_rank(team)};
    sw_err lost = {0};
    sw_code rc;

    if (!team) return code;
    if (code != SW_OK && err) memcpy(worst.text, err->text, sizeof worst.text);
    if (team->rank == 0) {
        rc = gather_verdict(&worst, team, &lost);
    } else {
        rc = send_verdict(team, 0, &worst, &lost);
        if (rc == SW_OK) rc = receive_verdict(&worst, team, 0, &lost);
    }
    if (rc != SW_OK) { /* nobody knows of this rank's own failure */
        if (err && err->code == SW_OK) *err = lost;
        return code != SW_OK ? code : rc;
    }
    if (worst.code == SW_OK) return SW_OK;
    team->agreed = (sw_code)worst.code;
    if (worst.rank == team->rank) return team->agreed;
    if (err) err->code = SW_OK;
    return SW_FAIL(err, (sw_code)worst.code, "rank %d: %s", worst.rank, worst.text);
}

sw_code sw_team_least(sw_team *team, int64_t *value, sw_err *err)
{
    const int n = sw_team_size(team), me = sw_team_rank(team);
    sw_code rc = SW_OK;

    if (n == 1) return SW_OK;
    if (me > 0) rc = sw_team_send(team, 0, value, sizeof *value, err);
    for (int rank = 1; me == 0 && rank < n && rc == SW_OK; rank++) {
        int64_t theirs = *value;

        rc = sw_team_receive(team, rank, &theirs, sizeof theirs, err);
        if (theirs < *value) *value = theirs;
    }
    return rc == SW_OK ? sw_team_broadcast(team, 0, value, sizeof *value, err) : rc;
}

sw_code sw_team_barrier(sw_team *team, sw_err *err) { return sw_team_agree(team, SW_OK, err); }

/* --- sameness --- */

typedef struct fingerprint {
    char what[SW_SHA256_HEX_BYTES], data[SW_SHA256_HEX_BYTES];
    int32_t rank; /* in the answer: the first that differs, or -1 */
} fingerprint;

static sw_code compare_all(fingerprint *odd, sw_team *team, const fingerprint *mine, sw_err *err)
{
    fingerprint theirs;
    sw_code rc = SW_OK;

    for (int r = 1; r < team->size && rc == SW_OK; r++) {
        rc = sw_team_receive(team, r, &theirs, sizeof theirs, err);
        if (rc != SW_OK || odd->rank >= 0) continue;
        if (memcmp(theirs.what, mine->what, sizeof theirs.what) == 0 &&
            memcmp(theirs.data, mine->data, sizeof theirs.data) == 0)
            continue;
        *odd = theirs;
        odd->rank = r;
    }
    return rc;
}

sw_code sw_team_check_same(sw_team *team, const char *what, const void *data, size_t n_bytes,
                           sw_err *err)
{
    fingerprint mine = {.rank = -1}, odd = {.rank = -1};
    sw_code rc = SW_OK;

    if (!team) return SW_OK;
    if ((rc = sw_sha256_hex(mine.what, what, strlen(what), err)) == SW_OK)
        rc = sw_sha256_hex(mine.data, data, n_bytes, err);
    if (rc != SW_OK) return rc;
    rc = team->rank == 0 ? compare_all(&odd, team, &mine, err)
                         : sw_team_send(team, 0, &mine, sizeof mine, err);
    if (rc == SW_OK) rc = sw_team_broadcast(team, 0, &odd, sizeof odd, err);
    if (rc != SW_OK || odd.rank < 0) return rc;
    team->agreed = SW_E_USAGE;
    if (odd.rank == team->rank || memcmp(odd.what, mine.what, sizeof odd.what) == 0)
        return SW_FAIL(err, SW_E_USAGE, "rank %d has another %s than rank 0 (sha256 %.12s...); "
                       "give every rank the same", (int)odd.rank, what, odd.data);
    return SW_FAIL(err, SW_E_USAGE, "rank %d compares something else than %s; do all ranks run the "
                   "same program?", (int)odd.rank, what);
}

/* --- the end --- */

sw_code sw_team_end(sw_team *team, sw_code code, sw_err *err)
{
    sw_err own = {0};

    if (!team) return code;
    if (!err) err = &own;
    if (code == SW_OK && !team->is_broken && (code = sw_team_barrier(team, err)) == SW_OK)
        return SW_OK;
    if (code != SW_OK && code == team->agreed && !team->is_broken) return code;
    (void)SW_FAIL(err, code != SW_OK ? code : SW_E_BUG, "the ranks have lost each other");
    team->is_broken = true;
    team->is_unheard = !team->transport->fail(team->self, err) && team->rank != 0;
    return err->code;
}

void sw_team_close(sw_team *team, sw_code code)
{
    if (!team) return;
    team->transport->close(team->self, code);
    sw_mem_put(team);
}
