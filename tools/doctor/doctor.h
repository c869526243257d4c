/* doctor.h - what this machine offers to Swage, and what is wrong with it: a list of findings.
 *
 * A finding is ok, a warning (something will be slower or smaller than it could be) or a fault
 * (some command cannot work); the last two come with a remedy. Probes look at files of the system
 * and ask libraries; they change nothing, and a file that is not there is no failure of theirs.
 */
#ifndef SW_TOOLS_DOCTOR_DOCTOR_H
#define SW_TOOLS_DOCTOR_DOCTOR_H

#include <stdbool.h>

#include "formats/base/status.h"

typedef enum sw_health {
    SW_HEALTH_OK,
    SW_HEALTH_WARNING,
    SW_HEALTH_FAULT,
    SW_HEALTH_COUNT
} sw_health;
const char *sw_health_name(sw_health health); /* "ok", "warning", "fault" */

#define SW_FINDINGS_MAX 48
#define SW_FINDING_TEXT_BYTES 512

typedef struct sw_finding {
    sw_health health;
    const char *name; /* "memory", static */
    char text[SW_FINDING_TEXT_BYTES];
    char remedy[SW_FINDING_TEXT_BYTES]; /* "" when ok */
} sw_finding;

typedef struct sw_doctor {
    sw_finding at[SW_FINDINGS_MAX];
    int n;
    int n_of[SW_HEALTH_COUNT];
} sw_doctor;

/* The new finding, ok so far; beyond SW_FINDINGS_MAX the last one is written over. */
sw_finding *sw_doctor_add(sw_doctor *d, const char *name, const char *fmt, ...) SW_PRINTF(3, 4);
/* It is a warning or a fault after all (the worse of two stays), and what to do about it. */
void sw_doctor_mark(sw_doctor *d, sw_finding *f, sw_health health, const char *fmt, ...)
    SW_PRINTF(4, 5);

/* --- the probes, in the order of the report --- */
void sw_probe_cpu(sw_doctor *d);       /* features, and the kernels they give */
void sw_probe_threads(sw_doctor *d);   /* processors, affinity, quota */
void sw_probe_libraries(sw_doctor *d); /* BLAS, and what else is linked */
void sw_probe_cuda(sw_doctor *d);      /* driver, CUDA half, cards */
void sw_probe_memory(sw_doctor *d);
void sw_probe_disk(sw_doctor *d);      /* working directory, TMPDIR, the Hub's cache */

/* --- the system's files --- */

/* The first line of a file that begins with `key` ("" any), without key, blanks and ':'; false when
 * there is none. */
bool sw_system_line(char *out, int out_bytes, const char *path, const char *key);
/* The least limit that the control groups of this process set: of version 2 from the group up to
 * the root, reading `file` ("memory.max", or "cpu.max" as processors); -1: none. `root` is
 * /sys/fs/cgroup, `self` /proc/self/cgroup. */
double sw_cgroup_limit(const char *root, const char *self, const char *file);

#endif
