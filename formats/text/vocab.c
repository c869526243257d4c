/* vocab.c - see vocab.h. */
#include "formats/text/vocab.h"

#include <string.h>

#include "formats/base/json.h"
#include "formats/base/size.h"

#define PROBES_MAX 2048 /* ordinary text needs far fewer in a table that is half full */
#define MIN_SLOTS ((size_t)256)

/* Mix eight bytes with two multiplications; the xor of both halves keeps the high bits of a
 * product. */
static uint64_t mix(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

uint64_t sw_text_hash(const char *text, size_t n_bytes)
{
    uint64_t hash = 0x9E3779B97F4A7C15u ^ n_bytes;

    for (; n_bytes >= 8; text += 8, n_bytes -= 8) {
        uint64_t word;
        memcpy(&word, text, 8);
        hash = mix(hash ^ word, 0xD6E8FEB86659FD93u);
    }
    if (n_bytes) {
        uint64_t word = 0;
        memcpy(&word, text, n_bytes);
        hash = mix(hash ^ word, 0xA0761D6478BD642Fu);
    }
    return mix(hash, 0xE7037ED1A0B428DBu);
}

static size_t slots_for(int64_t n)
{
    size_t size = MIN_SLOTS;

    while (size < 2 * (size_t)n) size *= 2;
    return size;
}

uint32_t sw_vocab_find(const sw_vocab *vocab, const char *text, size_t n_bytes)
{
    uint64_t hash = sw_text_hash(text, n_bytes);

    if (!vocab->slots) return SW_NO_TOKEN;
    for (size_t probe = 0, at = hash & vocab->slot_mask; probe < PROBES_MAX;
         probe++, at = (at + 1) & vocab->slot_mask) {
        uint64_t slot = vocab->slots[at];
        uint32_t id = (uint32_t)slot - 1;
        if (!slot) break;
        if (slot >> 32 == hash >> 32 && vocab->by_id[id].n_bytes == n_bytes &&
            !memcmp(vocab->by_id[id].text, text, n_bytes))
            return id;
    }
    return SW_NO_TOKEN;
}

uint32_t sw_vocab_find_model(const sw_vocab *vocab, const char *text, size_t n_bytes)
{
    uint32_t id = sw_vocab_find(vocab, text, n_bytes);

    return id != SW_NO_TOKEN && vocab->by_id[id].is_extra ? SW_NO_TOKEN : id;
}

const sw_merge *sw_vocab_merge(const sw_vocab *vocab, uint32_t left, uint32_t right)
{
    uint64_t pair = (uint64_t)left << 32 | right;

    for (size_t probe = 0, at = mix(pair, 0x9E3779B97F4A7C15u) & vocab->merge_mask;
         probe < PROBES_MAX; probe++, at = (at + 1) & vocab->merge_mask) {
        const sw_merge *merge = &vocab->merges[at];
        if (!merge->rank_plus_one) break;
        if (merge->pair == pair) return merge;
    }
    return NULL;
}

static sw_code add_token(sw_vocab *vocab, const char *text, int64_t id, bool is_extra,
                         sw_err *err)
{
    size_t n_bytes = strlen(text);
    uint64_t hash = sw_text_hash(text, n_bytes);
    sw_token_text *token = &vocab->by_id[id];
    char *copy = NULL;
    sw_code rc;

    if (is_extra && sw_vocab_find(vocab, text, n_bytes) != SW_NO_TOKEN) return SW_OK;
    if (!is_extra && sw_vocab_find(vocab, text, n_bytes) != SW_NO_TOKEN)
        return SW_FAIL(err, SW_E_FORMAT, "model.vocab has \"%.60s\" twice", text);
    if (token->text)
        return SW_FAIL(err, SW_E_FORMAT, "tokens \"%.60s\" and \"%.60s\" share the id %lld",
                       token->text, text, (long long)id);
    if (n_bytes > UINT32_MAX / 2)
        return SW_FAIL(err, SW_E_FORMAT, "token %lld of %zu bytes", (long long)id, n_bytes);
    if ((rc = sw_arena_text(&copy, &vocab->arena, text, n_bytes, err)) != SW_OK) return rc;
    *token = (sw_token_text){copy, (uint32_t)n_bytes, is_extra};
    for (size_t probe = 0, at = hash & vocab->slot_mask; probe < PROBES_MAX;
         probe++, at = (at + 1) & vocab->slot_mask) {
        if (vocab->slots[at]) continue;
        vocab->slots[at] = (hash >> 32 << 32) | (uint64_t)(id + 1);
        return SW_OK;
    }
    return SW_FAIL(err, SW_E_FORMAT, "vocabulary made to collide in a hash table");
}

/* Return the text of an entry of {text: id}, or of [[text, score], ...], whose ids are their
 * places. */
static const char *text_of(const cJSON *entry, bool is_list)
{
    return is_list ? entry->child->valuestring : entry->string;
}

static sw_code id_of(int64_t *id, const cJSON *entry, bool is_list, int64_t place, sw_err *err)
{
    const cJSON *text = entry->child, *score = text ? text->next : NULL;
    sw_code rc;

    *id = place;
    if (!is_list) {
        rc = sw_json_as_int(id, entry, 0, SW_TOKEN_ID_LIMIT - 1, "token id", err);
        if (rc != SW_OK) sw_err_prefix(err, "model.vocab \"%.60s\"", entry->string);
        return rc;
    }
    if (cJSON_IsArray(entry) && cJSON_IsString(text) && cJSON_IsNumber(score) && !score->next &&
        place < SW_TOKEN_ID_LIMIT)
        return SW_OK;
    return SW_FAIL(err, SW_E_FORMAT, "model.vocab[%lld]: not [text, score], or one too many",
                   (long long)place);
}

/* Find the largest id of both lists, and check each id. */
static sw_code scan_ids(int64_t *n_ids, int64_t *n_tokens, const cJSON *vocab,
                        const sw_extra_token *extra, int64_t n_extra, sw_err *err)
{
    const cJSON *entry;
    int64_t id = 0, largest = -1, place = 0;
    sw_code rc;

    *n_tokens = n_extra;
    cJSON_ArrayForEach(entry, vocab)
    {
        if ((rc = id_of(&id, entry, cJSON_IsArray(vocab), place++, err)) != SW_OK) return rc;
        if (id > largest) largest = id;
        ++*n_tokens;
    }
    for (int64_t i = 0; i < n_extra; i++)
        if (extra[i].id > largest) largest = extra[i].id;
    *n_ids = largest + 1;
    return SW_OK;
}

static sw_code build_tokens(sw_vocab *vocab, const cJSON *json, const sw_extra_token *extra,
                            int64_t n_extra, sw_err *err)
{
    int64_t n_tokens = 0, place = 0;
    const bool is_list = cJSON_IsArray(json);
    const cJSON *entry;
    size_t n_slots;
    sw_code rc;

    if ((rc = scan_ids(&vocab->n_ids, &n_tokens, json, extra, n_extra, err)) != SW_OK) return rc;
    n_slots = slots_for(n_tokens);
    if ((rc = SW_MEM_GET(&vocab->by_id, vocab->n_ids, "tokens", err)) != SW_OK) return rc;
    if ((rc = SW_MEM_GET(&vocab->slots, n_slots, "tokens", err)) != SW_OK) return rc;
    vocab->slot_mask = n_slots - 1;
    cJSON_ArrayForEach(entry, json)
    {
        const int64_t id = is_list ? place++ : (int64_t)entry->valuedouble;
        if ((rc = add_token(vocab, text_of(entry, is_list), id, false, err)) != SW_OK) return rc;
    }
    for (int64_t i = 0; i < n_extra; i++)
        if ((rc = add_token(vocab, extra[i].text, extra[i].id, true, err)) != SW_OK) return rc;
    /* an added token that keeps its id of the vocabulary may have claimed a larger one before */
    while (vocab->n_ids && !vocab->by_id[vocab->n_ids - 1].text) vocab->n_ids--;
    return SW_OK;
}

/* Cut a merge into its two texts: "a b" at its only blank, or ["a", "b"]. */
static sw_code split_merge(sw_token_text part[2], const cJSON *entry, sw_err *err)
{
    const cJSON *left, *right;

    if (cJSON_IsString(entry)) {
        const char *text = entry->valuestring, *blank = strchr(text, ' ');
        if (blank && blank > text && blank[1] && !strchr(blank + 1, ' ')) {
            part[0] = (sw_token_text){text, (uint32_t)(blank - text), 0};
            part[1] = (sw_token_text){blank + 1, (uint32_t)strlen(blank + 1), 0};
            return SW_OK;
        }
        return SW_FAIL(err, SW_E_FORMAT, "\"%.60s\" is not two tokens with one blank between",
                       text);
    }
    left = cJSON_IsArray(entry) ? entry->child : NULL;
    right = left ? left->next : NULL;
    if (!right || right->next || !cJSON_IsString(left) || !cJSON_IsString(right))
        return SW_FAIL(err, SW_E_FORMAT, "neither a string nor two strings");
    part[0] = (sw_token_text){left->valuestring, (uint32_t)strlen(left->valuestring), 0};
    part[1] = (sw_token_text){right->valuestring, (uint32_t)strlen(right->valuestring), 0};
    return SW_OK;
}

static sw_code find_part(uint32_t *id, const sw_vocab *vocab, const char *text, size_t n_bytes,
                         sw_err *err)
{
    *id = sw_vocab_find_model(vocab, text, n_bytes);
    if (*id != SW_NO_TOKEN) return SW_OK;
    return SW_FAIL(err, SW_E_FORMAT, "\"%.*s\" is not in the vocabulary",
                   (int)(n_bytes < 60 ? n_bytes : 60), text);
}

/* A pair that is listed twice has its last rank, as in Hugging Face's tokenizers. */
static sw_code put_merge(sw_vocab *vocab, uint64_t pair, uint32_t rank, uint32_t merged,
                         sw_err *err)
{
    size_t at = mix(pair, 0x9E3779B97F4A7C15u) & vocab->merge_mask;

    for (size_t probe = 0; probe < PROBES_MAX; probe++, at = (at + 1) & vocab->merge_mask) {
        sw_merge *merge = &vocab->merges[at];
        if (merge->rank_plus_one && merge->pair != pair) continue;
        *merge = (sw_merge){pair, rank + 1, merged};
        return SW_OK;
    }
    return SW_FAIL(err, SW_E_FORMAT, "merges made to collide in a hash table");
}

static sw_code add_merge(sw_vocab *vocab, const cJSON *entry, uint32_t rank, size_t prefix_bytes,
                         sw_err *err)
{
    sw_token_text part[2] = {{0}, {0}};
    sw_arena_mark mark = sw_arena_save(&vocab->arena);
    uint32_t left = 0, right = 0, merged = 0;
    char *joined = NULL;
    size_t n_right;
    sw_code rc;

    if ((rc = split_merge(part, entry, err)) != SW_OK) return rc;
    if ((rc = find_part(&left, vocab, part[0].text, part[0].n_bytes, err)) != SW_OK) return rc;
    if ((rc = find_part(&right, vocab, part[1].text, part[1].n_bytes, err)) != SW_OK) return rc;
    if (part[1].n_bytes < prefix_bytes)
        return SW_FAIL(err, SW_E_FORMAT, "right side is shorter than continuing_subword_prefix");
    n_right = part[1].n_bytes - prefix_bytes;
    rc = SW_ARENA_TAKE(&joined, &vocab->arena, (int64_t)part[0].n_bytes + (int64_t)n_right + 1,
                       err);
    if (rc != SW_OK) return rc;
    memcpy(joined, part[0].text, part[0].n_bytes);
    memcpy(joined + part[0].n_bytes, part[1].text + prefix_bytes, n_right);
    rc = find_part(&merged, vocab, joined, part[0].n_bytes + n_right, err);
    sw_arena_reset(&vocab->arena, mark);
    if (rc != SW_OK) return rc;
    return put_merge(vocab, (uint64_t)left << 32 | right, rank, merged, err);
}

static sw_code build_merges(sw_vocab *vocab, const cJSON *json, const char *prefix, sw_err *err)
{
    const cJSON *entry;
    int64_t n = 0;
    uint32_t rank = 0;
    size_t n_slots;
    sw_code rc;

    cJSON_ArrayForEach(entry, json) n++;
    n_slots = slots_for(n);
    if ((rc = SW_MEM_GET(&vocab->merges, n_slots, "merges", err)) != SW_OK) return rc;
    vocab->merge_mask = n_slots - 1;
    cJSON_ArrayForEach(entry, json)
    {
        if ((rc = add_merge(vocab, entry, rank, strlen(prefix), err)) != SW_OK) {
            sw_err_prefix(err, "model.merges[%u]", rank);
            return rc;
        }
        rank++;
    }
    return SW_OK;
}

sw_code sw_vocab_build_pieces(sw_vocab *out, const cJSON *pieces, const sw_extra_token *extra,
                              int64_t n_extra, sw_err *err)
{
    sw_vocab built = {0};
    sw_code rc;

    if (!cJSON_IsArray(pieces)) return SW_FAIL(err, SW_E_FORMAT, "model.vocab: not an array");
    if ((rc = build_tokens(&built, pieces, extra, n_extra, err)) != SW_OK) {
        sw_vocab_free(&built);
        return rc;
    }
    *out = built;
    return SW_OK;
}

sw_code sw_vocab_build(sw_vocab *out, const cJSON *vocab, const cJSON *merges, const char *prefix,
                       const sw_extra_token *extra, int64_t n_extra, sw_err *err)
{
    sw_vocab built = {0};
    sw_code rc;

    if (!cJSON_IsObject(vocab)) return SW_FAIL(err, SW_E_FORMAT, "model.vocab: not an object");
    if (!cJSON_IsArray(merges)) return SW_FAIL(err, SW_E_FORMAT, "model.merges: not an array");
    rc = build_tokens(&built, vocab, extra, n_extra, err);
    if (rc == SW_OK) rc = build_merges(&built, merges, prefix, err);
    if (rc != SW_OK) {
        sw_vocab_free(&built);
        return rc;
    }
    *out = built;
    return SW_OK;
}

void sw_vocab_free(sw_vocab *vocab)
{
    sw_mem_put(vocab->by_id);
    sw_mem_put(vocab->slots);
    sw_mem_put(vocab->merges);
    sw_arena_free(&vocab->arena);
    memset(vocab, 0, sizeof *vocab);
}
