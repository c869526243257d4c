/* zip_read.c - see zip_read.h. The parts of an archive, little-endian, from its end:
 *
 *   end record      "PK\5\6"  4 disks  2 entries here  2 entries  4 size  4 offset of directory
 *                   2 length of a comment, the comment
 *   zip64 locator   "PK\6\7"  4 disk  8 offset of the zip64 end record  4 disks; may be absent
 *   zip64 end       "PK\6\6"  8 size  2 2 versions  4 4 disks  8 8 entries  8 size  8 offset
 *   directory entry "PK\1\2"  2 2 versions  2 flags  2 method  4 time  4 crc  4 stored size
 *                   4 size  2 name  2 extra  2 comment  2 disk  2 4 attributes  4 local header at
 *   local header    "PK\3\4"  2 version  2 flags  2 method  4 time  4 crc  4 4 sizes  2 name
 *                   2 extra
 * A size or offset of all ones stands in the extra field 1 instead, in this order: size, stored
 * size, offset.
 */
#include "formats/pickle/zip_read.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/json.h"
#include "formats/base/size.h"

#define END_BYTES 22
#define COMMENT_MAX 65535
#define LOCATOR_BYTES 20
#define END64_BYTES 56
#define ENTRY_BYTES 46
#define LOCAL_BYTES 30
#define ALL_ONES 0xffffffffu
#define FLAG_ENCRYPTED 0x1u

typedef struct archive {
    const unsigned char *bytes;
    uint64_t n_bytes;
    const char *what;
    uint64_t directory, directory_bytes, n_entries;
    sw_arena *arena;
} archive;

static bool has_mark(const unsigned char *at, const char mark[4]) { return !memcmp(at, mark, 4); }

bool sw_zip_is_one(const void *bytes, size_t n_bytes)
{
    return n_bytes >= 4 && has_mark(bytes, "PK\3\4");
}

/* The last end record whose comment ends with the file. */
static sw_code find_end(uint64_t *out, const archive *a, sw_err *err)
{
    uint64_t lowest = a->n_bytes > END_BYTES + COMMENT_MAX ? a->n_bytes - END_BYTES - COMMENT_MAX
                                                           : 0;

    for (uint64_t at = a->n_bytes < END_BYTES ? 0 : a->n_bytes - END_BYTES + 1; at-- > lowest;)
        if (has_mark(a->bytes + at, "PK\5\6") &&
            sw_load_le16(a->bytes + at + 20) == a->n_bytes - at - END_BYTES) {
            *out = at;
            return SW_OK;
        }
    return SW_FAIL(err, SW_E_FORMAT, "%s: an archive without an end; the file is truncated",
                   a->what);
}

static sw_code read_end64(archive *a, uint64_t end, sw_err *err)
{
    const unsigned char *locator = a->bytes + end - LOCATOR_BYTES, *end64;
    uint64_t at;

    if (end < LOCATOR_BYTES || !has_mark(locator, "PK\6\7")) return SW_OK;
    at = sw_load_le64(locator + 8);
    if (end - LOCATOR_BYTES < END64_BYTES || at > end - LOCATOR_BYTES - END64_BYTES ||
        !has_mark(a->bytes + at, "PK\6\6"))
        return SW_FAIL(err, SW_E_FORMAT, "%s: its zip64 record is not where it should be", a->what);
    end64 = a->bytes + at;
    a->n_entries = sw_load_le64(end64 + 32);
    a->directory_bytes = sw_load_le64(end64 + 40);
    a->directory = sw_load_le64(end64 + 48);
    return SW_OK;
}

static sw_code find_directory(archive *a, sw_err *err)
{
    uint64_t end = 0;
    sw_code rc = find_end(&end, a, err);

    if (rc != SW_OK) return rc;
    a->n_entries = sw_load_le16(a->bytes + end + 10);
    a->directory_bytes = sw_load_le32(a->bytes + end + 12);
    a->directory = sw_load_le32(a->bytes + end + 16);
    if ((rc = read_end64(a, end, err)) != SW_OK) return rc;
    if (a->directory > end || a->directory_bytes > end - a->directory)
        return SW_FAIL(err, SW_E_FORMAT, "%s: its directory is beyond its end", a->what);
    if (a->n_entries > SW_ZIP_ENTRIES_MAX || a->n_entries > a->directory_bytes / ENTRY_BYTES)
        return SW_FAIL(err, SW_E_FORMAT, "%s: %llu entries in a directory of %llu bytes; at most "
                       "%d are allowed", a->what, (unsigned long long)a->n_entries,
                       (unsigned long long)a->directory_bytes, SW_ZIP_ENTRIES_MAX);
    return SW_OK;
}

/* One entry of the directory. */
typedef struct record {
    const char *name;
    size_t name_bytes;
    uint64_t stored_bytes, size_bytes, local;
} record;

/* The 64-bit forms of fields that are all ones, out of extra field 1. */
static bool read_wide(record *r, const unsigned char *extra, size_t n)
{
    uint64_t *const fields[] = {&r->size_bytes, &r->stored_bytes, &r->local};

    while (n >= 4) {
        size_t id = sw_load_le16(extra), length = sw_load_le16(extra + 2);
        if (length > n - 4) return false;
        if (id == 1) {
            const unsigned char *at = extra + 4;
            for (int i = 0; i < 3; i++) {
                if (*fields[i] != ALL_ONES) continue;
                if (length < 8) return false;
                *fields[i] = sw_load_le64(at);
                at += 8;
                length -= 8;
            }
            return true;
        }
        extra += 4 + length;
        n -= 4 + length;
    }
    return r->size_bytes != ALL_ONES && r->stored_bytes != ALL_ONES && r->local != ALL_ONES;
}

static sw_code refuse(const archive *a, const record *r, sw_code code, const char *why, sw_err *err)
{
    return SW_FAIL(err, code, "%s: entry \"%.*s\" %s", a->what,
                   (int)(r->name_bytes > 200 ? 200 : r->name_bytes), r->name, why);
}

/* *at: the entry; then the one after it. */
static sw_code read_record(record *out, uint64_t *at, const archive *a, sw_err *err)
{
    const unsigned char *e = a->bytes + *at;
    uint64_t left = a->directory + a->directory_bytes - *at, length;
    size_t n_name, n_extra, bad_at;
    record r;

    if (left < ENTRY_BYTES || !has_mark(e, "PK\1\2"))
        return SW_FAIL(err, SW_E_FORMAT, "%s: its directory ends before its last entry", a->what);
    n_name = sw_load_le16(e + 28);
    n_extra = sw_load_le16(e + 30);
    length = (uint64_t)ENTRY_BYTES + n_name + n_extra + sw_load_le16(e + 32);
    if (length > left)
        return SW_FAIL(err, SW_E_FORMAT, "%s: its directory ends inside an entry", a->what);
    r = (record){.name = (const char *)e + ENTRY_BYTES, .name_bytes = n_name,
                 .stored_bytes = sw_load_le32(e + 20), .size_bytes = sw_load_le32(e + 24),
                 .local = sw_load_le32(e + 42)};
    if (!n_name || memchr(r.name, '\0', n_name) || !sw_utf8_is_valid(r.name, n_name, &bad_at))
        return SW_FAIL(err, SW_E_FORMAT, "%s: an entry's name is empty or no text", a->what);
    if (!read_wide(&r, e + ENTRY_BYTES + n_name, n_extra))
        return refuse(a, &r, SW_E_FORMAT, "has a broken extra field", err);
    if (sw_load_le16(e + 8) & FLAG_ENCRYPTED)
        return refuse(a, &r, SW_E_UNSUPPORTED, "is encrypted", err);
    if (sw_load_le16(e + 10) != 0 || r.stored_bytes != r.size_bytes)
        return refuse(a, &r, SW_E_UNSUPPORTED, "is compressed; PyTorch stores entries as they are, "
                      "so write the file again with torch.save", err);
    *at += length;
    *out = r;
    return SW_OK;
}

/* Where the data is: behind the local header, which must be of the same entry. */
static sw_code find_data(const unsigned char **out, const archive *a, const record *r, sw_err *err)
{
    const unsigned char *local = a->bytes + r->local;
    uint64_t head;

    if (r->local > a->directory || a->directory - r->local < LOCAL_BYTES ||
        !has_mark(local, "PK\3\4"))
        return refuse(a, r, SW_E_FORMAT, "is not where the directory says", err);
    head = (uint64_t)LOCAL_BYTES + sw_load_le16(local + 26) + sw_load_le16(local + 28);
    if (head > a->directory - r->local || r->size_bytes > a->directory - r->local - head)
        return refuse(a, r, SW_E_FORMAT, "runs past the data; the file is truncated", err);
    if (sw_load_le16(local + 26) != r->name_bytes ||
        memcmp(local + LOCAL_BYTES, r->name, r->name_bytes) != 0 || sw_load_le16(local + 8) != 0)
        return refuse(a, r, SW_E_FORMAT, "has another name or method in its own header", err);
    *out = local + head;
    return SW_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const sw_zip_entry *)a)->name, ((const sw_zip_entry *)b)->name);
}

static int compare_places(const void *a, const void *b)
{
    const sw_zip_entry *x = a, *y = b;

    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    return (x->size_bytes > y->size_bytes) - (x->size_bytes < y->size_bytes);
}

/* Leaves them by name. */
static sw_code check_entries(sw_zip *zip, const archive *a, sw_err *err)
{
    sw_zip_entry *e = zip->entries;

    if (!zip->n_entries) return SW_OK;
    qsort(e, (size_t)zip->n_entries, sizeof *e, compare_places);
    for (int64_t i = 1; i < zip->n_entries; i++)
        if (e[i].data < e[i - 1].data + e[i - 1].size_bytes)
            return SW_FAIL(err, SW_E_FORMAT, "%s: entries \"%.100s\" and \"%.100s\" overlap",
                           a->what, e[i - 1].name, e[i].name);
    qsort(e, (size_t)zip->n_entries, sizeof *e, compare_names);
    for (int64_t i = 1; i < zip->n_entries; i++)
        if (!strcmp(e[i - 1].name, e[i].name))
            return SW_FAIL(err, SW_E_FORMAT, "%s: two entries are named \"%.200s\"", a->what,
                           e[i].name);
    return SW_OK;
}

sw_code sw_zip_parse(sw_zip *out, sw_arena *arena, const void *bytes, size_t n_bytes,
                     const char *what, sw_err *err)
{
    archive a = {.bytes = bytes, .n_bytes = n_bytes, .what = what, .arena = arena};
    sw_zip zip = {0};
    uint64_t at;
    sw_code rc;

    if ((rc = find_directory(&a, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&zip.entries, arena, a.n_entries, err)) != SW_OK)
        return rc;
    at = a.directory;
    for (uint64_t i = 0; i < a.n_entries; i++) {
        sw_zip_entry *e = &zip.entries[zip.n_entries++];
        record r = {0};
        char *name;
        if ((rc = read_record(&r, &at, &a, err)) != SW_OK ||
            (rc = find_data(&e->data, &a, &r, err)) != SW_OK ||
            (rc = sw_arena_text(&name, arena, r.name, r.name_bytes, err)) != SW_OK)
            return rc;
        e->name = name;
        e->size_bytes = r.size_bytes;
    }
    if ((rc = check_entries(&zip, &a, err)) == SW_OK) *out = zip;
    return rc;
}

const sw_zip_entry *sw_zip_find(const sw_zip *zip, const char *name)
{
    sw_zip_entry key = {.name = name};

    if (!zip->n_entries) return NULL;
    return bsearch(&key, zip->entries, (size_t)zip->n_entries, sizeof *zip->entries,
                   compare_names);
}
