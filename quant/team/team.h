/* team.h - several processes (ranks) that work on one run: of one host, or of several by MPI.
 *
 * Every rank runs the same program with the same options. A team is what they say to each other;
 * NULL is the team of one rank, so that call sites need no condition: all functions accept it.
 *
 * Calls of one team come from one thread of each rank. All but send, receive and exchange are
 * collective: every rank makes the same ones in the same order.
 *
 * Failure. A rank that fails at a place of its own goes on to the next sw_team_agree, where all
 * learn it. Where that cannot be, it returns its error to whoever calls sw_team_end; the others'
 * calls then fail with the text of that rank instead of waiting. The same holds for a rank that
 * dies, and for one that is silent for longer than the limit. After a failed call, of any kind, a
 * team is good for sw_team_end and sw_team_close alone.
 *
 * Rank 0 alone prints, journals and writes (sw_team_speaks).
 */
#ifndef SW_QUANT_TEAM_TEAM_H
#define SW_QUANT_TEAM_TEAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

#define SW_TEAM_RANKS_MAX 64 /* of one host, where the program starts them itself */

typedef struct sw_team sw_team;

/* 0 and 1 for NULL. */
int sw_team_rank(const sw_team *team);
int sw_team_size(const sw_team *team);
/* The rank among those of its host, which chooses a device, and how many there are: they share
 * the processors and the memory. 0 and 1 for NULL. */
int sw_team_host_rank(const sw_team *team);
int sw_team_host_size(const sw_team *team);

/* Much is moved by so many threads of this rank from now on: by one until then. What arrives is the
 * same, also where other ranks have other numbers. */
void sw_team_use_threads(sw_team *team, int n_threads);

/* n_bytes to one other rank. Messages of a pair arrive in order, whole, of any size (also none).
 * `send` may wait until the other receives. Two ranks that send to each other first would wait
 * for each other: they use sw_team_exchange. */
sw_code sw_team_send(sw_team *team, int to, const void *data, size_t n_bytes,
                     sw_err *err) SW_MUST_USE;
/* The other must send exactly n_bytes, else SW_E_BUG. */
sw_code sw_team_receive(sw_team *team, int from, void *data, size_t n_bytes,
                        sw_err *err) SW_MUST_USE;
/* Both at the same time, to one rank and from one, which may be two. `out` and `in` do not
 * overlap. */
sw_code sw_team_exchange(sw_team *team, int to, const void *out, size_t n_out_bytes, int from,
                         void *in, size_t n_in_bytes, sw_err *err) SW_MUST_USE;

/* What rank `from` has at `data`, n_bytes, is at `data` of every rank afterwards. */
sw_code sw_team_broadcast(sw_team *team, int from, void *data, size_t n_bytes,
                          sw_err *err) SW_MUST_USE;

/* Parts of arrays: each is at `data` of the rank `from`, and of every rank afterwards. The list is
 * the same at every rank but for addresses. Parts go round the ranks, each of which sends while it
 * receives: half the time of broadcasts on two, less on more. */
typedef struct sw_team_part {
    int from;
    void *data;
    size_t n_bytes; /* may be 0 */
} sw_team_part;
sw_code sw_team_share(sw_team *team, const sw_team_part *parts, int64_t n,
                      sw_err *err) SW_MUST_USE;
/* Each rank has the bytes [begins[rank], begins[rank + 1]) of `data`, and all of them afterwards.
 * begins [ranks + 1] is the same at every rank. */
sw_code sw_team_gather(sw_team *team, void *data, const size_t *begins, sw_err *err) SW_MUST_USE;

/* Returns the greatest code of all ranks, at all ranks, with the text of the lowest rank that has
 * it in err, behind "rank N: " at the others. A rank with a code other than SW_OK has its own text
 * in err. For NULL: `code`. */
sw_code sw_team_agree(sw_team *team, sw_code code, sw_err *err) SW_MUST_USE;
/* *value becomes the least of all ranks'. */
sw_code sw_team_least(sw_team *team, int64_t *value, sw_err *err) SW_MUST_USE;
/* Returns when all ranks have called it. */
sw_code sw_team_barrier(sw_team *team, sw_err *err) SW_MUST_USE;
/* n_bytes at `data` must be the same at every rank; only a digest travels. SW_E_USAGE, at all
 * ranks, names `what` ("model.safetensors", "--seed") and the first rank that differs from rank
 * 0. */
sw_code sw_team_check_same(sw_team *team, const char *what, const void *data, size_t n_bytes,
                           sw_err *err) SW_MUST_USE;

/* Has another rank failed, or died, as far as this one has heard? For any thread, at any time: what
 * works for long asks it, and stops. */
bool sw_team_has_failed(const sw_team *team);
/* The last failure that sw_team_agree or sw_team_check_same told all ranks; SW_OK: none. A run that
 * goes on after failures of its parts must end with this one. */
sw_code sw_team_agreed(const sw_team *team);
/* The last call before a rank prints its result. `code` is how its run went, with the text in err.
 * Returns how the run of all went. SW_OK for NULL and SW_OK. */
sw_code sw_team_end(sw_team *team, sw_code code, sw_err *err) SW_MUST_USE;
/* May this rank print? Rank 0 may; after sw_team_end also one whose failure rank 0 cannot tell. */
bool sw_team_speaks(const sw_team *team);
/* Ends the team, with the code that sw_team_end returned; the process should exit with it. Rank 0
 * waits for processes that it started. Accepts NULL. */
void sw_team_close(sw_team *team, sw_code code);

/* --- how a team comes to be --- */

/* n_ranks processes of this host: the calling one is rank 0, the others are forked here and return
 * from this call as well. To be called before any thread or CUDA context exists. What the others
 * print to stdout is dropped. They end when rank 0 does, however that ends. *out is NULL for 1. */
sw_code sw_team_fork_local(sw_team **out, int n_ranks, sw_err *err) SW_MUST_USE;

/* The ranks that a launcher (mpirun, srun --mpi=pmix) has started; *out is NULL where the
 * environment tells of none, or of one. SW_E_UNSUPPORTED when there are several and
 * libswage_mpi.so is missing. */
sw_code sw_team_join_mpi(sw_team **out, sw_err *err) SW_MUST_USE;

/* How long a rank waits for another before it calls the run off: SWAGE_RANK_WAIT seconds, or two
 * hours, for a rank may have to wait while another solves the last expert of a block. */
double sw_team_wait_limit_s(void);

#endif
