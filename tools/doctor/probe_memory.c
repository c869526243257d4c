/* probe_memory.c - memory: what there is, what is free, what limits this process. */
#include <stdlib.h>
#include <sys/resource.h>

#include "tools/doctor/doctor.h"
#include "tools/terminal/units.h"

#define LITTLE_BYTES 2e9

/* "16384 kB" of a line of /proc/meminfo, in bytes; -1 when there is no such line. */
static double meminfo_bytes(const char *key)
{
    char line[128];

    return sw_system_line(line, sizeof line, "/proc/meminfo", key) ? 1024 * strtod(line, NULL)
                                                                    : -1;
}

static double group_bytes(void)
{
    double limit = sw_cgroup_limit("/sys/fs/cgroup", "/proc/self/cgroup", "memory.max");
    char line[128];

    if (limit < 0 && /* version 1 says "no limit" by a number beyond any machine */
        sw_system_line(line, sizeof line, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "") &&
        strtod(line, NULL) < 1e18)
        limit = strtod(line, NULL);
    return limit;
}

void sw_probe_memory(sw_doctor *d)
{
    const double total = meminfo_bytes("MemTotal"), free_bytes = meminfo_bytes("MemAvailable");
    const double group = group_bytes();
    char text[3][16];
    struct rlimit space;
    sw_finding *f;

    sw_term_bytes(text[0], total);
    sw_term_bytes(text[1], free_bytes);
    sw_term_bytes(text[2], group);
    f = sw_doctor_add(d, "memory", "%s, %s available; the control group's limit: %s", text[0],
                      text[1], group < 0 ? "none" : text[2]);
    if (group >= 0 && group < total)
        sw_doctor_mark(d, f, SW_HEALTH_WARNING, "beyond the limit the process is killed: give "
                       "--memory below it to quantize, and ask `swage plan` for the peak");
    if (free_bytes >= 0 && free_bytes < LITTLE_BYTES)
        sw_doctor_mark(d, f, SW_HEALTH_WARNING, "less than 2 GB is available: end other programs, "
                       "or give --memory to quantize");
    if (getrlimit(RLIMIT_AS, &space) != 0 || space.rlim_cur == RLIM_INFINITY) return;
    sw_term_bytes(text[0], (double)space.rlim_cur);
    f = sw_doctor_add(d, "addresses", "limited to %s (ulimit -v)", text[0]);
    sw_doctor_mark(d, f, SW_HEALTH_WARNING, "models are mapped whole: `ulimit -v unlimited`");
}
