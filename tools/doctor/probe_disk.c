/* probe_disk.c - where files go and come from: space, permissions, the cache of the Hub. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "formats/checkpoint/hub_cache.h"
#include "formats/io/spill.h"
#include "tools/doctor/doctor.h"
#include "tools/terminal/units.h"

#define LITTLE_BYTES 1e9
#define TMPFS_MAGIC_NUMBER 0x01021994 /* linux/magic.h */

/* The finding about the space of a directory, or NULL when nothing can be said. */
static sw_finding *add_space(sw_doctor *d, const char *name, const char *path, const char *more)
{
    struct statfs disk;
    char text[16];
    sw_finding *f;

    if (statfs(path, &disk) != 0) return NULL;
    sw_term_bytes(text, (double)disk.f_bavail * (double)disk.f_bsize);
    f = sw_doctor_add(d, name, "%.300s: %s free%s", path, text, more);
    if ((double)disk.f_bavail * (double)disk.f_bsize < LITTLE_BYTES)
        sw_doctor_mark(d, f, SW_HEALTH_WARNING, "less than 1 GB: make room before a model is "
                       "written there; `swage plan` says how much it takes");
    return f;
}

static void probe_working_dir(sw_doctor *d)
{
    char path[SW_PATH_BYTES] = ".";
    sw_finding *f;

    if (!getcwd(path, sizeof path)) (void)snprintf(path, sizeof path, ".");
    f = add_space(d, "directory", path, "");
    if (f && access(".", W_OK) != 0)
        sw_doctor_mark(d, f, SW_HEALTH_WARNING, "it cannot be written: give -o a path elsewhere");
}

static void probe_temp_dir(sw_doctor *d)
{
    const char *path = sw_spill_temp_dir();
    struct statfs disk;
    sw_finding *f = add_space(d, "temporary", path, "");

    if (!f) {
        f = sw_doctor_add(d, "temporary", "%.300s: %s", path, strerror(errno));
        sw_doctor_mark(d, f, SW_HEALTH_FAULT, "set TMPDIR to a directory on a disk; activations "
                       "beyond --memory go there");
        return;
    }
    if (access(path, W_OK | X_OK) != 0)
        sw_doctor_mark(d, f, SW_HEALTH_FAULT, "it cannot be written: set TMPDIR to a directory "
                       "that can");
    if (statfs(path, &disk) == 0 && disk.f_type == TMPFS_MAGIC_NUMBER)
        sw_doctor_mark(d, f, SW_HEALTH_WARNING, "it lies in memory, so that what --memory puts "
                       "there saves none: set TMPDIR to a directory on a disk");
}

/* Folders of models in the cache; -1 when it cannot be read. */
static int count_models(const char *path)
{
    DIR *dir = opendir(path);
    int n = 0;

    if (!dir) return -1;
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;)
        n += !strncmp(entry->d_name, "models--", 8);
    (void)closedir(dir);
    return n;
}

static void probe_hub(sw_doctor *d)
{
    char path[SW_PATH_BYTES], more[64];
    sw_err err = {0};
    sw_finding *f;
    int n;

    if (sw_hub_cache_dir(path, &err) != SW_OK) {
        f = sw_doctor_add(d, "hub", "%.400s", err.text);
        sw_doctor_mark(d, f, SW_HEALTH_WARNING, "set HF_HOME if you name models by id");
        return;
    }
    n = count_models(path);
    if (n < 0 && errno == ENOENT) {
        (void)sw_doctor_add(d, "hub", "%.300s: no cache yet; `hf download` makes one", path);
        return;
    }
    (void)snprintf(more, sizeof more, ", models: %d", n < 0 ? 0 : n);
    f = add_space(d, "hub", path, more);
    if (n < 0 && !f) f = sw_doctor_add(d, "hub", "%.300s: %s", path, strerror(errno));
    if (n < 0)
        sw_doctor_mark(d, f, SW_HEALTH_WARNING, "it cannot be read: correct HF_HUB_CACHE or "
                       "HF_HOME, or the permissions");
}

void sw_probe_disk(sw_doctor *d)
{
    probe_working_dir(d);
    probe_temp_dir(d);
    probe_hub(d);
}
