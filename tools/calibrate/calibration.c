/* calibration.c - see calibration.h. */
#include "tools/calibrate/calibration.h"

#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "formats/checkpoint/model_text.h"
#include "formats/io/file.h"

#define DEFAULT_SAMPLES 128
#define DEFAULT_SEQ_LEN 2048

sw_code sw_tokenizer_of_model(sw_tokenizer **out, const char *model_dir, int64_t vocab,
                              sw_err *err)
{
    sw_tokenizer *tok = NULL;
    sw_code rc = sw_model_tokenizer(&tok, model_dir, err);

    if (rc != SW_OK) return rc;
    if (sw_tokenizer_vocab(tok) > vocab) {
        rc = SW_FAIL(err, SW_E_FORMAT,
                     "%s: its tokenizer has %lld tokens, but the model embeds %lld; it belongs to "
                     "another model", model_dir, (long long)sw_tokenizer_vocab(tok),
                     (long long)vocab);
        sw_tokenizer_free(tok);
        return rc;
    }
    *out = tok;
    return SW_OK;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && !strcmp(text + n - n_end, end);
}

static bool is_token_file(const char *path)
{
    return ends_with(path, ".u16") || ends_with(path, ".u32") || ends_with(path, ".safetensors");
}

static sw_code read_files(sw_corpus *corpus, const sw_model *model,
                          const sw_calibration_options *o, sw_err *err)
{
    sw_tokenizer *tok = NULL;
    sw_chat_format *chat = NULL;
    sw_code rc = SW_OK;

    if (sw_corpus_needs_chat(o->files->items, o->files->n))
        rc = sw_model_chat(&chat, o->model_dir, err);
    corpus->chat = chat;
    for (int i = 0; i < o->files->n && rc == SW_OK; i++) {
        if (!tok && !is_token_file(o->files->items[i]))
            rc = sw_tokenizer_of_model(&tok, o->model_dir, model->vocab, err);
        if (rc == SW_OK)
            rc = sw_corpus_add(corpus, tok, model->vocab, o->files->items[i], err);
    }
    if (rc == SW_OK) rc = sw_corpus_finish(corpus, err);
    if (rc == SW_OK && o->progress) sw_corpus_note(corpus, o->progress);
    corpus->chat = NULL;
    sw_chat_format_free(chat);
    sw_tokenizer_free(tok);
    return rc;
}

static uint64_t split_mix(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* n_seqs of all windows, without repeats, by a partial Fisher-Yates shuffle. */
static sw_code draw_windows(sw_calibration *out, uint64_t seed, sw_err *err)
{
    sw_calib *calib = &out->calib;
    int64_t n_all = out->corpus.ids.n / calib->seq_len;
    int64_t *order = NULL;
    uint64_t state = seed;
    sw_code rc;

    if ((rc = SW_MEM_GET(&order, n_all, "calibration windows", err)) != SW_OK ||
        (rc = SW_MEM_GET(&out->windows, calib->n_seqs * calib->seq_len, "calibration windows",
                         err)) != SW_OK)
        goto done;
    for (int64_t i = 0; i < n_all; i++) order[i] = i;
    for (int64_t i = 0; i < calib->n_seqs; i++) {
        int64_t j = i + (int64_t)(split_mix(&state) % (uint64_t)(n_all - i));
        int64_t picked = order[j];
        order[j] = order[i];
        memcpy(out->windows + i * calib->seq_len, out->corpus.ids.ids + picked * calib->seq_len,
               (size_t)calib->seq_len * sizeof *out->windows);
    }
    calib->ids = out->windows;
done:
    sw_mem_put(order);
    return rc;
}

sw_code sw_calibration_assume(sw_calibration *out, const sw_model *model,
                              const sw_calibration_options *o, sw_err *err)
{
    sw_calib *calib = &out->calib;

    memset(out, 0, sizeof *out);
    calib->n_seqs = o->n_samples ? o->n_samples : DEFAULT_SAMPLES;
    calib->seq_len = o->seq_len ? o->seq_len : sw_min_i64(DEFAULT_SEQ_LEN, model->max_positions);
    if (calib->seq_len > model->max_positions)
        return SW_FAIL(err, SW_E_USAGE, "--seq-len %lld is beyond the model's context of %lld",
                       (long long)calib->seq_len, (long long)model->max_positions);
    return SW_OK;
}

static sw_code cut_windows(sw_calibration *out, const sw_model *model,
                           const sw_calibration_options *o, sw_err *err)
{
    int64_t n_tokens = out->corpus.ids.n;
    sw_calib *calib = &out->calib;

    calib->n_seqs = o->n_samples ? o->n_samples : DEFAULT_SAMPLES;
    calib->seq_len = o->seq_len ? o->seq_len : sw_min_i64(DEFAULT_SEQ_LEN, model->max_positions);
    if (calib->seq_len > model->max_positions)
        return SW_FAIL(err, SW_E_USAGE, "--seq-len %lld is beyond the model's context of %lld",
                       (long long)calib->seq_len, (long long)model->max_positions);
    if (n_tokens / calib->seq_len < 1)
        return SW_FAIL(err, SW_E_USAGE,
                       "too little calibration text: %lld tokens, one window takes %lld; give "
                       "more text or a smaller --seq-len",
                       (long long)n_tokens, (long long)calib->seq_len);
    if (n_tokens / calib->seq_len < calib->n_seqs)
        return SW_FAIL(err, SW_E_USAGE,
                       "too little calibration text: %lld tokens, %lld windows of %lld take %lld; "
                       "give more text or --samples %lld",
                       (long long)n_tokens, (long long)calib->n_seqs, (long long)calib->seq_len,
                       (long long)(calib->n_seqs * calib->seq_len),
                       (long long)(n_tokens / calib->seq_len));
    calib->ids = out->corpus.ids.ids;
    return o->seed ? draw_windows(out, (uint64_t)o->seed, err) : SW_OK;
}

sw_code sw_calibration_read(sw_calibration *out, const sw_model *model,
                            const sw_calibration_options *options, sw_err *err)
{
    sw_code rc;

    memset(out, 0, sizeof *out);
    if ((rc = read_files(&out->corpus, model, options, err)) == SW_OK)
        rc = cut_windows(out, model, options, err);
    if (rc != SW_OK) sw_calibration_free(out);
    return rc;
}

void sw_calibration_free(sw_calibration *calibration)
{
    sw_corpus_free(&calibration->corpus);
    sw_mem_put(calibration->windows);
    memset(calibration, 0, sizeof *calibration);
}
