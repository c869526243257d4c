/* leftovers.c - see leftovers.h. */
#include "formats/io/leftovers.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "formats/io/out_internal.h"

#define LEFTOVERS_MAX 256

typedef struct leftover {
    atomic_bool is_taken, is_ready;
    sw_leftover kind;
    char path[SW_PATH_BYTES];
} leftover;

static leftover leftovers[LEFTOVERS_MAX]; /* a handler can reach nothing but static objects */

int sw_leftovers_enter(sw_leftover kind, const char *path)
{
    for (int i = 0; i < LEFTOVERS_MAX; i++) {
        leftover *one = &leftovers[i];
        if (atomic_load(&one->is_taken) || atomic_exchange(&one->is_taken, true)) continue;
        one->kind = kind;
        (void)snprintf(one->path, sizeof one->path, "%s", path);
        atomic_store(&one->is_ready, true);
        return i + 1;
    }
    return 0;
}

void sw_leftovers_leave(int slot)
{
    if (!slot) return;
    atomic_store(&leftovers[slot - 1].is_ready, false);
    atomic_store(&leftovers[slot - 1].is_taken, false);
}

/* "dir/name"; false when it is too long. snprintf is not for signal handlers. */
static bool join(char out[SW_PATH_BYTES], const char *dir, const char *name)
{
    size_t n_dir = strlen(dir), n_name = strlen(name);

    if (n_dir + n_name + 2 > SW_PATH_BYTES) return false;
    memcpy(out, dir, n_dir);
    out[n_dir] = '/';
    memcpy(out + n_dir + 1, name, n_name + 1);
    return true;
}

/* The mark is removed last, since it proves that all else in the directory is ours. */
static void remove_work(const char *dir)
{
    char path[SW_PATH_BYTES];

    if (join(path, dir, SW_WORK_TREE) && rmdir(path) != 0 && access(path, F_OK) == 0) return;
    if (!join(path, dir, SW_WORK_MARK) || unlink(path) != 0) return;
    (void)rmdir(dir);
}

void sw_leftovers_remove(void)
{
    for (int i = 0; i < LEFTOVERS_MAX; i++)
        if (atomic_load(&leftovers[i].is_ready) && leftovers[i].kind == SW_LEFT_FILE)
            (void)unlink(leftovers[i].path);
    for (int i = 0; i < LEFTOVERS_MAX; i++)
        if (atomic_load(&leftovers[i].is_ready) && leftovers[i].kind == SW_LEFT_WORK)
            remove_work(leftovers[i].path);
}
