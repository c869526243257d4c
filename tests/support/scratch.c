/* scratch.c - see scratch.h. */
#include "tests/support/scratch.h"

#include <dirent.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "formats/base/hash.h"
#include "formats/io/file_content.h"
#include "formats/io/watch.h"

void scratch_open(scratch *s)
{
    const char *base = getenv("TMPDIR");

    (void)snprintf(s->dir, sizeof s->dir, "%s/swage-test-XXXXXX", base ? base : "/tmp");
    assert_non_null(mkdtemp(s->dir));
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info;
    (void)kind;
    (void)walk;
    return remove(path);
}

void scratch_close(scratch *s)
{
    assert_int_equal(nftw(s->dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

const char *scratch_path(const scratch *s, const char *name)
{
    static char ring[8][2 * SW_PATH_BYTES];
    static unsigned next;
    char *at = ring[next++ % 8];

    (void)snprintf(at, sizeof ring[0], "%s/%s", s->dir, name);
    return at;
}

void scratch_write(const scratch *s, const char *name, const void *bytes, size_t n_bytes)
{
    FILE *f = fopen(scratch_path(s, name), "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n_bytes, f), n_bytes);
    assert_int_equal(fclose(f), 0);
}

uint8_t *scratch_take(size_t *n_bytes, const char *path)
{
    sw_map map = {0};
    uint8_t *bytes;
    sw_err err = {0};

    if (sw_map_open(&map, path, &err) != SW_OK) fail_msg("%s", err.text);
    *n_bytes = map.size_bytes;
    bytes = malloc(map.size_bytes);
    assert_non_null(bytes);
    memcpy(bytes, map.data, map.size_bytes);
    sw_map_close(&map);
    return bytes;
}

void scratch_put_back(const char *path, uint8_t *bytes, size_t n_bytes)
{
    sw_err err = {0};

    assert_int_equal(remove(path), 0);
    if (sw_file_put(path, bytes, n_bytes, &err) != SW_OK) fail_msg("%s", err.text);
    free(bytes);
}

int scratch_count(const scratch *s, const char *sub)
{
    DIR *list = opendir(sub ? scratch_path(s, sub) : s->dir);
    const struct dirent *entry;
    int n = 0;

    if (!list) return 0;
    while ((entry = readdir(list)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) n++;
    closedir(list);
    return n;
}

void scratch_manifest(const scratch *s, const char *sub)
{
    DIR *list = opendir(scratch_path(s, sub));
    const struct dirent *entry;
    char name[SW_PATH_BYTES];
    FILE *f;

    assert_non_null(list);
    (void)snprintf(name, sizeof name, "%s/manifest.json", sub);
    f = fopen(scratch_path(s, name), "wb");
    assert_non_null(f);
    (void)fputs("{\"inputs\": [], \"outputs\": [", f);
    for (const char *comma = ""; (entry = readdir(list));) {
        char hex[SW_SHA256_HEX_BYTES];
        struct stat info;

        (void)snprintf(name, sizeof name, "%s/%s", sub, entry->d_name);
        if (stat(scratch_path(s, name), &info) != 0 || !S_ISREG(info.st_mode) ||
            !strcmp(entry->d_name, "manifest.json"))
            continue;
        assert_int_equal(sw_sha256_file(hex, scratch_path(s, name), NULL), SW_OK);
        (void)fprintf(f, "%s{\"name\": \"%s\", \"bytes\": %lld, \"sha256\": \"%s\"}", comma,
                      entry->d_name, (long long)info.st_size, hex);
        comma = ", ";
    }
    (void)fputs("]}\n", f);
    assert_int_equal(fclose(f), 0);
    closedir(list);
}

static bool dir_has(const char *dir, const char *part)
{
    DIR *list = opendir(dir);
    const struct dirent *entry;
    bool found = false;

    while (list && !found && (entry = readdir(list))) {
        char path[2 * SW_PATH_BYTES];
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        (void)snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        found = strstr(entry->d_name, part) || (entry->d_type == DT_DIR && dir_has(path, part));
    }
    if (list) closedir(list);
    return found;
}

bool scratch_has(const scratch *s, const char *part) { return dir_has(s->dir, part); }

int scratch_setup(void **state)
{
    scratch *s = calloc(1, sizeof *s);

    scratch_open(s);
    *state = s;
    return 0;
}

int scratch_teardown(void **state)
{
    sw_watch_end();
    scratch_close(*state);
    free(*state);
    return 0;
}

void scratch_expect(const scratch *s, const char *name, const char *want)
{
    char have[256];
    FILE *f = fopen(scratch_path(s, name), "rb");
    size_t n = f ? fread(have, 1, sizeof have - 1, f) : 0;

    if (!f) fail_msg("%s is gone", name);
    fclose(f);
    have[n] = '\0';
    assert_string_equal(have, want);
}

void scratch_write_text(const scratch *s, const char *name, const char *text)
{
    scratch_write(s, name, text, strlen(text));
}

void scratch_make_dir(const scratch *s, const char *name)
{
    assert_int_equal(mkdir(scratch_path(s, name), 0755), 0);
}
