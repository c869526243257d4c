/* system_files.c - single lines of /proc and /sys, and limits of control groups: see doctor.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/doctor/doctor.h"

#define LINE_BYTES 4096
#define PATH_BYTES 1024

bool sw_system_line(char *out, int out_bytes, const char *path, const char *key)
{
    const size_t n_key = strlen(key);
    char line[LINE_BYTES];
    FILE *file = fopen(path, "re");
    bool is_found = false;

    while (file && !is_found && fgets(line, sizeof line, file)) {
        const char *value = line + n_key;
        if (strncmp(line, key, n_key) != 0) continue;
        value += strspn(value, n_key ? " \t:" : "");
        (void)snprintf(out, (size_t)out_bytes, "%.*s", (int)strcspn(value, "\n"), value);
        is_found = true;
    }
    if (file) (void)fclose(file);
    return is_found;
}

/* "max 100000", "150000 100000" (microseconds of each period: 1.5 processors), or bytes. */
static double value_of(const char *line)
{
    char *end = NULL;
    double limit = strtod(line, &end), period;

    if (end == line || limit < 0) return -1;
    period = strtod(end, NULL);
    return period > 0 ? limit / period : limit;
}

static double least(double a, double b)
{
    if (a < 0 || b < 0) return a < 0 ? b : a;
    return a < b ? a : b;
}

/* In a container the root of what is mounted is the group itself, whatever its path outside. */
double sw_cgroup_limit(const char *root, const char *self, const char *file)
{
    char group[LINE_BYTES], path[2 * LINE_BYTES + PATH_BYTES], line[256];
    double limit = -1;

    if (!sw_system_line(group, sizeof group, self, "0::")) return -1;
    for (;;) {
        char *slash = strrchr(group, '/');
        (void)snprintf(path, sizeof path, "%s%s/%s", root, group, file);
        if (sw_system_line(line, sizeof line, path, "")) limit = least(limit, value_of(line));
        if (!slash) return limit;
        *slash = '\0';
    }
}
