/* cpu_setup.c - see cpu_setup.h.
 *
 * OpenMP threads that wait by spinning take the processor from those that work as soon as the
 * machine has anything else to do: decoding with two threads beside other jobs was measured at 17
 * tokens a second with spinning and 1117 without. The runtime reads its policy in a constructor,
 * before main, so the program starts itself again with it. What the user has set stands.
 *
 * OpenBLAS starts threads of its own before main as well. No product here uses them, and where
 * memory is limited they look for a buffer for ever, so that the program could not end.
 */
#include "tools/device/cpu_setup.h"

#include <stdlib.h>
#include <unistd.h>

#define GUARD "SWAGE_EXEC"

void sw_cpu_setup(char *argv[])
{
    if (getenv(GUARD) || setenv(GUARD, "1", 1) != 0) return;
    if (!getenv("GOMP_SPINCOUNT")) (void)setenv("OMP_WAIT_POLICY", "passive", 0);
    (void)setenv("OPENBLAS_NUM_THREADS", "1", 1);
    (void)execv("/proc/self/exe", argv); /* failing only costs speed */
}
