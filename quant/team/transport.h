/* transport.h - what moves bytes between ranks: a row of functions that team.c calls. */
#ifndef SW_QUANT_TEAM_TRANSPORT_H
#define SW_QUANT_TEAM_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "quant/team/team.h"

/* Sends to one rank and receives from one at the same time; a rank of -1: not this half. */
typedef struct sw_transfer {
    int to;
    const void *out;
    size_t n_out_bytes;
    int from;
    void *in;
    size_t n_in_bytes;
    int n_threads; /* that may move them */
} sw_transfer;

typedef struct sw_transport {
    sw_code (*move)(void *self, const sw_transfer *transfer, sw_err *err);
    /* Tells the others why this rank ends, unless one of them was first: then *err becomes what
     * that one said. true: rank 0 knows. */
    bool (*fail)(void *self, sw_err *err);
    bool (*has_failed)(const void *self); /* any thread may ask; does not wait */
    /* How the run went, for processes that wait for each other. Frees self. */
    void (*close)(void *self, sw_code code);
} sw_transport;

struct sw_team {
    const sw_transport *transport;
    void *self;
    int rank, size;
    int host_rank, host_size;
    int n_threads;   /* of this rank, for moving much at a time; 0: the calling one alone */
    sw_code agreed;  /* the last failure that all ranks know */
    bool is_broken;  /* a transfer has failed: nobody may wait for anybody */
    bool is_unheard; /* the failure of this rank is not known to rank 0 */
};

/* What libswage_mpi.so offers the program, which opens it by name. Both are built from the same
 * sources: sw_mpi_abi is the SW_ABI of the library's build. */
#define SW_MPI_LIBRARY "libswage_mpi.so"
extern const char sw_mpi_abi[];
/* Fills the transport, the rank and the sizes of *team. Initialises MPI, once in a process. */
typedef sw_code sw_mpi_join_fn(sw_team *team, sw_err *err);
sw_code sw_mpi_join(sw_team *team, sw_err *err) SW_MUST_USE;

#endif
