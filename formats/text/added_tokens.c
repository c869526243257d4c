/* added_tokens.c - tokens that are cut out of the text before anything else looks at it. */
#include <stdlib.h>
#include <string.h>

#include "formats/base/json.h"
#include "formats/text/tokenizer_parts.h"

/* This bounds what one position of a text can cost; real tokens are shorter than a hundred
 * bytes. */
#define ADDED_MAX_BYTES ((size_t)512)

static sw_code parse_token(sw_added_token *token, const cJSON *json, sw_arena *arena, sw_err *err)
{
    const struct {
        const char *key;
        bool *flag;
    } flags[] = {
        {"single_word", &token->single_word}, {"lstrip", &token->lstrip},
        {"rstrip", &token->rstrip},           {"normalized", &token->normalized},
        {"special", &token->special},
    };
    const char *content = NULL;
    char *copy = NULL;
    sw_code rc;

    if (!cJSON_IsObject(json)) return SW_FAIL(err, SW_E_FORMAT, "not an object");
    if ((rc = sw_json_text(&content, json, "content", err)) != SW_OK) return rc;
    if (!content) return SW_FAIL(err, SW_E_FORMAT, "no \"content\"");
    if (!sw_json_member(json, "id")) return SW_FAIL(err, SW_E_FORMAT, "no \"id\"");
    rc = sw_json_int(&token->file_id, json, "id", 0, SW_TOKEN_ID_LIMIT - 1, err);
    if (rc != SW_OK) return rc;
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if ((rc = sw_json_bool(flags[i].flag, json, flags[i].key, err)) != SW_OK) return rc;
    token->content_bytes = strlen(content);
    if (token->content_bytes > ADDED_MAX_BYTES)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "content of %zu bytes, at most %zu are supported",
                       token->content_bytes, ADDED_MAX_BYTES);
    rc = sw_arena_text(&copy, arena, content, token->content_bytes, err);
    token->content = copy;
    return rc;
}

sw_code sw_added_parse(sw_added_tokens *out, const cJSON *json, sw_arena *arena, sw_err *err)
{
    const cJSON *entry;
    int64_t n = 0;
    sw_code rc;

    if (!json) return SW_OK;
    if (!cJSON_IsArray(json)) return SW_FAIL(err, SW_E_FORMAT, "added_tokens: not an array");
    cJSON_ArrayForEach(entry, json) n++;
    if ((rc = SW_ARENA_TAKE(&out->tokens, arena, n, err)) != SW_OK) return rc;
    cJSON_ArrayForEach(entry, json)
    {
        if ((rc = parse_token(&out->tokens[out->n], entry, arena, err)) != SW_OK) {
            sw_err_prefix(err, "added_tokens[%lld]", (long long)out->n);
            return rc;
        }
        if (out->tokens[out->n].content_bytes) out->n++; /* an empty token matches nowhere */
    }
    return SW_OK;
}

static int compare_bytes(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    int order = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);

    if (order) return order;
    return a_bytes < b_bytes ? -1 : a_bytes > b_bytes;
}

static int compare_matched(const void *a, const void *b)
{
    const sw_added_token *x = *(const sw_added_token *const *)a;
    const sw_added_token *y = *(const sw_added_token *const *)b;
    int order = compare_bytes(x->matched, x->matched_bytes, y->matched, y->matched_bytes);

    if (order) return order;
    return x < y ? -1 : x > y; /* of one text, the first that the file lists */
}

/* Of tokens with one text only the first can match. The others are removed, since a file with a
 * million of them would slow every search. */
static void drop_doubles(sw_token_matcher *m)
{
    int64_t n = 0;

    for (int64_t i = 0; i < m->n; i++)
        if (!n || compare_bytes(m->sorted[n - 1]->matched, m->sorted[n - 1]->matched_bytes,
                                m->sorted[i]->matched, m->sorted[i]->matched_bytes) != 0)
            m->sorted[n++] = m->sorted[i];
    m->n = n;
}

static sw_code build_matcher(sw_token_matcher *out, const sw_added_tokens *added, bool normalized,
                             sw_arena *arena, sw_err *err)
{
    sw_code rc = SW_ARENA_TAKE(&out->sorted, arena, added->n, err);

    if (rc != SW_OK) return rc;
    for (int64_t i = 0; i < added->n; i++) {
        const sw_added_token *token = &added->tokens[i];
        if (token->normalized != normalized || !token->matched_bytes) continue;
        out->sorted[out->n++] = token;
        out->starts[(unsigned char)token->matched[0]] = true;
    }
    if (out->n) qsort(out->sorted, (size_t)out->n, sizeof *out->sorted, compare_matched);
    drop_doubles(out);
    return SW_OK;
}

sw_code sw_added_resolve(sw_added_tokens *added, const sw_vocab *vocab,
                         sw_normalizer *normalizer, sw_arena *arena, sw_err *err)
{
    sw_code rc;

    for (int64_t i = 0; i < added->n; i++) {
        sw_added_token *token = &added->tokens[i];
        const char *text = token->content;
        size_t n_bytes = token->content_bytes;
        char *copy = NULL;
        token->id = sw_vocab_find(vocab, text, n_bytes);
        if (token->normalized) {
            sw_growth growth;
            sw_growth_start(&growth, n_bytes);
            sw_normalizer_start(normalizer, &growth);
            if ((rc = sw_normalizer_run(normalizer, &text, &n_bytes, err)) != SW_OK) {
                sw_err_prefix(err, "added_tokens[%lld]", (long long)i);
                return rc;
            }
            if (n_bytes > 4 * ADDED_MAX_BYTES)
                return SW_FAIL(err, SW_E_UNSUPPORTED, "added token \"%.60s\" normalizes to %zu "
                               "bytes", token->content, n_bytes);
        }
        if ((rc = sw_arena_text(&copy, arena, text, n_bytes, err)) != SW_OK) return rc;
        token->matched = copy;
        token->matched_bytes = n_bytes;
    }
    normalizer->growth = NULL; /* it counted for the last token */
    if ((rc = build_matcher(&added->raw, added, false, arena, err)) != SW_OK) return rc;
    return build_matcher(&added->normal, added, true, arena, err);
}

void sw_added_free(sw_added_tokens *added) { memset(added, 0, sizeof *added); }

/* Find the first entry of [low, high) whose byte at `depth` is at least `byte`; all entries are
 * longer than `depth`. */
static int64_t lower_bound(const sw_token_matcher *m, int64_t low, int64_t high, size_t depth,
                           unsigned byte)
{
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if ((unsigned char)m->sorted[middle]->matched[depth] < byte) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Find the longest token that the text has at `at`. In sorted order a shorter token precedes those
 * that begin with it, so that each byte narrows the range. */
static const sw_added_token *longest_at(const sw_token_matcher *m, const char *text, size_t at,
                                        size_t n_bytes, size_t *depth_out)
{
    const sw_added_token *best = NULL;
    int64_t low = 0, high = m->n;
    size_t depth = 0;

    for (; low < high && at + depth < n_bytes; depth++) {
        unsigned byte = (unsigned char)text[at + depth];
        while (low < high && m->sorted[low]->matched_bytes == depth) low++;
        low = lower_bound(m, low, high, depth, byte);
        high = lower_bound(m, low, high, depth, byte + 1);
        if (low < high && m->sorted[low]->matched_bytes == depth + 1) best = m->sorted[low];
    }
    *depth_out = depth;
    return best;
}

static bool touches_word(const char *text, size_t begin, size_t end, size_t n_bytes)
{
    uint32_t c;

    if (begin) {
        (void)sw_utf8_next(&c, text, sw_utf8_back(text, begin));
        if (sw_char_is_word(c)) return true;
    }
    if (end == n_bytes) return false;
    (void)sw_utf8_next(&c, text, end);
    return sw_char_is_word(c);
}

static size_t blanks_before(const char *text, size_t begin, size_t stop)
{
    while (begin > stop) {
        uint32_t c;
        size_t at = sw_utf8_back(text, begin);
        (void)sw_utf8_next(&c, text, at);
        if (!sw_char_is_space(c)) break;
        begin = at;
    }
    return begin > stop ? begin : stop;
}

static size_t blanks_after(const char *text, size_t end, size_t n_bytes)
{
    while (end < n_bytes) {
        uint32_t c;
        size_t next = sw_utf8_next(&c, text, end);
        if (!sw_char_is_space(c)) break;
        end = next;
    }
    return end;
}

sw_code sw_added_cut(const sw_token_matcher *m, const char *text, size_t n_bytes, bool is_start,
                     sw_growth *growth, sw_cut_fn fn, void *self, sw_err *err)
{
    size_t done = 0;
    sw_code rc;

    for (size_t at = 0; m->n && at < n_bytes;) {
        size_t begin = at, end, depth = 0;
        const sw_added_token *token = m->starts[(unsigned char)text[at]]
                                          ? longest_at(m, text, at, n_bytes, &depth)
                                          : NULL;
        if ((rc = sw_growth_search(growth, depth, err)) != SW_OK) {
            sw_err_prefix(err, "added_tokens");
            return rc;
        }
        if (!token) {
            at++;
            continue;
        }
        end = at += token->matched_bytes;
        if (token->single_word && touches_word(text, begin, end, n_bytes)) continue;
        if (token->lstrip) begin = blanks_before(text, begin, done);
        if (token->rstrip) /* blanks up to `done` were looked at before */
            end = blanks_after(text, end > done ? end : done, n_bytes);
        if (done < begin) {
            rc = fn(self, NULL, text + done, begin - done, is_start && !done, err);
            if (rc != SW_OK) return rc;
        }
        if ((rc = fn(self, token, text + begin, end - begin, false, err)) != SW_OK) return rc;
        done = end > done ? end : done;
    }
    if (done == n_bytes) return SW_OK;
    return fn(self, NULL, text + done, n_bytes - done, is_start && !done, err);
}
