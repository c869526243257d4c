/* loaders_tokenizer.c - loader rules about tokenizer.json, see loaders.def. From how Hugging Face's
 * tokenizers read added_tokens: one that the model's vocabulary has keeps the id that it has there;
 * the others are numbered on from the number of the vocabulary's entries, in the order of the list.
 * The id that the list states is read by none of them.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/io/file.h"
#include "formats/io/file_content.h"
#include "verify/loaders/loaders_parts.h"

static const sw_json_caps tokenizer_caps = {
    .max_bytes = (size_t)128 << 20, .max_depth = 32, .max_values = 8000000};

typedef struct added {
    const char *text;
    double stated;
    int64_t place; /* in the list */
    bool is_known; /* to the vocabulary, or the same text came before */
} added;

static int compare_texts(const void *a, const void *b)
{
    const added *x = a, *y = b;
    const int order = strcmp(x->text, y->text);

    return order ? order : x->place < y->place ? -1 : x->place > y->place;
}

static int compare_places(const void *a, const void *b)
{
    const added *x = a, *y = b;

    return x->place < y->place ? -1 : x->place > y->place;
}

/* The first entry with this text: entries of one text lie together, in the order of the list. */
static added *find(added *sorted, int64_t n, const char *text)
{
    int64_t low = 0, high = n;

    while (low < high) {
        const int64_t middle = low + (high - low) / 2;

        if (strcmp(sorted[middle].text, text) < 0) low = middle + 1;
        else high = middle;
    }
    return low < n && !strcmp(sorted[low].text, text) ? &sorted[low] : NULL;
}

static int64_t collect(added *list, const cJSON *tokens)
{
    const cJSON *item;
    int64_t n = 0;

    cJSON_ArrayForEach(item, tokens)
    {
        const cJSON *text = sw_json_member(item, "content"), *id = sw_json_member(item, "id");

        if (!cJSON_IsString(text) || !text->valuestring[0] || !cJSON_IsNumber(id)) continue;
        list[n] = (added){.text = text->valuestring, .stated = id->valuedouble, .place = n};
        n++;
    }
    return n;
}

/* The number of the vocabulary's entries: {"text": id} or [["text", score]]. */
static int64_t mark_known(added *sorted, int64_t n, const cJSON *vocab)
{
    const cJSON *item;
    int64_t n_vocab = 0;

    cJSON_ArrayForEach(item, vocab)
    {
        const cJSON *first = cJSON_IsArray(item) ? item->child : NULL;
        const char *text = item->string ? item->string
                           : cJSON_IsString(first) ? first->valuestring : NULL;
        added *hit = text ? find(sorted, n, text) : NULL;

        if (hit) hit->is_known = true;
        n_vocab++;
    }
    for (int64_t i = 1; i < n; i++)
        if (!strcmp(sorted[i - 1].text, sorted[i].text)) sorted[i].is_known = true;
    return n_vocab;
}

static sw_code check_ids(sw_load_ctx *ctx, const cJSON *tokenizer)
{
    const cJSON *tokens = sw_json_member(tokenizer, "added_tokens"), *item;
    const cJSON *vocab = sw_json_member(sw_json_member(tokenizer, "model"), "vocab");
    added *list = NULL;
    int64_t n = 0, next;
    sw_code rc;

    cJSON_ArrayForEach(item, tokens) n++;
    if (!n || (rc = SW_ARENA_TAKE(&list, ctx->arena, n, ctx->err)) != SW_OK)
        return n ? rc : SW_OK;
    n = collect(list, tokens);
    if (n) qsort(list, (size_t)n, sizeof *list, compare_texts);
    next = mark_known(list, n, vocab);
    if (n) qsort(list, (size_t)n, sizeof *list, compare_places);
    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        if (list[i].is_known) continue;
        if (list[i].stated < (double)next || list[i].stated > (double)next)
            rc = sw_load_found(ctx, list[i].text, "tokenizer.json states id %.0f, and it is read "
                               "as %lld", list[i].stated, (long long)next);
        next++;
    }
    return rc;
}

sw_code sw_load_added_ids(sw_load_ctx *ctx)
{
    char path[SW_PATH_BYTES];
    cJSON *tokenizer = NULL;
    sw_err why = {0};
    sw_code rc;

    if (ctx->gguf || sw_path_join(path, ctx->ckpt->dir, "tokenizer.json", NULL) != SW_OK ||
        !sw_path_exists(path))
        return SW_OK;
    rc = sw_json_read(&tokenizer, path, &tokenizer_caps, &why);
    if (rc == SW_E_NOMEM || rc == SW_E_IO) return SW_FAIL(ctx->err, rc, "%s", why.text);
    if (rc != SW_OK) return SW_OK; /* who reads the tokenizer says what is wrong with the file */
    rc = check_ids(ctx, tokenizer);
    cJSON_Delete(tokenizer);
    return rc;
}
