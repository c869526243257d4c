/* normalizer.c - the "normalizer" of tokenizer.json: text to text, before it is cut. */
#include <string.h>

#include "formats/base/json.h"
#include "formats/text/tokenizer_parts.h"

static sw_code run_form(sw_normalizer *owner, const sw_norm_step *step, sw_text_buf *out,
                        const char *text, size_t n_bytes, sw_err *err)
{
    return sw_normalize(out, step->form, text, n_bytes, &owner->scratch, err);
}

static sw_code run_precompiled(sw_normalizer *owner, const sw_norm_step *step, sw_text_buf *out,
                               const char *text, size_t n_bytes, sw_err *err)
{
    (void)owner;
    return sw_charsmap_run(&step->charsmap, out, text, n_bytes, err);
}

static sw_code run_prepend(sw_normalizer *owner, const sw_norm_step *step, sw_text_buf *out,
                           const char *text, size_t n_bytes, sw_err *err)
{
    sw_code rc;

    (void)owner;
    if (!n_bytes) return SW_OK;
    if ((rc = sw_text_buf_add(out, step->content, strlen(step->content), err)) != SW_OK) return rc;
    return sw_text_buf_add(out, text, n_bytes, err);
}

static sw_code run_replace(sw_normalizer *owner, const sw_norm_step *step, sw_text_buf *out,
                           const char *text, size_t n_bytes, sw_err *err)
{
    return sw_pattern_replace(out, &step->pattern, owner->clock, text, n_bytes, step->content,
                              strlen(step->content), err);
}

static sw_code run_lowercase(sw_normalizer *owner, const sw_norm_step *step, sw_text_buf *out,
                             const char *text, size_t n_bytes, sw_err *err)
{
    sw_code rc = SW_OK;

    (void)owner;
    (void)step;
    for (size_t at = 0; at < n_bytes && rc == SW_OK;) {
        uint32_t c, lower[2];
        int n;
        at = sw_utf8_next(&c, text, at);
        n = sw_char_lower(lower, c);
        for (int i = 0; i < n && rc == SW_OK; i++) rc = sw_text_buf_add_char(out, lower[i], err);
    }
    return rc;
}

static sw_code run_strip(sw_normalizer *owner, const sw_norm_step *step, sw_text_buf *out,
                         const char *text, size_t n_bytes, sw_err *err)
{
    size_t begin = 0, end = n_bytes;

    (void)owner;
    while (step->strip_left && begin < end) {
        uint32_t c;
        size_t next = sw_utf8_next(&c, text, begin);
        if (!sw_char_is_space(c)) break;
        begin = next;
    }
    while (step->strip_right && end > begin) {
        uint32_t c;
        size_t at = sw_utf8_back(text, end);
        (void)sw_utf8_next(&c, text, at);
        if (!sw_char_is_space(c)) break;
        end = at;
    }
    return sw_text_buf_add(out, text + begin, end - begin, err);
}

static sw_code parse_content(sw_norm_step *step, const cJSON *json, const char *key,
                             sw_arena *arena, sw_err *err)
{
    const char *content = NULL;
    char *copy = NULL;
    sw_code rc = sw_json_text(&content, json, key, err);

    if (rc != SW_OK) return rc;
    if (!content) return SW_FAIL(err, SW_E_FORMAT, "no \"%s\"", key);
    rc = sw_arena_text(&copy, arena, content, strlen(content), err);
    step->content = copy;
    return rc;
}

static sw_code parse_prepend(sw_norm_step *step, const cJSON *json, sw_arena *arena, sw_err *err)
{
    return parse_content(step, json, "prepend", arena, err);
}

static sw_code parse_replace(sw_norm_step *step, const cJSON *json, sw_arena *arena, sw_err *err)
{
    sw_code rc = parse_content(step, json, "content", arena, err);

    if (rc != SW_OK) return rc;
    return sw_pattern_parse(&step->pattern, sw_json_member(json, "pattern"), arena, err);
}

static sw_code parse_precompiled(sw_norm_step *step, const cJSON *json, sw_arena *arena,
                                 sw_err *err)
{
    const char *base64 = NULL;
    sw_code rc = sw_json_text(&base64, json, "precompiled_charsmap", err);

    if (rc != SW_OK) return rc;
    if (!base64) return SW_FAIL(err, SW_E_FORMAT, "no \"precompiled_charsmap\"");
    return sw_charsmap_parse(&step->charsmap, base64, arena, err);
}

static sw_code parse_strip(sw_norm_step *step, const cJSON *json, sw_arena *arena, sw_err *err)
{
    sw_code rc;

    (void)arena;
    step->strip_left = step->strip_right = true;
    if ((rc = sw_json_bool(&step->strip_left, json, "strip_left", err)) != SW_OK) return rc;
    return sw_json_bool(&step->strip_right, json, "strip_right", err);
}

static const struct {
    const char *type;
    sw_code (*parse)(sw_norm_step *step, const cJSON *json, sw_arena *arena, sw_err *err);
    sw_code (*run)(sw_normalizer *owner, const sw_norm_step *step, sw_text_buf *out,
                   const char *text, size_t n_bytes, sw_err *err);
} kinds[] = {
    {"Prepend", parse_prepend, run_prepend}, {"Replace", parse_replace, run_replace},
    {"Strip", parse_strip, run_strip},       {"Lowercase", NULL, run_lowercase},
    {"Precompiled", parse_precompiled, run_precompiled},
    {"NFC", NULL, run_form},                 {"NFD", NULL, run_form},
    {"NFKC", NULL, run_form},                {"NFKD", NULL, run_form},
};

static sw_code parse_step(void *self, const cJSON *json, const char *type, sw_arena *arena,
                          sw_err *err)
{
    sw_normalizer *out = self;
    sw_norm_step *step = &out->steps[out->n_steps];

    if (out->n_steps == SW_STEPS_MAX)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "normalizer of more than %d steps", SW_STEPS_MAX);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        sw_code rc = SW_OK;
        if (strcmp(kinds[i].type, type) != 0) continue;
        out->n_steps++;
        step->run = kinds[i].run;
        step->type = kinds[i].type;
        step->form = sw_normal_form_find(type);
        if (kinds[i].parse) rc = kinds[i].parse(step, json, arena, err);
        if (rc != SW_OK) sw_err_prefix(err, "normalizer %s", type);
        return rc;
    }
    return sw_part_unsupported("normalizer", type, err);
}

sw_code sw_normalizer_parse(sw_normalizer *out, const cJSON *json, sw_arena *arena, sw_err *err)
{
    return sw_part_each(json, "normalizer", "normalizers", parse_step, out, arena, err);
}

void sw_normalizer_start(sw_normalizer *normalizer, const sw_growth *growth)
{
    normalizer->growth = growth;
    for (int i = 0; i < normalizer->n_steps; i++) normalizer->steps[i].made_bytes = 0;
}

sw_code sw_normalizer_run(sw_normalizer *normalizer, const char **text, size_t *n_bytes,
                          sw_err *err)
{
    for (int i = 0; i < normalizer->n_steps; i++) {
        sw_text_buf *out = &normalizer->buf[i & 1];
        sw_norm_step *step = &normalizer->steps[i];
        sw_code rc;
        sw_growth_open(normalizer->growth, out, step->made_bytes);
        if ((rc = step->run(normalizer, step, out, *text, *n_bytes, err)) != SW_OK) {
            sw_err_prefix(err, "normalizer step %d (%s)", i + 1, step->type);
            return rc;
        }
        step->made_bytes += out->n_bytes;
        *text = out->n_bytes ? out->bytes : "";
        *n_bytes = out->n_bytes;
    }
    return SW_OK;
}

void sw_normalizer_free(sw_normalizer *normalizer)
{
    for (int i = 0; i < normalizer->n_steps; i++) sw_pattern_free(&normalizer->steps[i].pattern);
    sw_text_buf_free(&normalizer->buf[0]);
    sw_text_buf_free(&normalizer->buf[1]);
    sw_normal_scratch_free(&normalizer->scratch);
    memset(normalizer, 0, sizeof *normalizer);
}
