/* devices_look.c - see device_list.h: the devices of this host, asked of the driver.
 *
 * A process that has met the driver cannot fork others that use a device. Where ranks are still to
 * be forked, a process of its own asks, and hands what it finds through a pipe.
 */
#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/device/device_list.h"

int sw_devices_look(sw_device_info *there)
{
    int n = sw_device_count();

    if (n > SW_DEVICES_MAX) n = SW_DEVICES_MAX;
    for (int i = 0; i < n; i++) {
        sw_err why = {0};

        if (sw_device_describe(&there[i], i, &why) != SW_OK) return i;
    }
    return n;
}

static void tell(int pipe_end)
{
    sw_device_info there[SW_DEVICES_MAX];
    const int n = sw_devices_look(there);

    for (int i = 0; i < n; i++) /* each is less than a pipe takes at once */
        if (write(pipe_end, &there[i], sizeof there[i]) != (ssize_t)sizeof there[i]) return;
}

/* One whole description; false at the end. */
static bool read_one(sw_device_info *info, int pipe_end)
{
    size_t n = 0;

    while (n < sizeof *info) {
        const ssize_t got = read(pipe_end, (char *)info + n, sizeof *info - n);

        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        n += (size_t)got;
    }
    return true;
}

int sw_devices_look_apart(sw_device_info *there)
{
    int ends[2], n = 0;
    pid_t process;

    if (pipe(ends) != 0) return 0;
    process = fork();
    if (process == 0) {
        (void)close(ends[0]);
        tell(ends[1]);
        _exit(0);
    }
    (void)close(ends[1]);
    while (process > 0 && n < SW_DEVICES_MAX && read_one(&there[n], ends[0])) n++;
    (void)close(ends[0]);
    while (process > 0 && waitpid(process, NULL, 0) < 0 && errno == EINTR) {}
    return n;
}
