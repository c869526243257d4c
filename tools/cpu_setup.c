/* cpu_setup.c - see cpu_setup.h.
 *
 * OpenMP threads that wait by spinning take the processor from those that work as soon as the
 * machine has anything else to do: decoding with two threads beside other jobs was measured at 17
 * tokens a second with spinning and 1117 without. The runtime reads its policy in a constructor,
 * before main, so the program starts itself again with it. What the user has set stands.
 */
#include "tools/cpu_setup.h"

#include <stdlib.h>
#include <unistd.h>

#define GUARD "SWAGE_EXEC"

void sw_cpu_setup(char *argv[])
{
    if (getenv(GUARD) || getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT")) return;
    if (setenv(GUARD, "1", 1) != 0) return;
    (void)setenv("OMP_WAIT_POLICY", "passive", 1);
    (void)setenv("OPENBLAS_NUM_THREADS", "1", 1);
    (void)execv("/proc/self/exe", argv); /* failing only costs speed */
}
