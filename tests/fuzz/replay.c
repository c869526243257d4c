/* replay.c - feed every file of a corpus directory to a fuzz entry, without libFuzzer.
 *
 *   replay_x DIRECTORY
 *
 * Each input ends flush against an inaccessible page, so that reading one byte too many faults
 * in any build. Prints how many inputs ran; an empty or missing corpus is a failure.
 */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/base/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room;
    sw_map map = {0};
    sw_err err = {0};
    uint8_t *guarded;

    if (sw_map_open(&map, path, &err) != SW_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    room = (map.size_bytes + page - 1) / page * page;
    guarded = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (guarded == MAP_FAILED || mprotect(guarded + room, page, PROT_NONE) != 0) {
        fprintf(stderr, "%s: no memory: %s\n", path, strerror(errno));
        return 1;
    }
    memcpy(guarded + room - map.size_bytes, map.data, map.size_bytes);
    (void)LLVMFuzzerTestOneInput(guarded + room - map.size_bytes, map.size_bytes);
    munmap(guarded, room + page);
    sw_map_close(&map);
    return 0;
}

int main(int argc, char **argv)
{
    const char *dir = argc == 2 ? argv[1] : "";
    DIR *stream = opendir(dir);
    struct dirent *entry;
    int n_run = 0, n_bad = 0;

    if (!stream) {
        fprintf(stderr, "cannot open corpus \"%s\": %s\n", dir, strerror(errno));
        return 1;
    }
    while ((entry = readdir(stream)) != NULL) {
        char path[SW_PATH_BYTES];
        sw_err err = {0};
        if (entry->d_name[0] == '.') continue;
        if (sw_path_join(path, dir, entry->d_name, &err) != SW_OK || replay(path)) n_bad++;
        else n_run++;
    }
    closedir(stream);
    printf("%d inputs\n", n_run);
    return n_bad || !n_run;
}
