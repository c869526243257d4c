/* hub_cache.c - see hub_cache.h: ids, and where the cache has them. */
#include "formats/checkpoint/hub_cache.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/checkpoint/hub_snapshot.h"

#define FOLDER_PREFIX "models--"
#define COMMIT_DIGITS 40
#define PREFIX_DIGITS_MIN 4 /* of a commit's beginning */
#define REF_BYTES_MAX 128   /* a commit and an end of line */

/* --- ids --- */

static bool is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* What the Hub allows: letters, digits, '_', '-' and '.', neither of the latter at an end or twice
 * in a row. */
static bool is_part(const char *text, size_t n)
{
    if (n < 1 || n > SW_HUB_PART_MAX || strchr("-.", text[0]) || strchr("-.", text[n - 1]))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!is_plain(text[i]) && !strchr("_-.", text[i])) return false;
        if (i && text[i] == text[i - 1] && strchr("-.", text[i])) return false;
    }
    return true;
}

/* Plain names between slashes, so that refs/REVISION stays below refs/; and nothing that a shell
 * would read, since the message has it in a command. */
static bool is_revision(const char *text)
{
    size_t n = strlen(text);

    if (n < 1 || n >= SW_HUB_REVISION_BYTES || text[0] == '-' || text[0] == '/' ||
        text[n - 1] == '/' || strstr(text, "//") || strstr(text, ".."))
        return false;
    for (size_t i = 0; i < n; i++) {
        bool begins = i == 0 || text[i - 1] == '/';
        if (!is_plain(text[i]) && !strchr("_-./+=", text[i])) return false;
        if (begins && text[i] == '.') return false;
    }
    return true;
}

bool sw_hub_id_parse(sw_hub_id *out, const char *text)
{
    const char *at = strchr(text, '@'), *slash = strchr(text, '/');
    size_t n = at ? (size_t)(at - text) : strlen(text);

    if (!slash || slash >= text + n || !is_part(text, (size_t)(slash - text)) ||
        !is_part(slash + 1, (size_t)(text + n - slash - 1)) || (at && !is_revision(at + 1)))
        return false;
    (void)snprintf(out->repo, sizeof out->repo, "%.*s", (int)n, text);
    (void)snprintf(out->revision, sizeof out->revision, "%s", at ? at + 1 : "main");
    return true;
}

/* --- the cache --- */

static const char *env(const char *name)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL;
}

/* "~/" at the beginning is the home of the user, which a shell need not have put there. */
static sw_code join_env(char out[SW_PATH_BYTES], const char *value, const char *below, sw_err *err)
{
    const char *home = env("HOME");
    char base[SW_PATH_BYTES];

    if (strncmp(value, "~/", 2) != 0 || !home) return sw_path_join(out, value, below, err);
    if (sw_path_join(base, home, value + 2, err) != SW_OK) return SW_E_IO;
    return sw_path_join(out, base, below, err);
}

sw_code sw_hub_cache_dir(char out[SW_PATH_BYTES], sw_err *err)
{
    static const struct {
        const char *variable, *below;
    } places[] = {{"HF_HUB_CACHE", ""}, {"HF_HOME", "hub"}, {"XDG_CACHE_HOME", "huggingface/hub"},
                  {"HOME", ".cache/huggingface/hub"}};

    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (env(places[i].variable))
            return join_env(out, env(places[i].variable), places[i].below, err);
    return SW_FAIL(err, SW_E_IO, "no HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME or HOME says where the "
                   "cache of the Hugging Face Hub is");
}

static sw_code repo_dir(char out[SW_PATH_BYTES], const char *cache, const sw_hub_id *id,
                        sw_err *err)
{
    const char *slash = strchr(id->repo, '/');
    char folder[sizeof FOLDER_PREFIX + SW_HUB_ID_BYTES + 2];

    (void)snprintf(folder, sizeof folder, FOLDER_PREFIX "%.*s--%s", (int)(slash - id->repo),
                   id->repo, slash + 1);
    return sw_path_join(out, cache, folder, err);
}

static bool is_hex(const char *text, size_t n)
{
    return strspn(text, "0123456789abcdef") >= n;
}

static bool is_commit(const char *text)
{
    return strlen(text) == COMMIT_DIGITS && is_hex(text, COMMIT_DIGITS);
}

/* The commit that refs/REVISION holds; *is_found false: there is no such ref. */
static sw_code read_ref(bool *is_found, char commit[COMMIT_DIGITS + 1], const char *repo,
                        const sw_hub_id *id, sw_err *err)
{
    char refs[SW_PATH_BYTES], path[SW_PATH_BYTES];
    sw_map map = {0};
    size_t n;
    sw_code rc;

    *is_found = false;
    if ((rc = sw_path_join(refs, repo, "refs", err)) != SW_OK ||
        (rc = sw_path_join(path, refs, id->revision, err)) != SW_OK)
        return rc;
    if (!sw_path_exists(path) || sw_path_is_dir(path)) return SW_OK;
    if ((rc = sw_map_open_own(&map, path, err)) != SW_OK) return rc;
    n = map.size_bytes <= REF_BYTES_MAX ? map.size_bytes : 0;
    while (n && (map.data[n - 1] == '\n' || map.data[n - 1] == '\r')) n--;
    (void)snprintf(commit, COMMIT_DIGITS + 1, "%.*s", (int)n, (const char *)map.data);
    sw_map_close(&map);
    *is_found = true;
    if (n == COMMIT_DIGITS && is_commit(commit)) return SW_OK;
    return SW_FAIL(err, SW_E_FORMAT, "%s: holds no commit of %d digits; remove it and download "
                   "again: hf download %s --revision %s", path, COMMIT_DIGITS, id->repo,
                   id->revision);
}

/* The snapshots whose commit begins with the revision: how many, and the first two by name. */
static int find_commits(char first[2][COMMIT_DIGITS + 1], const char *snapshots,
                        const char *revision)
{
    size_t n = strlen(revision);
    DIR *stream = n <= COMMIT_DIGITS && n >= PREFIX_DIGITS_MIN && is_hex(revision, n)
                      ? opendir(snapshots)
                      : NULL;
    const struct dirent *entry;
    int n_found = 0;

    first[0][0] = first[1][0] = '\0';
    while (stream && (entry = readdir(stream))) {
        const char *name = entry->d_name;
        if (!is_commit(name) || strncmp(name, revision, n) != 0) continue;
        n_found++;
        if (!*first[0] || strcmp(name, first[0]) < 0) {
            memcpy(first[1], first[0], sizeof first[1]);
            memcpy(first[0], name, COMMIT_DIGITS + 1);
        } else if (!*first[1] || strcmp(name, first[1]) < 0) {
            memcpy(first[1], name, COMMIT_DIGITS + 1);
        }
    }
    if (stream) closedir(stream);
    return n_found;
}

static sw_code find_commit(char commit[COMMIT_DIGITS + 1], const char *repo, const char *snapshots,
                           const sw_hub_id *id, sw_err *err)
{
    char first[2][COMMIT_DIGITS + 1];
    bool is_ref;
    sw_code rc = read_ref(&is_ref, commit, repo, id, err);
    int n;

    if (rc != SW_OK || is_ref) return rc;
    n = find_commits(first, snapshots, id->revision);
    if (n > 1)
        return SW_FAIL(err, SW_E_USAGE, "%s@%s: %d snapshots in %s begin like this, among them %s "
                       "and %s; give more digits", id->repo, id->revision, n, snapshots, first[0],
                       first[1]);
    memcpy(commit, first[0], COMMIT_DIGITS + 1); /* empty: none */
    return SW_OK;
}

sw_code sw_hub_find(char out[SW_PATH_BYTES], const sw_hub_id *id, sw_err *err)
{
    char cache[SW_PATH_BYTES], repo[SW_PATH_BYTES], snapshots[SW_PATH_BYTES];
    char commit[COMMIT_DIGITS + 1] = "";
    sw_code rc;

    if ((rc = sw_hub_cache_dir(cache, err)) != SW_OK ||
        (rc = repo_dir(repo, cache, id, err)) != SW_OK ||
        (rc = sw_path_join(snapshots, repo, "snapshots", err)) != SW_OK ||
        (rc = find_commit(commit, repo, snapshots, id, err)) != SW_OK)
        return rc;
    if (!sw_path_is_dir(repo))
        return SW_FAIL(err, SW_E_IO, "%s: no such directory, and no model of this id in the "
                       "Hugging Face cache %.300s; for the latter: hf download %s --revision %s",
                       id->repo, cache, id->repo, id->revision);
    if (commit[0] && (rc = sw_path_join(out, snapshots, commit, err)) != SW_OK) return rc;
    if (!commit[0] || !sw_path_is_dir(out))
        return SW_FAIL(err, SW_E_IO, "%s: the Hugging Face cache has the model in %.300s, but no "
                       "snapshot of revision %s; hf download %s --revision %s", id->repo, repo,
                       id->revision, id->repo, id->revision);
    return sw_hub_snapshot_check(out, repo, id->repo, commit, err);
}

/* --- and back --- */

/* Cuts the last part off `path`; returns it, or NULL where there is none. */
static const char *cut_last(char *path)
{
    char *slash = strrchr(path, '/');

    if (!slash) return NULL;
    *slash = '\0';
    return slash + 1;
}

bool sw_hub_origin(sw_hub_id *out, const char *path, bool is_file)
{
    char dir[SW_PATH_BYTES], real[PATH_MAX], text[SW_HUB_ID_BYTES + SW_HUB_REVISION_BYTES];
    const char *commit, *snapshots, *folder, *org, *name;

    (void)snprintf(dir, sizeof dir, "%s", path);
    if (is_file && !cut_last(dir)) (void)snprintf(dir, sizeof dir, ".");
    if (!realpath(dir, real) || !(commit = cut_last(real)) || !is_commit(commit) ||
        !(snapshots = cut_last(real)) || strcmp(snapshots, "snapshots") != 0 ||
        !(folder = cut_last(real)) || strncmp(folder, FOLDER_PREFIX, strlen(FOLDER_PREFIX)) != 0)
        return false;
    org = folder + strlen(FOLDER_PREFIX);
    if (!(name = strstr(org, "--")) || strlen(org) >= SW_HUB_ID_BYTES) return false;
    (void)snprintf(text, sizeof text, "%.*s/%s@%s", (int)(name - org), org, name + 2, commit);
    return sw_hub_id_parse(out, text);
}
