/* tokenizer_files.c - see tokenizer_files.h. */
#include "formats/text/files/tokenizer_files.h"

#include <dirent.h>
#include <string.h>

#include "formats/base/json.h"
#include "formats/io/file_content.h"
#include "formats/text/files/made.h"

#define MODEL_MAX_BYTES ((size_t)64 << 20)
#define TIKTOKEN_TEXT                                                                    \
    "a list of tiktoken, which does not say how text is cut into words; put the model's " \
    "tokenizer.json beside it"

static const sw_json_caps vocab_caps = {
    .max_bytes = (size_t)128 << 20, .max_depth = 16, .max_values = 8000000};

typedef sw_code (*maker_fn)(char **json, size_t *n_bytes, const char *dir, const char *path,
                            const sw_token_config *config, sw_err *err);

static bool find_in(char path[SW_PATH_BYTES], const char *dir, const char *name)
{
    sw_err ignored = {0};

    return sw_path_join(path, dir, name, &ignored) == SW_OK && sw_path_exists(path);
}

static sw_code make_merges(char **json, size_t *n_bytes, const char *dir, const char *path,
                           const sw_token_config *config, sw_err *err)
{
    char merges_path[SW_PATH_BYTES];
    cJSON *vocab = NULL;
    sw_map merges = {0};
    sw_code rc;

    if ((rc = sw_json_read(&vocab, path, &vocab_caps, err)) != SW_OK) return rc;
    if ((rc = sw_path_join_inside(merges_path, dir, "merges.txt", err)) == SW_OK &&
        (rc = sw_map_open(&merges, merges_path, err)) == SW_OK) {
        rc = merges.size_bytes > vocab_caps.max_bytes
                 ? SW_FAIL(err, SW_E_FORMAT, "merges.txt of %zu bytes", merges.size_bytes)
                 : sw_make_from_merges(json, n_bytes, vocab, (const char *)merges.data,
                                       merges.size_bytes, config, err);
        if (rc != SW_OK) sw_err_prefix(err, "%s", path);
    }
    sw_map_close(&merges);
    cJSON_Delete(vocab);
    return rc;
}

/* A sentencepiece model begins with a piece. Llama 3 has a file of the same name with lines of
 * base64, which is refused. */
static sw_code check_model_bytes(const sw_map *map, sw_err *err)
{
    const size_t n = map->size_bytes;

    if (n > MODEL_MAX_BYTES)
        return SW_FAIL(err, SW_E_FORMAT, "%zu bytes, at most %zu are read", n, MODEL_MAX_BYTES);
    if (n > 8 && map->data[0] != 0x0A && memchr(map->data, ' ', n < 64 ? n : 64))
        return SW_FAIL(err, SW_E_UNSUPPORTED, TIKTOKEN_TEXT);
    return SW_OK;
}

static sw_code make_spm(char **json, size_t *n_bytes, const char *dir, const char *path,
                        const sw_token_config *config, sw_err *err)
{
    sw_map map = {0};
    sw_code rc = sw_map_open(&map, path, err);

    (void)dir;
    if (rc != SW_OK) return rc;
    if ((rc = check_model_bytes(&map, err)) == SW_OK)
        rc = sw_make_from_spm(json, n_bytes, map.data, map.size_bytes, config, err);
    if (rc != SW_OK) sw_err_prefix(err, "%s", path);
    sw_map_close(&map);
    return rc;
}

/* tekken.json shows each token as text beside its bytes. One text holds a NUL, which no other file
 * may have. Nothing reads these texts, so the NUL is replaced. */
static void hide_nuls(char *json, size_t n_bytes)
{
    for (size_t at = 0; at + 1 < n_bytes; at++) {
        if (json[at] != '\\') continue;
        if (n_bytes - at >= 6 && !memcmp(json + at, "\\u0000", 6)) memcpy(json + at + 2, "fffd", 4);
        at++;
    }
}

static sw_code read_tekken(cJSON **out, const char *path, sw_err *err)
{
    sw_map map = {0};
    char *json = NULL;
    sw_code rc = sw_map_open(&map, path, err);

    if (rc != SW_OK) return rc;
    if (map.size_bytes > vocab_caps.max_bytes)
        rc = SW_FAIL(err, SW_E_FORMAT, "%s: %zu bytes", path, map.size_bytes);
    if (rc == SW_OK) rc = SW_MEM_GET(&json, map.size_bytes, path, err);
    if (rc == SW_OK) {
        memcpy(json, map.data, map.size_bytes);
        hide_nuls(json, map.size_bytes);
        rc = sw_json_parse(out, json, map.size_bytes, &vocab_caps, path, err);
    }
    sw_mem_put(json);
    sw_map_close(&map);
    return rc;
}

static sw_code make_tekken(char **json, size_t *n_bytes, const char *dir, const char *path,
                           const sw_token_config *config, sw_err *err)
{
    cJSON *tekken = NULL;
    sw_code rc = read_tekken(&tekken, path, err);

    (void)dir;
    if (rc != SW_OK) return rc;
    if ((rc = sw_make_from_tekken(json, n_bytes, tekken, config, err)) != SW_OK)
        sw_err_prefix(err, "%s", path);
    cJSON_Delete(tekken);
    return rc;
}

static const struct {
    const char *name, *with; /* with: another file that must be there, or NULL */
    maker_fn make;
} kinds[] = {
    {"vocab.json", "merges.txt", make_merges},
    {"tokenizer.model", NULL, make_spm},
    {"tekken.json", NULL, make_tekken},
};
#define N_KINDS (sizeof kinds / sizeof *kinds)

static size_t find_kind(char path[SW_PATH_BYTES], const char *dir)
{
    char other[SW_PATH_BYTES];
    size_t k = 0;

    while (k < N_KINDS && !(find_in(path, dir, kinds[k].name) &&
                            (!kinds[k].with || find_in(other, dir, kinds[k].with))))
        k++;
    return k;
}

/* The name tells a vocabulary of tiktoken, such as "qwen.tiktoken". */
static bool find_tiktoken(char path[SW_PATH_BYTES], const char *dir)
{
    DIR *stream = opendir(dir);
    const struct dirent *entry;
    bool is_found = false;

    while (stream && !is_found && (entry = readdir(stream)) != NULL) {
        const size_t n = strlen(entry->d_name);
        is_found = n > 9 && !strcmp(entry->d_name + n - 9, ".tiktoken") &&
                   find_in(path, dir, entry->d_name);
    }
    if (stream) (void)closedir(stream);
    return is_found;
}

bool sw_tokenizer_files_find(char path[SW_PATH_BYTES], const char *dir)
{
    return find_kind(path, dir) < N_KINDS || find_tiktoken(path, dir);
}

static sw_code nothing_to_read(const char *dir, sw_err *err)
{
    char path[SW_PATH_BYTES];

    if (find_tiktoken(path, dir))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: " TIKTOKEN_TEXT, path);
    return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: no tokenizer.json, vocab.json with merges.txt, "
                   "tokenizer.model or tekken.json", dir);
}

sw_code sw_tokenizer_files_make(char **json, size_t *n_bytes, const char *dir, sw_err *err)
{
    char path[SW_PATH_BYTES], inside[SW_PATH_BYTES];
    const size_t kind = find_kind(path, dir);
    sw_token_config config = {0};
    sw_code rc;

    if (kind == N_KINDS) return nothing_to_read(dir, err);
    if ((rc = sw_path_join_inside(inside, dir, kinds[kind].name, err)) != SW_OK ||
        (rc = sw_token_config_read(&config, dir, err)) != SW_OK)
        return rc;
    rc = kinds[kind].make(json, n_bytes, dir, path, &config, err);
    sw_token_config_free(&config);
    return rc;
}
