/* mpi_library.h - what libswage_mpi.so offers the program, which opens it by name.
 *
 * Both are built from the same sources: sw_mpi_abi is the SW_ABI of the library's build.
 */
#ifndef SW_QUANT_TEAM_MPI_MPI_LIBRARY_H
#define SW_QUANT_TEAM_MPI_MPI_LIBRARY_H

#include "quant/team/transport.h"

#define SW_MPI_LIBRARY "libswage_mpi.so"

/* Fills the transport, the ranks and the sizes of *team. Initialises MPI, once in a process. */
typedef sw_code sw_mpi_join_fn(sw_team *team, sw_err *err);
sw_code sw_mpi_join(sw_team *team, sw_err *err) SW_MUST_USE;

extern const char sw_mpi_abi[];

#endif
