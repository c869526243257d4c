/* replaced.c - may a directory be replaced by an output? Only one that is an output itself.
 *
 * The manifest of an output lists its files by size and SHA-256. A directory whose files are all in
 * its manifest holds nothing but what we wrote. Bytes are compared, but of large files that are not
 * younger than the manifest only the size is: the manifest is written last, and shards take long to
 * read.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/hash.h"
#include "formats/base/json.h"
#include "formats/base/mem.h"
#include "formats/io/out_internal.h"
#include "formats/io/watch.h"

#define MANIFEST "manifest.json"
#define COMPARED_MAX_BYTES ((uint64_t)64 << 20)

static const sw_json_caps manifest_caps = {
    .max_bytes = (size_t)64 << 20, .max_depth = 32, .max_values = 4000000};

static sw_code in_the_way(const char *path, const char *name, const char *what, sw_err *err)
{
    return SW_FAIL(err, SW_E_USAGE, "%s: holds %s, %s, so it is not replaced; move it away or "
                   "choose another name", path, name, what);
}

static const cJSON *find_output(const cJSON *outputs, const char *name)
{
    const cJSON *item, *known;

    cJSON_ArrayForEach(item, outputs)
    {
        known = sw_json_member(item, "name");
        if (cJSON_IsString(known) && !strcmp(known->valuestring, name)) return item;
    }
    return NULL;
}

/* Read instead of mapped, since it is no input of the run. */
static sw_code digest_of(char out[SW_SHA256_HEX_BYTES], const char *path, sw_err *err)
{
    unsigned char piece[16384];
    sw_sha256 *sum = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t n = 0;
    sw_code rc;

    if (fd < 0) return SW_FAIL(err, SW_E_IO, "%s: cannot be opened: %s", path, strerror(errno));
    rc = sw_sha256_new(&sum, err);
    while (rc == SW_OK && (n = read(fd, piece, sizeof piece)) != 0) {
        if (n < 0 && errno == EINTR) continue;
        rc = n < 0 ? SW_FAIL(err, SW_E_IO, "%s: cannot read: %s", path, strerror(errno))
                   : sw_sha256_add(sum, piece, (size_t)n, err);
    }
    if (rc == SW_OK) rc = sw_sha256_finish(out, sum, err);
    sw_sha256_free(sum);
    close(fd);
    return rc;
}

static bool is_old_and_large(const char *path, const struct stat *info)
{
    struct stat manifest;
    char at[SW_PATH_BYTES];

    if ((uint64_t)info->st_size <= COMPARED_MAX_BYTES ||
        sw_path_join(at, path, MANIFEST, NULL) != SW_OK || lstat(at, &manifest) != 0)
        return false;
    return info->st_mtim.tv_sec < manifest.st_mtim.tv_sec ||
           (info->st_mtim.tv_sec == manifest.st_mtim.tv_sec &&
            info->st_mtim.tv_nsec <= manifest.st_mtim.tv_nsec);
}

static sw_code check_entry(const char *path, const char *name, const cJSON *outputs, sw_err *err)
{
    const cJSON *item = find_output(outputs, name), *size, *sha256;
    char at[SW_PATH_BYTES], have[SW_SHA256_HEX_BYTES];
    bool is_manifest = !strcmp(name, MANIFEST);
    struct stat info;
    sw_code rc;

    if ((rc = sw_path_join(at, path, name, err)) != SW_OK) return rc;
    if (lstat(at, &info) != 0)
        return SW_FAIL(err, SW_E_IO, "%s: cannot stat: %s", at, strerror(errno));
    if (S_ISREG(info.st_mode) && sw_watch_reads(&info))
        return in_the_way(path, name, "which is an input of this run", err);
    if (!S_ISREG(info.st_mode) || (!item && !is_manifest))
        return in_the_way(path, name, "which swage did not write", err);
    if (is_manifest && cJSON_IsArray(outputs)) return SW_OK;
    if (is_manifest) return in_the_way(path, name, "which is no manifest of swage's", err);
    size = sw_json_member(item, "bytes");
    sha256 = sw_json_member(item, "sha256");
    if (!cJSON_IsNumber(size) || !cJSON_IsString(sha256) ||
        size->valuedouble != (double)info.st_size)
        return in_the_way(path, name, "which was changed after swage wrote it", err);
    if (is_old_and_large(path, &info)) return SW_OK;
    if ((rc = digest_of(have, at, err)) != SW_OK) return rc;
    if (!strcmp(have, sha256->valuestring)) return SW_OK;
    return in_the_way(path, name, "which was changed after swage wrote it", err);
}

/* *out stays NULL where there is no manifest, or none that can be read. */
static sw_code read_outputs(cJSON **out, const char *path, sw_err *err)
{
    char at[SW_PATH_BYTES];
    sw_map map = {0};
    sw_err why = {0};
    sw_code rc = sw_path_join(at, path, MANIFEST, err);

    if (rc != SW_OK || !sw_path_exists(at)) return rc;
    if ((rc = sw_map_open_own(&map, at, &why)) == SW_OK)
        rc = sw_json_parse(out, (const char *)map.data, map.size_bytes, &manifest_caps, at, &why);
    sw_map_close(&map);
    if (rc == SW_E_FORMAT) return SW_OK;
    if (rc != SW_OK) return SW_FAIL(err, rc, "%s", why.text);
    return SW_OK;
}

sw_code sw_replaced_check(const char *path, sw_err *err)
{
    const struct dirent *entry;
    cJSON *manifest = NULL;
    DIR *list;
    sw_code rc;

    if ((rc = read_outputs(&manifest, path, err)) != SW_OK) return rc;
    if (!(list = opendir(path)))
        rc = SW_FAIL(err, SW_E_IO, "%s: cannot list: %s", path, strerror(errno));
    while (rc == SW_OK && (entry = readdir(list)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            rc = check_entry(path, entry->d_name, sw_json_member(manifest, "outputs"), err);
    if (list) closedir(list);
    cJSON_Delete(manifest);
    return rc;
}

/* The manifest goes last: what is left of a removal that was stopped is still known for ours. */
sw_code sw_out_dir_remove(const char *path, sw_err *err)
{
    const struct dirent *entry;
    char file[SW_PATH_BYTES];
    DIR *list;
    sw_code rc = sw_replaced_check(path, err);

    if (rc != SW_OK) return rc;
    if (!(list = opendir(path)))
        return SW_FAIL(err, SW_E_IO, "%s: cannot be opened: %s", path, strerror(errno));
    while (rc == SW_OK && (entry = readdir(list))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") ||
            !strcmp(entry->d_name, MANIFEST))
            continue;
        if ((rc = sw_path_join(file, path, entry->d_name, err)) == SW_OK && unlink(file) != 0)
            rc = SW_FAIL(err, SW_E_IO, "%s: cannot remove: %s", file, strerror(errno));
    }
    closedir(list);
    if (rc == SW_OK) rc = sw_path_join(file, path, MANIFEST, err);
    if (rc == SW_OK && ((unlink(file) != 0 && errno != ENOENT) || rmdir(path) != 0))
        rc = SW_FAIL(err, SW_E_IO, "%s: cannot remove: %s", path, strerror(errno));
    return rc;
}
