/* card_engines.c - see card_engines.h. */
#include "tools/card/card_engines.h"

#include <string.h>

typedef struct engine {
    const char *name;    /* as loaders.def has it */
    const char *formats; /* that it takes, each between blanks */
    const char *command; /* NULL: a library */
    const char *kv_fp8;  /* what makes it keep keys and values in 8 bits */
} engine;

static const engine engines[] = {
    {"vLLM", " compressed-tensors gptq gptq_v2 awq fp8 modelopt mxfp4 floats ", "vllm serve OUT",
     " --kv-cache-dtype fp8"},
    {"SGLang", " compressed-tensors gptq gptq_v2 awq fp8 modelopt floats ",
     "python -m sglang.launch_server --model-path OUT", " --kv-cache-dtype fp8_e4m3"},
    {"TensorRT-LLM", " modelopt floats ", "trtllm-serve OUT", ""},
    {"transformers", " compressed-tensors gptq gptq_v2 awq fp8_hf mxfp4 floats ", NULL, ""},
    {"llama.cpp", " gguf ", "llama-server -m OUT", ""},
};

const char *sw_card_format(const sw_card *card)
{
    if (card->ckpt->is_file) return "gguf";
    return card->ckpt->dialect ? card->ckpt->dialect->name : "floats";
}

sw_code sw_card_put_clean(sw_print_buf *out, const char *text, sw_err *err)
{
    sw_code rc = SW_OK;

    for (; *text && rc == SW_OK; text++) {
        char c = (unsigned char)*text < ' ' || *text == 127 ? '?' : *text;
        if (strchr("<>|`[]*_\\", c)) rc = sw_print_add(out, "\\", 1, err);
        if (rc == SW_OK) rc = sw_print_add(out, &c, 1, err);
    }
    return rc;
}

/* true when the rule is about this engine as it is now: "vLLM before 2026" is not. */
static bool is_about(const sw_load_rule *rule, const char *name)
{
    const char *at = strstr(rule->engines, name);

    if (!at) return !strncmp(rule->engines, "all but", 7);
    return strncmp(at + strlen(name), " before", 7) != 0;
}

static const sw_load_finding *obstacle(const sw_card *card, const char *name)
{
    for (int64_t i = 0; i < card->loaders->n; i++) {
        const sw_load_finding *f = &card->loaders->at[i];
        if (f->rule->effect != SW_LOAD_LIMITED && is_about(f->rule, name)) return f;
    }
    return NULL;
}

static bool takes(const engine *e, const char *format)
{
    size_t n = strlen(format);

    for (const char *at = e->formats; (at = strstr(at, format)); at += n)
        if (at[-1] == ' ' && at[n] == ' ') return true;
    return false;
}

static bool has_fp8_cache(const sw_card *card)
{
    const cJSON *kv = sw_json_member(sw_json_member(card->manifest, "settings"), "kv_cache");

    return cJSON_IsString(kv) && !strcmp(kv->valuestring, "fp8");
}

static sw_code put_commands(sw_print_buf *out, const sw_card *card, sw_err *err)
{
    const char *format = sw_card_format(card);
    sw_code rc = sw_print_fmt(out, err, "```\n");

    for (size_t i = 0; i < sizeof engines / sizeof *engines && rc == SW_OK; i++) {
        const engine *e = &engines[i];
        if (!e->command || !takes(e, format) || obstacle(card, e->name)) continue;
        rc = sw_print_fmt(out, err, "%s%s\n", e->command, has_fp8_cache(card) ? e->kv_fp8 : "");
    }
    if (rc == SW_OK)
        rc = sw_print_fmt(out, err, "swage generate OUT --prompt 'Once upon a time'\n");
    return rc == SW_OK ? sw_print_fmt(out, err, "```\n\n") : rc;
}

/* What no command above says: engines that take the format, and this output not; and limits. */
static sw_code put_rules(sw_print_buf *out, const sw_card *card, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < card->loaders->n && rc == SW_OK; i++) {
        char text[SW_LOAD_TEXT_BYTES];
        rc = sw_print_add(out, "- ", 2, err);
        if (rc == SW_OK)
            rc = sw_card_put_clean(out, sw_load_text(text, &card->loaders->at[i]), err);
        if (rc == SW_OK) rc = sw_print_add(out, "\n", 1, err);
    }
    return rc == SW_OK && card->loaders->n ? sw_print_add(out, "\n", 1, err) : rc;
}

sw_code sw_card_put_engines(sw_print_buf *out, const sw_card *card, sw_err *err)
{
    const char *format = sw_card_format(card);
    sw_code rc = sw_print_fmt(out, err, "## How to serve it\n\nOUT is %s.\n\n",
                              card->ckpt->is_file ? "the GGUF file"
                                                  : "this folder, or its id on the Hub");

    if (rc == SW_OK) rc = put_commands(out, card, err);
    for (size_t i = 0; i < sizeof engines / sizeof *engines && rc == SW_OK; i++)
        if (!engines[i].command && takes(&engines[i], format) &&
            !obstacle(card, engines[i].name))
            rc = sw_print_fmt(out, err, "In Python, `%s` loads it.\n\n", engines[i].name);
    if (rc == SW_OK && card->loaders->n)
        rc = sw_print_fmt(out, err, "What engines make of it, by the rules of their loaders:\n\n");
    return rc == SW_OK ? put_rules(out, card, err) : rc;
}
