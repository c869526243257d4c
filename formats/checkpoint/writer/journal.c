/* journal.c - see journal.h. */
#include "formats/checkpoint/writer/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/mem.h"

#define DIGEST_BYTES ((size_t)64)
#define REMEDY "; --restart starts over"

static const sw_json_caps line_caps = {
    .max_bytes = SW_JOURNAL_MAX_BYTES, .max_depth = 32, .max_values = (int64_t)20000000};

/* Digest of a line: that of the line before it, then the object. */
static sw_code chain(char out[SW_SHA256_HEX_BYTES], const char *last, const char *json,
                     size_t n_json, sw_err *err)
{
    char digest[SW_SHA256_HEX_BYTES], both[2 * SW_SHA256_HEX_BYTES];
    sw_code rc = sw_sha256_hex(digest, json, n_json, err);

    if (rc != SW_OK) return rc;
    (void)snprintf(both, sizeof both, "%s%s", last, digest);
    return sw_sha256_hex(out, both, strlen(both), err);
}

static bool is_digest(const cJSON *item)
{
    return cJSON_IsString(item) && strlen(item->valuestring) == DIGEST_BYTES &&
           strspn(item->valuestring, "0123456789abcdef") == DIGEST_BYTES;
}

static bool has_tensors(const cJSON *block)
{
    const cJSON *list = sw_json_member(block, "tensors"), *item;

    if (!cJSON_IsArray(list)) return false;
    cJSON_ArrayForEach(item, list)
        if (!cJSON_IsString(sw_json_member(item, "name")) ||
            !cJSON_IsNumber(sw_json_member(item, "bytes")) ||
            !is_digest(sw_json_member(item, "sha256")))
            return false;
    return true;
}

static bool has_rows(const cJSON *block)
{
    const cJSON *lists = sw_json_member(block, "rows"), *list;

    if (!cJSON_IsObject(lists)) return false;
    cJSON_ArrayForEach(list, lists)
        if (!cJSON_IsArray(list)) return false;
    return true;
}

static bool is_first_line(const cJSON *line)
{
    const cJSON *version = sw_json_member(line, "journal");

    return cJSON_IsNumber(version) && version->valuedouble == SW_JOURNAL_VERSION &&
           cJSON_IsObject(sw_json_member(line, "key"));
}

/* Line `n` (from 0) into the journal. Takes `line` over. */
static bool take_line(sw_journal *j, int64_t n, cJSON *line)
{
    int64_t n_blocks = sw_journal_n_blocks(j);
    const cJSON *number = sw_json_member(line, "block");
    bool ok = cJSON_IsObject(line);

    if (ok && n == 0) {
        ok = is_first_line(line);
        if (ok) j->key = cJSON_DetachItemFromObjectCaseSensitive(line, "key");
        cJSON_Delete(line);
        return ok;
    }
    ok = ok && cJSON_IsNumber(number) && number->valuedouble == (double)n_blocks &&
         n_blocks < SW_JOURNAL_BLOCKS_MAX && has_tensors(line) && has_rows(line) &&
         cJSON_AddItemToArray(j->blocks, line);
    if (!ok) cJSON_Delete(line);
    return ok;
}

/* One whole line of n_bytes, without its end. */
static sw_code parse_line(sw_journal *j, int64_t n, const char *text, size_t n_bytes,
                          const char *what, sw_err *err)
{
    char digest[SW_SHA256_HEX_BYTES];
    const char *json = text + DIGEST_BYTES + 1;
    cJSON *line = NULL;
    sw_code rc;

    if (n_bytes < DIGEST_BYTES + 3 || text[DIGEST_BYTES] != ' ')
        return SW_FAIL(err, SW_E_FORMAT, "%s: line %lld is damaged" REMEDY, what, (long long)n + 1);
    rc = chain(digest, j->last, json, n_bytes - DIGEST_BYTES - 1, err);
    if (rc != SW_OK) return rc;
    if (memcmp(digest, text, DIGEST_BYTES) != 0)
        return SW_FAIL(err, SW_E_FORMAT, "%s: line %lld is damaged" REMEDY, what, (long long)n + 1);
    rc = sw_json_parse(&line, json, n_bytes - DIGEST_BYTES - 1, &line_caps, what, err);
    if (rc != SW_OK) return rc;
    if (!take_line(j, n, line))
        return SW_FAIL(err, SW_E_FORMAT,
                       "%s: line %lld is not one that this version writes" REMEDY, what,
                       (long long)n + 1);
    memcpy(j->last, digest, sizeof digest);
    return SW_OK;
}

sw_code sw_journal_parse(sw_journal *out, const char *text, size_t n_bytes, const char *what,
                         sw_err *err)
{
    sw_journal j = {.fd = -1};
    int64_t n = 0;
    sw_code rc = SW_OK;

    if (n_bytes > SW_JOURNAL_MAX_BYTES)
        return SW_FAIL(err, SW_E_FORMAT, "%s: %zu bytes are no journal" REMEDY, what, n_bytes);
    if (!(j.blocks = cJSON_CreateArray())) return SW_FAIL(err, SW_E_NOMEM, "journal of blocks");
    for (size_t at = 0; at < n_bytes && rc == SW_OK; n++) {
        const char *end = memchr(text + at, '\n', n_bytes - at);
        if (!end) break;
        rc = parse_line(&j, n, text + at, (size_t)(end - (text + at)), what, err);
        at = (size_t)(end - text) + 1;
        j.size_bytes = at;
    }
    if (rc == SW_OK && n == 0)
        rc = SW_FAIL(err, SW_E_FORMAT, "%s: does not begin as a journal" REMEDY, what);
    if (rc == SW_OK)
        *out = j;
    else
        sw_journal_close(&j);
    return rc;
}

void sw_journal_close(sw_journal *journal)
{
    cJSON_Delete(journal->key);
    cJSON_Delete(journal->blocks);
    if (journal->fd >= 0) close(journal->fd);
    memset(journal, 0, sizeof *journal);
    journal->fd = -1;
}

int64_t sw_journal_n_blocks(const sw_journal *journal)
{
    return cJSON_GetArraySize(journal->blocks);
}

/* The line of an object, its end included; *digest is that of the line. */
static sw_code print_line(char **out, char digest[SW_SHA256_HEX_BYTES], const char *last,
                          const cJSON *object, sw_err *err)
{
    char *json = NULL, *line = NULL;
    sw_code rc = sw_json_print(&json, object, false, err);
    size_t n = json ? strlen(json) : 0;

    if (rc != SW_OK) return rc;
    if ((rc = chain(digest, last, json, n, err)) == SW_OK &&
        (rc = SW_MEM_GET(&line, n + DIGEST_BYTES + 3, "line of the journal", err)) == SW_OK) {
        (void)snprintf(line, n + DIGEST_BYTES + 3, "%s %s\n", digest, json);
        *out = line;
    }
    sw_mem_put(json);
    return rc;
}

static sw_code open_for_append(sw_journal *j, const char *path, sw_err *err)
{
    do j->fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    while (j->fd < 0 && errno == EINTR);
    if (j->fd >= 0 && ftruncate(j->fd, (off_t)j->size_bytes) == 0) return SW_OK;
    return SW_FAIL(err, SW_E_IO, "%s: cannot open for writing: %s", path, strerror(errno));
}

sw_code sw_journal_open(sw_journal *out, const char *path, sw_err *err)
{
    sw_journal j = {.fd = -1};
    sw_map map = {0};
    sw_code rc;

    if ((rc = sw_map_open_own(&map, path, err)) != SW_OK) return rc;
    rc = sw_journal_parse(&j, (const char *)map.data, map.size_bytes, path, err);
    sw_map_close(&map);
    if (rc == SW_OK) rc = open_for_append(&j, path, err);
    if (rc == SW_OK)
        *out = j;
    else
        sw_journal_close(&j);
    return rc;
}

sw_code sw_journal_create(sw_journal *out, const char *path, const cJSON *key, sw_err *err)
{
    cJSON *first = cJSON_CreateObject(), *lent = cJSON_CreateObjectReference(key->child);
    char digest[SW_SHA256_HEX_BYTES], *line = NULL;
    sw_code rc;

    if (!first || !lent || !cJSON_AddNumberToObject(first, "journal", SW_JOURNAL_VERSION) ||
        !cJSON_AddItemToObject(first, "key", lent)) {
        cJSON_Delete(lent); /* nobody's: cJSON's own way to add one loses it here */
        cJSON_Delete(first);
        return SW_FAIL(err, SW_E_NOMEM, "first line of the journal");
    }
    if ((rc = print_line(&line, digest, "", first, err)) == SW_OK)
        rc = sw_file_put(path, line, strlen(line), err);
    cJSON_Delete(first);
    sw_mem_put(line);
    return rc == SW_OK ? sw_journal_open(out, path, err) : rc;
}

static sw_code write_all(int fd, uint64_t at, const char *bytes, size_t n_bytes, sw_err *err)
{
    while (n_bytes) {
        ssize_t n = pwrite(fd, bytes, n_bytes, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return SW_FAIL(err, SW_E_IO, "journal: cannot write: %s",
                           n < 0 ? strerror(errno) : "no progress");
        bytes += n;
        at += (uint64_t)n;
        n_bytes -= (size_t)n;
    }
    return SW_OK;
}

static sw_code append(sw_journal *j, const cJSON *object, sw_err *err)
{
    char digest[SW_SHA256_HEX_BYTES], *line = NULL;
    sw_code rc;

    if ((rc = print_line(&line, digest, j->last, object, err)) != SW_OK) return rc;
    if ((rc = write_all(j->fd, j->size_bytes, line, strlen(line), err)) != SW_OK) goto done;
    while (fsync(j->fd) != 0)
        if (errno != EINTR) {
            rc = SW_FAIL(err, SW_E_IO, "journal: cannot sync: %s", strerror(errno));
            goto done;
        }
    j->size_bytes += strlen(line);
    memcpy(j->last, digest, sizeof digest);
done:
    sw_mem_put(line);
    return rc;
}

sw_code sw_journal_add_block(sw_journal *journal, cJSON *block, sw_err *err)
{
    double number = (double)sw_journal_n_blocks(journal);
    sw_code rc;

    if (!block || !cJSON_AddNumberToObject(block, "block", number))
        rc = SW_FAIL(err, SW_E_NOMEM, "line of the journal");
    else
        rc = append(journal, block, err);
    if (rc != SW_OK)
        cJSON_Delete(block);
    else
        (void)cJSON_AddItemToArray(journal->blocks, block); /* cannot fail: neither is NULL */
    return rc;
}
