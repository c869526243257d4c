/* probe_cpu.c - the processor: its features, the kernels that they give, its threads. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/parallel.h"
#include "kernels/kernel.h"
#include "quant/run/scheme.h"
#include "tools/device/devices.h"
#include "tools/doctor/doctor.h"

#define SIDE 4096 /* of the weight that kernels are chosen for */

/* Is `flag` one of the words of the line? */
static bool has_word(const char *line, const char *flag)
{
    const size_t n = strlen(flag);

    for (const char *at = line; (at = strstr(at, flag)) != NULL; at += n)
        if ((at == line || at[-1] == ' ') && (!at[n] || at[n] == ' ')) return true;
    return false;
}

static void find_features(sw_doctor *d)
{
    static const char *const wanted[] = {"avx2", "fma", "f16c", "avx512f", "avx512bw",
                                         "avx512_vnni", "avx512_bf16"};
    char flags[4096] = "", name[128] = "unknown", has[128] = "", lacks[128] = "";
    sw_finding *f;

    (void)sw_system_line(name, sizeof name, "/proc/cpuinfo", "model name");
    (void)sw_system_line(flags, sizeof flags, "/proc/cpuinfo", "flags");
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        char *to = has_word(flags, wanted[i]) ? has : lacks;
        size_t n = strlen(to);
        (void)snprintf(to + n, 128 - n, "%s%s", n ? " " : "", wanted[i]);
    }
    f = sw_doctor_add(d, "processor", "%s; has %s%s%s", name, has[0] ? has : "no vectors",
                      lacks[0] ? ", lacks " : "", lacks);
    if (!has_word(flags, "avx2") || !has_word(flags, "fma"))
        sw_doctor_mark(d, f, SW_HEALTH_WARNING, "without AVX2 and FMA plain C runs, tens of times "
                       "slower; use another machine, or let the virtual machine show them");
}

/* What runs a linear of each scheme, once for all schemes that share an operation. */
static void find_kernels(sw_doctor *d)
{
    char text[SW_FINDING_TEXT_BYTES] = "";
    size_t n = 0;
    bool is_slow = false;
    sw_finding *f;

    for (int i = -1; i < sw_n_schemes && n < sizeof text; i++) {
        const sw_kernel_shape shape = {.spec = i < 0 ? NULL : &sw_schemes[i].spec,
                                       .dense = SW_DTYPE_BF16, .n_out = SIDE, .k_in = SIDE,
                                       .n_threads = sw_cpu_count()};
        const sw_kernel *kernel = sw_kernel_find(sw_kernel_name_for(&shape, 1));
        char word[64];
        if (!kernel) continue;
        (void)snprintf(word, sizeof word, "%s", kernel->name);
        is_slow = is_slow || !strcmp(kernel->isa, "any");
        if (has_word(text, word)) continue;
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", n ? " " : "", word);
    }
    f = sw_doctor_add(d, "kernels", "%s", text);
    if (is_slow)
        sw_doctor_mark(d, f, SW_HEALTH_WARNING, "some run in plain C: this processor or this build "
                       "has no vectors for them (swage list kernels)");
}

void sw_probe_cpu(sw_doctor *d)
{
    find_features(d);
    find_kernels(d);
}

void sw_probe_threads(sw_doctor *d)
{
    const int n_here = sw_cpu_count(), n_all = (int)sysconf(_SC_NPROCESSORS_ONLN);
    const double quota = sw_cgroup_limit("/sys/fs/cgroup", "/proc/self/cgroup", "cpu.max");
    const char *policy = getenv("OMP_WAIT_POLICY");
    sw_finding *f;

    if (quota >= 0)
        f = sw_doctor_add(d, "threads", "%d, of %d processors; the control group gives %.1f",
                          n_here, n_all, quota);
    else
        f = sw_doctor_add(d, "threads", "%d, of %d processors; no quota", n_here, n_all);
    if (quota >= 0 && quota < n_here - 0.5)
        sw_doctor_mark(d, f, SW_HEALTH_WARNING, "more threads than the quota wait for each other: "
                       "give --threads %.0f", quota < 1 ? 1 : quota);
    if (n_here < n_all)
        sw_doctor_mark(d, f, SW_HEALTH_WARNING, "the affinity of this process leaves processors "
                       "out; start it without taskset or a job's binding if they are free");
    if (policy && !strcmp(policy, "active"))
        sw_doctor_mark(d, f, SW_HEALTH_WARNING, "OMP_WAIT_POLICY=active lets waiting threads take "
                       "processors from working ones; unset it");
}
