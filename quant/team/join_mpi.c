/* join_mpi.c - the ranks that a launcher has started, joined through libswage_mpi.so.
 *
 * The program itself knows no MPI: a launcher is recognised by what it leaves in the environment,
 * and only then is the library opened, which brings the MPI that it was built with. SW_ABI, what
 * the program was built from, comes from the Makefile.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/io/library.h"
#include "quant/team/transport.h"

enum { UNKNOWN = -1 };

/* How many ranks the launcher says there are; 1 without one, UNKNOWN where it does not say. */
static int n_launched(void)
{
    /* Open MPI; MPICH and others by PMI; Slurm, whose PMIx tells the rank alone. */
    static const char *const counts[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    const char *text;

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if ((text = getenv(counts[i])) != NULL && *text) return (int)strtol(text, NULL, 10);
    if (!getenv("PMIX_RANK")) return 1;
    text = getenv("SLURM_STEP_NUM_TASKS");
    return text && *text ? (int)strtol(text, NULL, 10) : UNKNOWN;
}

static sw_code open_mpi(sw_mpi_join_fn **join, sw_err *err)
{
    static const sw_library library = {
        .name = SW_MPI_LIBRARY, .variable = "SWAGE_MPI_LIBRARY", .is_global = true,
        .remedy = "build it where mpicc is (make mpi), with the MPI that starts the ranks"};
    char why[400];
    void *handle = sw_library_open(&library, why, sizeof why), *address;
    const char *built_as;

    if (!handle)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "several ranks were started, and %s; or use --ranks "
                       "on one host", why);
    built_as = dlsym(handle, "sw_mpi_abi");
    address = dlsym(handle, "sw_mpi_join");
    if (!built_as || !address || strcmp(built_as, SW_ABI) != 0)
        return SW_FAIL(err, SW_E_UNSUPPORTED, SW_MPI_LIBRARY " was built from other sources than "
                       "this program; build both anew");
    memcpy(join, &address, sizeof address);
    return SW_OK;
}

/* Each would be rank 0 of one, and all would write the same files. */
static sw_code check_count(const sw_team *team, int n_ranks, sw_err *err)
{
    if (n_ranks == UNKNOWN || team->size == n_ranks) return SW_OK;
    return SW_FAIL(err, SW_E_UNSUPPORTED, "the launcher has started %d ranks, but MPI knows of %d; "
                   "use the launcher of the MPI that " SW_MPI_LIBRARY " was built with (srun needs "
                   "--mpi=pmix)", n_ranks, team->size);
}

sw_code sw_team_join_mpi(sw_team **out, sw_err *err)
{
    const int n_ranks = n_launched();
    sw_mpi_join_fn *join = NULL;
    sw_team *team = NULL;
    sw_code rc;

    *out = NULL;
    if (n_ranks == 0 || n_ranks == 1) return SW_OK;
    if ((rc = open_mpi(&join, err)) != SW_OK || (rc = SW_MEM_GET(&team, 1, "ranks", err)) != SW_OK)
        return rc;
    if ((rc = join(team, err)) != SW_OK) {
        sw_mem_put(team);
        return rc;
    }
    rc = check_count(team, n_ranks, err);
    if (rc != SW_OK || team->size == 1) {
        sw_team_close(team, rc);
        return rc;
    }
    *out = team;
    return SW_OK;
}
