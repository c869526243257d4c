/* corpus.c - see corpus.h. */
#include "formats/text/corpus.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "formats/file/safetensors.h"
#include "formats/io/file.h"

/* The digest is defined over little-endian bytes, and computed over the list as it is in memory. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "token ids are hashed in place");

/* Tensors of these types may hold ids. */
typedef struct id_type {
    sw_dtype dtype;
    size_t elem_bytes;
    bool is_signed;
} id_type;

static const id_type id_types[] = {
    {SW_DTYPE_I64, 8, true}, {SW_DTYPE_U64, 8, false}, {SW_DTYPE_I32, 4, true},
    {SW_DTYPE_U32, 4, false}, {SW_DTYPE_I16, 2, true}, {SW_DTYPE_U16, 2, false},
};

static const id_type *find_type(sw_dtype dtype)
{
    for (size_t i = 0; i < sizeof id_types / sizeof id_types[0]; i++)
        if (id_types[i].dtype == dtype) return &id_types[i];
    return NULL;
}

static uint64_t load_bits(const unsigned char *p, size_t elem_bytes)
{
    if (elem_bytes == 2) return sw_load_le16(p);
    return elem_bytes == 4 ? sw_load_le32(p) : sw_load_le64(p);
}

/* Append n ids of a raw array. An id that is negative has its sign bit set, and is refused for
 * it. */
static sw_code add_array(sw_corpus *corpus, const unsigned char *bytes, int64_t n,
                         const id_type *type, int64_t vocab_size, sw_err *err)
{
    uint64_t sign_bit = type->is_signed ? (uint64_t)1 << (8 * type->elem_bytes - 1) : 0;
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        uint64_t id = load_bits(bytes + (size_t)i * type->elem_bytes, type->elem_bytes);
        if (id & sign_bit)
            return SW_FAIL(err, SW_E_FORMAT, "negative token id at position %lld", (long long)i);
        if (id >= (uint64_t)vocab_size)
            return SW_FAIL(err, SW_E_FORMAT,
                           "token id %llu at position %lld, but the model's vocabulary has %lld",
                           (unsigned long long)id, (long long)i, (long long)vocab_size);
        rc = sw_ids_push(&corpus->ids, (uint32_t)id, err);
    }
    return rc;
}

/* Choose "input_ids", or else the only tensor that has an integer type. */
static sw_code pick_tensor(const sw_st_tensor **out, const sw_st *st, sw_err *err)
{
    const sw_st_tensor *found = sw_st_find(st, "input_ids");
    int64_t n_found = 0;

    for (int64_t i = 0; !found && i < sw_st_count(st); i++)
        if (find_type(sw_st_at(st, i)->view.dtype)) n_found++;
    for (int64_t i = 0; n_found == 1 && i < sw_st_count(st); i++)
        if (find_type(sw_st_at(st, i)->view.dtype)) found = sw_st_at(st, i);
    if (!found)
        return SW_FAIL(err, SW_E_FORMAT, "no tensor \"input_ids\", and %lld integer tensors to "
                       "choose from", (long long)n_found);
    if (!find_type(found->view.dtype))
        return SW_FAIL(err, SW_E_FORMAT, "tensor \"%.60s\" is %s, token ids are integers",
                       found->name, sw_dtype_name(found->view.dtype));
    *out = found;
    return SW_OK;
}

static sw_code add_safetensors(sw_corpus *corpus, int64_t vocab_size, const char *path,
                               sw_err *err)
{
    const sw_st_tensor *tensor = NULL;
    sw_st *st = NULL;
    sw_code rc;

    if ((rc = sw_st_open(&st, path, err)) != SW_OK) return rc;
    if ((rc = pick_tensor(&tensor, st, err)) == SW_OK)
        rc = add_array(corpus, tensor->view.data, sw_view_elems(&tensor->view),
                       find_type(tensor->view.dtype), vocab_size, err);
    if (rc != SW_OK) sw_err_prefix(err, "%s", path);
    sw_st_close(st);
    return rc;
}

static sw_code add_raw(sw_corpus *corpus, const sw_map *map, sw_dtype dtype, int64_t vocab_size,
                       sw_err *err)
{
    const id_type *type = find_type(dtype);

    if (map->size_bytes % type->elem_bytes)
        return SW_FAIL(err, SW_E_FORMAT, "%zu bytes are no whole number of %zu-byte token ids",
                       map->size_bytes, type->elem_bytes);
    return add_array(corpus, map->data, (int64_t)(map->size_bytes / type->elem_bytes), type,
                     vocab_size, err);
}

static void count_unspelled(sw_corpus *corpus, const sw_unspelled *more, const char *path)
{
    if (more->n && !corpus->unspelled.n)
        (void)snprintf(corpus->unspelled_in, sizeof corpus->unspelled_in, "%s", path);
    sw_unspelled_join(&corpus->unspelled, more);
}

void sw_corpus_note(const sw_corpus *corpus, const sw_progress *progress)
{
    char text[SW_UNSPELLED_NOTE_BYTES];

    sw_unspelled_note(text, &corpus->unspelled);
    if (text[0]) sw_progress_note(progress, "%s: %s", corpus->unspelled_in, text);
}

bool sw_corpus_add_note(cJSON *object, const sw_corpus *corpus)
{
    const char *slash = strrchr(corpus->unspelled_in, '/');

    if (corpus->template_sha256[0] &&
        !cJSON_AddStringToObject(object, "chat_template_sha256", corpus->template_sha256))
        return false;
    return !corpus->unspelled.n ||
           sw_unspelled_json(object, &corpus->unspelled,
                             slash && slash[1] ? slash + 1 : corpus->unspelled_in);
}

/* Encode a text and append its ids. */
static sw_code encode(sw_corpus *corpus, sw_tokenizer *tok, const char *text, size_t n_bytes,
                      int64_t vocab_size, const char *path, sw_err *err)
{
    int64_t n_before = corpus->ids.n;
    sw_code rc = sw_tokenizer_encode(tok, &corpus->ids, text, n_bytes, false, err);

    for (int64_t i = n_before; i < corpus->ids.n && rc == SW_OK; i++)
        if (corpus->ids.ids[i] >= vocab_size)
            rc = SW_FAIL(err, SW_E_FORMAT,
                         "the tokenizer gives id %u at position %lld, but the model's vocabulary "
                         "has %lld: tokenizer and model do not belong together",
                         corpus->ids.ids[i], (long long)(i - n_before), (long long)vocab_size);
    if (rc == SW_OK) count_unspelled(corpus, sw_tokenizer_unspelled(tok), path);
    return rc;
}

/* Encode every line of a chat file that is not blank. */
static sw_code add_lines(sw_corpus *corpus, sw_tokenizer *tok, const sw_map *map,
                         int64_t vocab_size, const char *path, sw_err *err)
{
    const char *at = (const char *)map->data, *end = at + map->size_bytes;
    sw_code rc = SW_OK;

    for (long long line = 1; at < end && rc == SW_OK; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t n_line = (size_t)((stop ? stop : end) - at), n = 0;
        char *text = NULL;
        if (n_line && at[n_line - 1] == '\r') n_line--;
        if (n_line) rc = sw_chat_format_line(&text, &n, corpus->chat, at, n_line, err);
        if (rc == SW_OK && n) rc = encode(corpus, tok, text, n, vocab_size, path, err);
        if (rc != SW_OK) sw_err_prefix(err, "line %lld", line);
        sw_mem_put(text);
        at = stop ? stop + 1 : end;
    }
    if (rc == SW_OK && corpus->chat)
        (void)snprintf(corpus->template_sha256, sizeof corpus->template_sha256, "%s",
                       sw_chat_format_sha256(corpus->chat));
    return rc;
}

static sw_code add_text(sw_corpus *corpus, sw_tokenizer *tok, const sw_map *map,
                        int64_t vocab_size, const char *path, bool is_lines, sw_err *err)
{
    if (!tok)
        return SW_FAIL(err, SW_E_USAGE, "text needs a tokenizer.json beside the model; give token "
                       "files (.safetensors, .u16, .u32) instead");
    return is_lines ? add_lines(corpus, tok, map, vocab_size, path, err)
                    : encode(corpus, tok, (const char *)map->data, map->size_bytes, vocab_size,
                             path, err);
}

static bool ends_with(const char *path, const char *ending)
{
    size_t n_path = strlen(path), n_ending = strlen(ending);

    return n_path >= n_ending && !strcmp(path + n_path - n_ending, ending);
}

static sw_code add_mapped(sw_corpus *corpus, sw_tokenizer *tok, int64_t vocab_size,
                          const char *path, sw_err *err)
{
    sw_map map = {0};
    sw_code rc;

    if ((rc = sw_map_open(&map, path, err)) != SW_OK) return rc;
    if (ends_with(path, ".u16")) rc = add_raw(corpus, &map, SW_DTYPE_U16, vocab_size, err);
    else if (ends_with(path, ".u32")) rc = add_raw(corpus, &map, SW_DTYPE_U32, vocab_size, err);
    else rc = add_text(corpus, tok, &map, vocab_size, path, ends_with(path, ".jsonl"), err);
    if (rc != SW_OK) sw_err_prefix(err, "%s", path);
    sw_map_close(&map);
    return rc;
}

sw_code sw_corpus_add(sw_corpus *corpus, sw_tokenizer *tok, int64_t vocab_size, const char *path,
                      sw_err *err)
{
    int64_t n_before = corpus->ids.n;
    sw_code rc = ends_with(path, ".safetensors")
                     ? add_safetensors(corpus, vocab_size, path, err)
                     : add_mapped(corpus, tok, vocab_size, path, err);

    if (rc != SW_OK) corpus->ids.n = n_before;
    return rc;
}

bool sw_corpus_needs_tokenizer(const char *const *paths, int64_t n_paths)
{
    for (int64_t i = 0; i < n_paths; i++)
        if (!ends_with(paths[i], ".safetensors") && !ends_with(paths[i], ".u16") &&
            !ends_with(paths[i], ".u32"))
            return true;
    return false;
}

bool sw_corpus_needs_chat(const char *const *paths, int64_t n_paths)
{
    for (int64_t i = 0; i < n_paths; i++)
        if (ends_with(paths[i], ".jsonl")) return true;
    return false;
}

sw_code sw_corpus_finish(sw_corpus *corpus, sw_err *err)
{
    return sw_sha256_hex(corpus->sha256, corpus->ids.n ? (const void *)corpus->ids.ids : "",
                         (size_t)corpus->ids.n * sizeof *corpus->ids.ids, err);
}

void sw_corpus_free(sw_corpus *corpus)
{
    sw_ids_free(&corpus->ids);
    memset(corpus, 0, sizeof *corpus);
}
