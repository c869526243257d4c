/* loaders_gguf.c - loader rules about GGUF files, see loaders.def: what llama.cpp asks beyond what
 * makes a file readable. From its reader of the container (magic to offsets), its model loader
 * (typed keys, shapes from metadata) and its vocabulary, as of autumn 2026. All of them are silent
 * on directories.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/gguf/gguf_pre.h"
#include "verify/loaders/loaders_parts.h"

#define KEY_BYTES 160

static const char *file_of(const sw_load_ctx *ctx) { return sw_gguf_file_path(ctx->gguf, 0); }

/* "general.x" as it is; ".x" behind the architecture. */
static const char *full_key(char key[KEY_BYTES], const sw_load_ctx *ctx, const char *name)
{
    const sw_gguf_value *arch = sw_gguf_key(ctx->gguf, "general.architecture");

    if (*name != '.' || !arch || arch->kind != SW_GGUF_TEXT)
        (void)snprintf(key, KEY_BYTES, "%s", name);
    else
        (void)snprintf(key, KEY_BYTES, "%.*s%s", (int)(arch->n > 60 ? 60 : arch->n),
                       (const char *)arch->data, name);
    return key;
}

static const sw_gguf_value *key_of(const sw_load_ctx *ctx, const char *name)
{
    char key[KEY_BYTES];

    return sw_gguf_key(ctx->gguf, full_key(key, ctx, name));
}

static int64_t int_of(const sw_load_ctx *ctx, const char *name, int64_t when_absent)
{
    char key[KEY_BYTES];
    int64_t v = when_absent;
    sw_err ignored = {0};

    return sw_gguf_int(&v, ctx->gguf, full_key(key, ctx, name), INT64_MIN, INT64_MAX, &ignored) ==
                   SW_OK
               ? v : when_absent;
}

sw_code sw_load_gguf_key_missing(sw_load_ctx *ctx)
{
    static const char *const always[] = {
        "general.architecture", ".context_length", ".embedding_length", ".block_count",
        ".feed_forward_length", ".attention.head_count", ".attention.layer_norm_rms_epsilon", NULL};
    char key[KEY_BYTES];
    sw_code rc = SW_OK;

    for (int i = 0; ctx->gguf && always[i] && rc == SW_OK; i++)
        if (!key_of(ctx, always[i]))
            rc = sw_load_found(ctx, full_key(key, ctx, always[i]), "it is not in %s", file_of(ctx));
    if (rc == SW_OK && ctx->gguf && int_of(ctx, ".expert_count", 0) > 0 &&
        int_of(ctx, ".expert_used_count", 0) <= 0)
        rc = sw_load_found(ctx, full_key(key, ctx, ".expert_used_count"), "there are experts, and "
                           "none is used");
    return rc;
}

static const struct {
    const char *name;
    sw_gguf_kind kind;
    bool may_be_array; /* of one a layer */
} typed_keys[] = {
    {"general.architecture", SW_GGUF_TEXT, false}, {"general.name", SW_GGUF_TEXT, false},
    {"general.file_type", SW_GGUF_U32, false},     {"general.alignment", SW_GGUF_U32, false},
    {".vocab_size", SW_GGUF_U32, false},           {".context_length", SW_GGUF_U32, false},
    {".embedding_length", SW_GGUF_U32, false},     {".block_count", SW_GGUF_U32, false},
    {".feed_forward_length", SW_GGUF_U32, true},   {".attention.head_count", SW_GGUF_U32, true},
    {".attention.head_count_kv", SW_GGUF_U32, true}, {".attention.key_length", SW_GGUF_U32, false},
    {".attention.value_length", SW_GGUF_U32, false}, {".rope.dimension_count", SW_GGUF_U32, false},
    {".attention.layer_norm_rms_epsilon", SW_GGUF_F32, false},
    {".attention.sliding_window", SW_GGUF_U32, false}, {".rope.freq_base", SW_GGUF_F32, false},
    {".rope.scaling.type", SW_GGUF_TEXT, false},   {".rope.scaling.factor", SW_GGUF_F32, false},
    {".rope.scaling.original_context_length", SW_GGUF_U32, false},
    {".expert_count", SW_GGUF_U32, false},         {".expert_used_count", SW_GGUF_U32, false},
    {".expert_feed_forward_length", SW_GGUF_U32, false},
    {"tokenizer.ggml.model", SW_GGUF_TEXT, false}, {"tokenizer.ggml.pre", SW_GGUF_TEXT, false},
    {"tokenizer.ggml.bos_token_id", SW_GGUF_U32, false},
    {"tokenizer.ggml.eos_token_id", SW_GGUF_U32, false},
    {"tokenizer.ggml.unknown_token_id", SW_GGUF_U32, false},
    {"tokenizer.ggml.padding_token_id", SW_GGUF_U32, false},
    {"tokenizer.ggml.add_bos_token", SW_GGUF_BOOL, false},
    {"tokenizer.ggml.add_eos_token", SW_GGUF_BOOL, false},
    {"tokenizer.ggml.add_space_prefix", SW_GGUF_BOOL, false},
    {"split.no", SW_GGUF_U16, false},              {"split.count", SW_GGUF_U16, false},
    {"split.tensors.count", SW_GGUF_I32, false},
};

sw_code sw_load_gguf_key_type(sw_load_ctx *ctx)
{
    const size_t n = ctx->gguf ? sizeof typed_keys / sizeof *typed_keys : 0;
    sw_code rc = SW_OK;

    for (size_t i = 0; i < n && rc == SW_OK; i++) {
        const sw_gguf_value *v = key_of(ctx, typed_keys[i].name);

        if (!v || v->kind == typed_keys[i].kind ||
            (v->kind == SW_GGUF_ARRAY && typed_keys[i].may_be_array))
            continue;
        rc = sw_load_found(ctx, v->key, "it is of type %s, and taken as %s alone",
                           sw_gguf_kind_name(v->kind), sw_gguf_kind_name(typed_keys[i].kind));
    }
    return rc;
}

sw_code sw_load_gguf_nested_key(sw_load_ctx *ctx)
{
    const int64_t n = ctx->gguf ? sw_gguf_n_keys(ctx->gguf) : 0;
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        const sw_gguf_value *v = sw_gguf_key_at(ctx->gguf, i);
        if (v->kind == SW_GGUF_ARRAY && v->elem_kind == SW_GGUF_ARRAY)
            rc = sw_load_found(ctx, v->key, "an array of arrays");
    }
    return rc;
}

static int compare_list(const void *a, const void *b)
{
    const sw_gguf_tensor *x = *(const sw_gguf_tensor *const *)a;
    const sw_gguf_tensor *y = *(const sw_gguf_tensor *const *)b;

    if (x->split != y->split) return x->split < y->split ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

sw_code sw_load_gguf_order(sw_load_ctx *ctx)
{
    const int64_t n = ctx->gguf ? sw_gguf_count(ctx->gguf) : 0;
    const sw_gguf_tensor **list = NULL;
    uint64_t align, want = 0;
    sw_code rc;

    if (!n || sw_gguf_n_files(ctx->gguf) > 1) return SW_OK; /* splits may differ in alignment */
    align = (uint64_t)int_of(ctx, "general.alignment", SW_GGUF_ALIGN_DEFAULT);
    if ((rc = SW_MEM_GET(&list, n, "list of tensors", ctx->err)) != SW_OK) return rc;
    for (int64_t i = 0; i < n; i++) list[i] = sw_gguf_at(ctx->gguf, i);
    qsort(list, (size_t)n, sizeof *list, compare_list);
    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        if (list[i]->offset != want)
            rc = sw_load_found(ctx, list[i]->name, "it lies at %llu, expected at %llu",
                               (unsigned long long)list[i]->offset, (unsigned long long)want);
        want = (list[i]->offset + list[i]->size_bytes + align - 1) / align * align;
    }
    sw_mem_put(list);
    return rc;
}

sw_code sw_load_gguf_rotation(sw_load_ctx *ctx)
{
    const sw_gguf_value *arch = ctx->gguf ? key_of(ctx, "general.architecture") : NULL;
    int64_t heads, head, turned;
    char key[KEY_BYTES];

    if (!arch || arch->kind != SW_GGUF_TEXT || arch->n != 5 || memcmp(arch->data, "llama", 5))
        return SW_OK;
    heads = int_of(ctx, ".attention.head_count", 0);
    head = heads > 0 ? int_of(ctx, ".embedding_length", 0) / heads : 0;
    head = int_of(ctx, ".attention.key_length", head);
    turned = int_of(ctx, ".rope.dimension_count", head);
    if (turned == head) return SW_OK;
    return sw_load_found(ctx, full_key(key, ctx, ".rope.dimension_count"), "it is %lld, a head has "
                         "%lld", (long long)turned, (long long)head);
}

sw_code sw_load_gguf_vector_type(sw_load_ctx *ctx)
{
    const int64_t n = ctx->gguf ? sw_gguf_count(ctx->gguf) : 0;
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        const sw_gguf_tensor *t = sw_gguf_at(ctx->gguf, i);
        if (t->n_dims == 1 && t->type != SW_BLOCK_F32)
            rc = sw_load_found(ctx, t->name, "it is stored as %s", sw_block_sizes[t->type].name);
    }
    return rc;
}

/* --- the tokenizer ------------------------------------------------------------------------ */

static const sw_gguf_value *tokens_of(const sw_load_ctx *ctx)
{
    const sw_gguf_value *v = ctx->gguf ? key_of(ctx, "tokenizer.ggml.tokens") : NULL;

    return v && v->kind == SW_GGUF_ARRAY ? v : NULL;
}

static bool is_byte_level(const sw_load_ctx *ctx)
{
    const sw_gguf_value *v = ctx->gguf ? key_of(ctx, "tokenizer.ggml.model") : NULL;

    return v && v->kind == SW_GGUF_TEXT && v->n == 4 && !memcmp(v->data, "gpt2", 4);
}

sw_code sw_load_gguf_no_vocab(sw_load_ctx *ctx)
{
    static const char *const keys[] = {"tokenizer.ggml.model", "tokenizer.ggml.tokens"};
    sw_code rc = SW_OK;

    for (int i = 0; ctx->gguf && i < 2 && rc == SW_OK; i++)
        if (!key_of(ctx, keys[i]))
            rc = sw_load_found(ctx, keys[i], "it is not in %s", file_of(ctx));
    return rc;
}

sw_code sw_load_gguf_vocab_rows(sw_load_ctx *ctx)
{
    const sw_gguf_value *tokens = tokens_of(ctx);
    const sw_gguf_tensor *embed =
        tokens ? sw_gguf_find(ctx->gguf, "token_embd.weight") : NULL;

    if (!embed || embed->n_dims != 2 || (uint64_t)embed->shape[0] == tokens->n) return SW_OK;
    return sw_load_found(ctx, embed->name, "%lld rows for %llu tokens", (long long)embed->shape[0],
                         (unsigned long long)tokens->n);
}

sw_code sw_load_gguf_merges(sw_load_ctx *ctx)
{
    const char *key = "tokenizer.ggml.merges";

    if (!is_byte_level(ctx) || key_of(ctx, key)) return SW_OK;
    return sw_load_found(ctx, key, "it is not in %s", file_of(ctx));
}

sw_code sw_load_gguf_token_lists(sw_load_ctx *ctx)
{
    static const char *const keys[] = {"tokenizer.ggml.scores", "tokenizer.ggml.token_type"};
    const sw_gguf_value *tokens = tokens_of(ctx);
    sw_code rc = SW_OK;

    for (int i = 0; tokens && i < 2 && rc == SW_OK; i++) {
        const sw_gguf_value *v = key_of(ctx, keys[i]);
        if (v && v->n < tokens->n)
            rc = sw_load_found(ctx, keys[i], "%llu entries for %llu tokens",
                               (unsigned long long)v->n, (unsigned long long)tokens->n);
    }
    return rc;
}

sw_code sw_load_gguf_no_pre(sw_load_ctx *ctx)
{
    const char *key = "tokenizer.ggml.pre";

    if (!is_byte_level(ctx) || key_of(ctx, key)) return SW_OK;
    return sw_load_found(ctx, key, "it is not in %s", file_of(ctx));
}

sw_code sw_load_gguf_pre(sw_load_ctx *ctx)
{
    const char *key = "tokenizer.ggml.pre";
    const sw_gguf_value *v = is_byte_level(ctx) ? key_of(ctx, key) : NULL;
    char name[80];

    if (!v || v->kind != SW_GGUF_TEXT) return SW_OK;
    (void)snprintf(name, sizeof name, "%.*s", (int)(v->n < 79 ? v->n : 79), (const char *)v->data);
    return sw_gguf_pre_find(name) ? SW_OK : sw_load_found(ctx, key, "it is \"%.60s\"", name);
}

sw_code sw_load_gguf_token_id(sw_load_ctx *ctx)
{
    static const char *const keys[] = {
        "tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.padding_token_id"};
    const sw_gguf_value *tokens = tokens_of(ctx);
    sw_code rc = SW_OK;

    for (size_t i = 0; tokens && i < sizeof keys / sizeof *keys && rc == SW_OK; i++) {
        const int64_t id = int_of(ctx, keys[i], -1);
        if (id >= (int64_t)tokens->n)
            rc = sw_load_found(ctx, keys[i], "it is %lld, there are %llu tokens", (long long)id,
                               (unsigned long long)tokens->n);
    }
    return rc;
}
