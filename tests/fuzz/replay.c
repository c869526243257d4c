/* replay.c - feed every file of a corpus directory to a fuzz entry, without libFuzzer.
 *
 *   replay_x DIRECTORY
 *
 * Each input ends flush against an inaccessible page, so that reading one byte too many faults
 * in any build. Small inputs also run cut short and with bytes changed, the same way each time.
 * Each run is named before it begins, so the last line of the log is the culprit. Prints how
 * many inputs ran; an empty or missing corpus is a failure.
 */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/io/file.h"

#define SECONDS_MAX 20u /* for one input; SIGALRM ends the program */
#define VARIED_BYTES_MAX ((size_t)16 * 1024)
#define N_CUTS 16
#define N_CHANGES 32

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* n_bytes that end where an inaccessible page begins. */
typedef struct guarded {
    uint8_t *base, *end;
    size_t room;
} guarded;

static int guarded_open(guarded *g, size_t n_bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    g->room = (n_bytes + page - 1) / page * page + page;
    g->base = mmap(NULL, g->room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g->base == MAP_FAILED) return errno;
    g->end = g->base + g->room - page;
    return mprotect(g->end, page, PROT_NONE) == 0 ? 0 : errno;
}

static void run(const guarded *g, const uint8_t *bytes, size_t n_bytes, uint32_t seed)
{
    uint8_t *input = g->end - n_bytes;

    if (n_bytes) memcpy(input, bytes, n_bytes);
    for (uint32_t i = 0; n_bytes && seed && i < 1 + seed % 3; i++) {
        uint32_t hash = (seed + 1000 * i) * 2654435761u;
        uint8_t flip = (uint8_t)(hash >> 3);
        input[(hash >> 8) % n_bytes] ^= flip ? flip : 1;
    }
    (void)alarm(SECONDS_MAX);
    (void)LLVMFuzzerTestOneInput(input, n_bytes);
    (void)alarm(0);
}

static int replay(const char *path)
{
    sw_map map = {0};
    sw_err err = {0};
    guarded g = {0};
    int failed;

    if (sw_map_open(&map, path, &err) != SW_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    if ((failed = guarded_open(&g, map.size_bytes)) != 0) {
        fprintf(stderr, "%s: no memory: %s\n", path, strerror(failed));
        sw_map_close(&map);
        return 1;
    }
    fprintf(stderr, "%s\n", path);
    run(&g, map.data, map.size_bytes, 0);
    if (map.size_bytes <= VARIED_BYTES_MAX) {
        for (size_t i = 0; i < N_CUTS; i++) {
            size_t n_bytes = map.size_bytes * i / N_CUTS;
            fprintf(stderr, "%s, first %zu bytes\n", path, n_bytes);
            run(&g, map.data, n_bytes, 0);
        }
        for (uint32_t i = 1; i <= N_CHANGES; i++) {
            fprintf(stderr, "%s, change %u\n", path, i);
            run(&g, map.data, map.size_bytes, i);
        }
    }
    munmap(g.base, g.room);
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
        if (sw_path_join(path, dir, entry->d_name, &err) != SW_OK || replay(path))
            n_bad++;
        else
            n_run++;
    }
    closedir(stream);
    printf("%d inputs\n", n_run);
    return n_bad || !n_run;
}
