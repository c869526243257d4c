/* gguf_vocab_config.c - tokenizer_config.json and special_tokens_map.json of a GGUF. See
 * gguf_model.h. */
#include <stdio.h>
#include <string.h>

#include "formats/gguf/gguf_model.h"
#include "formats/gguf/gguf_vocab_parts.h"

#define TEMPLATE "tokenizer.chat_template"
#define TEMPLATE_NAME_BYTES 128

static sw_code put(sw_gguf_vocab *v, const char *text) { return sw_gguf_vocab_put(v, text); }

/* Write the special tokens that have a name, one a line; a comma follows each except the last. */
static sw_code put_named(sw_gguf_vocab *v, bool is_last)
{
    const struct {
        const char *name;
        int64_t id;
    } named[] = {
        {"bos_token", v->ids.bos},  {"eos_token", v->ids.eos}, {"mask_token", v->ids.mask},
        {"pad_token", v->ids.pad},  {"sep_token", v->ids.sep}, {"unk_token", v->ids.unk},
    };
    bool is_first = true;
    sw_code rc = SW_OK;

    for (size_t i = 0; i < sizeof named / sizeof *named && rc == SW_OK; i++) {
        if (named[i].id < 0) continue;
        rc = sw_print_fmt(&v->buf, v->err, "%s  \"%s\": ", is_first ? "" : ",\n", named[i].name);
        if (rc == SW_OK) rc = sw_gguf_vocab_put_piece(v, &v->pieces[named[i].id]);
        is_first = false;
    }
    if (rc == SW_OK && !is_first) rc = put(v, is_last ? "\n" : ",\n");
    return rc;
}

static sw_code put_entry(sw_gguf_vocab *v, const char *before, const char *name, const char *text)
{
    sw_code rc = sw_print_fmt(&v->buf, v->err, "%s\n    {\"name\": ", before);

    if (rc == SW_OK) rc = sw_print_quote(&v->buf, name, v->err);
    if (rc == SW_OK) rc = put(v, ", \"template\": ");
    if (rc == SW_OK) rc = sw_print_quote(&v->buf, text, v->err);
    return rc == SW_OK ? put(v, "}") : rc;
}

/* Write one template; where tokenizer.chat_templates lists more, write all of them by their
 * names. */
static sw_code put_templates(sw_gguf_vocab *v)
{
    const sw_gguf_value *names = NULL;
    const unsigned char *at;
    const char *chat = NULL;
    sw_code rc = sw_gguf_text(&chat, v->g, TEMPLATE, &v->arena, v->err);

    if (rc == SW_OK)
        rc = sw_gguf_array(&names, v->g, "tokenizer.chat_templates", SW_GGUF_TEXT, v->err);
    if (rc != SW_OK || (!chat && !names)) return rc;
    if ((rc = put(v, "  \"chat_template\": ")) != SW_OK) return rc;
    if (!names) {
        rc = sw_print_quote(&v->buf, chat, v->err);
        return rc == SW_OK ? put(v, ",\n") : rc;
    }
    rc = chat ? put_entry(v, "[", "default", chat) : put(v, "[");
    at = names->data;
    for (uint64_t i = 0; i < names->n && rc == SW_OK; i++) {
        char key[TEMPLATE_NAME_BYTES + sizeof TEMPLATE + 1];
        const char *name, *text = NULL;
        uint64_t n = 0;

        name = sw_gguf_next_text(&at, &n);
        if (n > TEMPLATE_NAME_BYTES) continue; /* a key of this length cannot exist */
        (void)snprintf(key, sizeof key, TEMPLATE ".%.*s", (int)n, name);
        if ((rc = sw_gguf_text(&text, v->g, key, &v->arena, v->err)) == SW_OK && text)
            rc = put_entry(v, v->buf.at[v->buf.n_bytes - 1] == '[' ? "" : ",",
                           key + sizeof TEMPLATE, text);
    }
    return rc == SW_OK ? put(v, "],\n") : rc;
}

static sw_code take(char **json, sw_gguf_vocab *v)
{
    sw_code rc = sw_print_add(&v->buf, "", 1, v->err);

    if (rc != SW_OK) return rc;
    *json = v->buf.at;
    v->buf.at = NULL;
    return SW_OK;
}

sw_code sw_gguf_tokenizer_config(char **json, const sw_gguf *g, sw_err *err)
{
    sw_gguf_vocab v = {.g = g, .err = err};
    sw_code rc;

    if ((rc = sw_gguf_vocab_read(&v)) != SW_OK ||
        (rc = sw_print_fmt(&v.buf, err, "{\n  \"add_bos_token\": %s,\n  \"add_eos_token\": %s,\n",
                           v.adds_bos && v.ids.bos >= 0 ? "true" : "false",
                           v.adds_eos && v.ids.eos >= 0 ? "true" : "false")) != SW_OK ||
        (rc = put_named(&v, false)) != SW_OK || (rc = put_templates(&v)) != SW_OK ||
        (rc = sw_print_fmt(&v.buf, err, "  \"clean_up_tokenization_spaces\": %s,\n"
                           "  \"tokenizer_class\": \"PreTrainedTokenizerFast\"\n}\n",
                           v.cleans ? "true" : "false")) != SW_OK)
        goto done;
    rc = take(json, &v);
done:
    sw_gguf_vocab_free(&v);
    return rc;
}

sw_code sw_gguf_special_tokens(char **json, const sw_gguf *g, sw_err *err)
{
    sw_gguf_vocab v = {.g = g, .err = err};
    sw_code rc;

    if ((rc = sw_gguf_vocab_read(&v)) == SW_OK && (rc = put(&v, "{\n")) == SW_OK &&
        (rc = put_named(&v, true)) == SW_OK && (rc = put(&v, "}\n")) == SW_OK)
        rc = take(json, &v);
    sw_gguf_vocab_free(&v);
    return rc;
}
