/* cmd_generate.c - `swage generate`: a look at what a model says, and sampled token files.
 *
 * Dense and quantized checkpoints alike; the latter run through the integer kernels.
 */
#include <stdio.h>
#include <string.h>

#include "formats/base/size.h"
#include "formats/io/profile.h"
#include "formats/io/watch.h"
#include "kernels/engine/device_engine.h"
#include "kernels/engine/lm_open.h"
#include "tools/calibrate/calibration.h"
#include "tools/calibrate/sample_file.h"
#include "tools/cli/cmd.h"
#include "tools/cli/names.h"
#include "tools/device/device_opt.h"
#include "tools/device/ranks.h"
#include "tools/run/chat_prompt.h"

typedef struct generate_options {
    sw_cmd_common common;
    const char *prompt, *messages, *system, *out, *device, *kv_cache;
    int64_t n_tokens, top_k, seed, samples;
    double temperature, top_p;
    int ids, ignore_eos, may_replace, is_chat;
    uint64_t device_bytes;
} generate_options;

static const generate_options defaults = {
    .prompt = "", .n_tokens = 64, .samples = 1, .temperature = 0, .top_p = 1};

#define AT(field) .offset = offsetof(generate_options, field)

static const sw_opt options[] = {
    {.name = "prompt", .group = SW_OPT_COMMON, .letter = 'p', .kind = SW_OPT_TEXT, AT(prompt),
     .arg = "TEXT",
     .help = "text to continue (default: the BOS token alone)"},
    {.name = "chat", .group = SW_OPT_COMMON, .kind = SW_OPT_FLAG, AT(is_chat), .set_to = 1,
     .help = "the prompt is the message of a user: put it into the model's chat template and stop "
             "where the answer's turn ends"},
    {.name = "messages", .group = SW_OPT_COMMON, .kind = SW_OPT_TEXT, AT(messages), .arg = "FILE",
     .help = "a chat to continue, one {\"role\": ..., \"content\": ...} a line; implies --chat"},
    {.name = "system", .group = SW_OPT_COMMON, .kind = SW_OPT_TEXT, AT(system), .arg = "TEXT",
     .help = "the system message that comes first; implies --chat"},
    {.name = "n-tokens", .group = SW_OPT_COMMON, .letter = 'n', .kind = SW_OPT_INT, AT(n_tokens),
     .arg = "N", .min = 1, .max = 1 << 24,
     .help = "tokens per sample (default 64); in token files this counts the prompt"},
    {.name = "temperature", .group = SW_OPT_QUALITY, .kind = SW_OPT_REAL, AT(temperature),
     .arg = "T", .min = 0, .max = 100,
     .help = "0 takes the likeliest token every time (default 0)"},
    {.name = "top-k", .group = SW_OPT_QUALITY, .kind = SW_OPT_INT, AT(top_k), .arg = "K",
     .min = 0, .max = 1e9,
     .help = "draw among the K likeliest tokens; 0: among all (default 0)"},
    {.name = "top-p", .group = SW_OPT_QUALITY, .kind = SW_OPT_REAL, AT(top_p), .arg = "P",
     .min = 1e-6, .max = 1,
     .help = "draw among the likeliest tokens whose probabilities sum to P (default 1)"},
    {.name = "seed", .group = SW_OPT_QUALITY, .kind = SW_OPT_INT, AT(seed), .arg = "N", .min = 0,
     .max = 9e15,
     .help = "sample i is drawn with seed N + i (default 0)"},
    {.name = "samples", .group = SW_OPT_COMMON, .kind = SW_OPT_INT, AT(samples), .arg = "N",
     .min = 1, .max = 1e6,
     .help = "number of samples of the same prompt (default 1)"},
    {.name = "out", .group = SW_OPT_COMMON, .letter = 'o', .kind = SW_OPT_TEXT, AT(out),
     .arg = "FILE",
     .help = "write the samples to FILE: token ids with the prompt, exactly --n-tokens per "
             "sample, if it ends in .u16 or .u32; else text"},
    {.name = "force", .group = SW_OPT_COMMON, .kind = SW_OPT_FLAG, AT(may_replace), .set_to = 1,
     .help = "replace an existing file"},
    {.name = "ids", .group = SW_OPT_EXPERT, .kind = SW_OPT_FLAG, AT(ids), .set_to = 1,
     .help = "print token ids instead of text"},
    {.name = "ignore-eos", .group = SW_OPT_EXPERT, .kind = SW_OPT_FLAG, AT(ignore_eos),
     .set_to = 1,
     .help = "continue after the end token; token files imply it"},
    SW_KV_CACHE_ROW(generate_options, kv_cache),
    SW_DEVICE_ROW(generate_options, device),
    SW_DEVICE_MEMORY_ROW(generate_options, device_bytes),
    SW_SPREAD_ROW,
    SW_CMD_THREADS_ROW,
    SW_CMD_MODEL_ROW,
    SW_CMD_COMMON_ROWS,
    {0},
};

typedef struct job {
    const generate_options *o;
    const char *model_dir;
    sw_run *run;
    sw_checkpoint ckpt;
    sw_tokenizer *tok;
    sw_lm lm;
    sw_engine *engine;
    sw_device_set gpus; /* none: the CPU, else in place of engine: */
    sw_device_model on_gpus;
    sw_ids prompt, sample; /* sample: new tokens of the one being drawn */
    sw_sample_file file;
    size_t printed_bytes;
    sw_generate_result result; /* of the last sample */
    double seconds;
} job;

static void job_free(job *j)
{
    sw_sample_file_free(&j->file);
    sw_ids_free(&j->prompt);
    sw_ids_free(&j->sample);
    sw_engine_free(j->engine);
    sw_device_model_close(&j->on_gpus);
    sw_device_set_close(&j->gpus);
    sw_lm_free(&j->lm);
    sw_tokenizer_free(j->tok);
    sw_checkpoint_close(&j->ckpt);
}

static bool wants_tokens(const generate_options *o)
{
    return o->out && sw_sample_file_id_bytes(o->out) > 0;
}

#define GPU_CHUNK 2048 /* tokens of a prompt at a time */

static sw_code make_engine(job *j, sw_err *err)
{
    const sw_model *m = &j->ckpt.model;
    const int64_t n = j->prompt.n, length = n + j->o->n_tokens;
    sw_code rc;

    if (!j->gpus.n) return sw_engine_new(&j->engine, m, n, length, (int)j->o->common.threads, err);
    rc = sw_device_model_open(&j->on_gpus, &j->gpus, &j->lm, sw_min_i64(n, GPU_CHUNK), length, err);
    if (rc == SW_OK && j->on_gpus.text[0])
        sw_progress_note(&j->run->term->progress, "%s", j->on_gpus.text);
    return rc;
}

static void note_prompt(const job *j)
{
    char text[SW_UNSPELLED_NOTE_BYTES];

    sw_unspelled_note(text, sw_tokenizer_unspelled(j->tok));
    if (text[0]) sw_progress_note(&j->run->term->progress, "the prompt: %s", text);
}

/* The ids of the prompt; of a chat also the tokens that end its turns, as ends of the model. */
static sw_code make_prompt(job *j, sw_err *err)
{
    const generate_options *o = j->o;
    sw_model *m = &j->ckpt.model;
    sw_ids ends = {0};
    sw_code rc;

    if (!o->is_chat && !o->messages && !o->system)
        return sw_tokenizer_encode(j->tok, &j->prompt, o->prompt, strlen(o->prompt), true, err);
    rc = sw_chat_prompt(&j->prompt, &ends, j->tok, j->model_dir, o->system, o->messages,
                        o->prompt, err);
    for (int64_t i = 0; i < ends.n && rc == SW_OK; i++)
        if (!sw_is_eos(m, ends.ids[i]) && m->n_eos < SW_EOS_MAX)
            m->eos_ids[m->n_eos++] = (int64_t)ends.ids[i];
    sw_ids_free(&ends);
    return rc;
}

static sw_code load(job *j, sw_err *err)
{
    sw_lm_options how = {.n_threads = (int)j->o->common.threads};
    const sw_model *m;
    sw_code rc;

    if ((rc = sw_device_option_open_set(&j->gpus, j->o->device, j->o->device_bytes,
                                        j->run->devices, j->o->common.spread_layers != 0, err)) !=
            SW_OK ||
        (rc = sw_checkpoint_open(&j->ckpt, j->model_dir, err)) != SW_OK)
        return rc;
    m = &j->ckpt.model;
    if ((rc = sw_tokenizer_of_model(&j->tok, j->model_dir, m->vocab, err)) != SW_OK) return rc;
    if ((rc = make_prompt(j, err)) != SW_OK) return rc;
    note_prompt(j);
    if (!j->prompt.n && m->bos_id < 0)
        return SW_FAIL(err, SW_E_USAGE, "the model has no BOS token to begin with; give --prompt");
    if (!j->prompt.n && (rc = sw_ids_push(&j->prompt, (uint32_t)m->bos_id, err)) != SW_OK)
        return rc;
    if (wants_tokens(j->o) && j->o->n_tokens <= j->prompt.n)
        return SW_FAIL(err, SW_E_USAGE, "--n-tokens %lld leaves no room after a prompt of %lld",
                       (long long)j->o->n_tokens, (long long)j->prompt.n);
    how.keeps_marlin = j->gpus.n > 0;
    how.kv_kind = sw_kv_kind_of(j->o->kv_cache);
    if ((rc = sw_lm_open(&j->lm, &j->ckpt, &how, err)) != SW_OK) return rc;
    return make_engine(j, err);
}

/* Text is printed as it comes; a character whose bytes are not all there yet waits. */
static sw_code print_new_text(job *j, sw_err *err)
{
    char *text = NULL;
    size_t n = 0;
    sw_code rc = sw_tokenizer_decode(j->tok, &text, &n, j->sample.ids, j->sample.n, true, err);

    if (rc != SW_OK) return rc;
    if (n > j->printed_bytes && !(n >= 3 && !memcmp(text + n - 3, "\xef\xbf\xbd", 3))) {
        (void)fwrite(text + j->printed_bytes, 1, n - j->printed_bytes, stdout);
        (void)fflush(stdout);
        j->printed_bytes = n;
    }
    sw_mem_put(text);
    return SW_OK;
}

static sw_code take_token(void *self, uint32_t id, sw_err *err)
{
    job *j = self;
    sw_code rc;

    if ((rc = sw_progress_check(&j->run->term->progress, err)) != SW_OK) return rc;
    if ((rc = sw_ids_push(&j->sample, id, err)) != SW_OK) return rc;
    if (j->o->out || j->o->common.json) return SW_OK;
    if (!j->o->ids) return print_new_text(j, err);
    (void)printf("%s%u", j->sample.n > 1 ? " " : "", id);
    return SW_OK;
}

static sw_code draw_here(job *j, const sw_generate_options *g, const sw_token_sink *sink,
                         sw_err *err)
{
    sw_session *session = NULL;
    sw_code rc = sw_session_new(&session, j->engine, &j->lm, j->prompt.n + g->max_new, err);

    if (rc == SW_OK) sw_session_watch(session, &j->run->term->progress);
    if (rc == SW_OK)
        rc = sw_generate(session, &j->lm, j->prompt.ids, j->prompt.n, g, sink, &j->result, err);
    sw_session_free(session);
    return rc;
}

static sw_code draw_on_device(job *j, const sw_generate_options *g, const sw_token_sink *sink,
                              sw_err *err)
{
    sw_device_session *session = NULL;
    sw_code rc =
        sw_device_session_new(&session, j->on_gpus.lm, 1, j->prompt.n + g->max_new, &g->sampling,
                              err);

    if (rc == SW_OK) sw_device_session_watch(session, &j->run->term->progress);
    if (rc == SW_OK)
        rc = sw_device_generate(session, &j->ckpt.model, j->prompt.ids, j->prompt.n, g, sink,
                                &j->result, err);
    sw_device_session_free(session);
    return rc;
}

static sw_code draw_sample(job *j, int64_t i, sw_err *err)
{
    const generate_options *o = j->o;
    bool is_token_file = wants_tokens(o);
    sw_generate_options g = {
        .sampling = {o->temperature, o->top_k, o->top_p, (uint64_t)o->seed + (uint64_t)i},
        .max_new = is_token_file ? o->n_tokens - j->prompt.n : o->n_tokens,
        .ignores_eos = o->ignore_eos || is_token_file};
    sw_token_sink sink = {j, take_token};
    double start = sw_clock_s();
    sw_code rc;

    j->sample.n = 0;
    j->printed_bytes = 0;
    rc = (j->gpus.n ? draw_on_device : draw_here)(j, &g, &sink, err);
    j->seconds += sw_clock_s() - start;
    return rc;
}

static bool add_ids(cJSON *object, const char *key, const sw_ids *ids)
{
    cJSON *list = cJSON_AddArrayToObject(object, key);

    for (int64_t i = 0; list && i < ids->n; i++)
        if (!cJSON_AddItemToArray(list, cJSON_CreateNumber((double)ids->ids[i]))) return false;
    return list != NULL;
}

static sw_code add_json_sample(job *j, cJSON *list, sw_err *err)
{
    cJSON *row = cJSON_CreateObject();
    char *text = NULL;
    size_t n = 0;
    bool ok;
    sw_code rc;

    if (!row || !cJSON_AddItemToArray(list, row)) return sw_cmd_json_added(NULL, err);
    rc = sw_tokenizer_decode(j->tok, &text, &n, j->sample.ids, j->sample.n, true, err);
    if (rc != SW_OK) return rc;
    ok = add_ids(row, "ids", &j->sample) && cJSON_AddStringToObject(row, "text", text) &&
         cJSON_AddStringToObject(row, "ended_by", j->result.met_eos ? "eos" : "length");
    sw_mem_put(text);
    return ok ? SW_OK : sw_cmd_json_added(NULL, err);
}

/* Every sample, each handed to the file, the JSON object, or (while drawn) to stdout. */
static sw_code draw_all(job *j, cJSON *list, int64_t *n_new, sw_err *err)
{
    const generate_options *o = j->o;
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < o->samples && rc == SW_OK; i++) {
        if (o->samples > 1)
            sw_progress_step(&j->run->term->progress, "samples", i, o->samples);
        if ((rc = draw_sample(j, i, err)) != SW_OK) break;
        *n_new += j->result.n_new;
        if (o->out)
            rc = sw_sample_file_add(&j->file, j->tok, &j->prompt, &j->sample, err);
        if (rc == SW_OK && list)
            rc = add_json_sample(j, list, err);
        else if (!o->out)
            (void)puts("");
    }
    return rc;
}

static sw_code generate(job *j, sw_err *err)
{
    cJSON *object = NULL, *list = NULL;
    int64_t n_new = 0;
    sw_code rc;

    if (j->o->common.json) {
        if ((rc = sw_cmd_json_new(&object, "generate", err)) != SW_OK) return rc;
        list = cJSON_AddArrayToObject(object, "samples");
        if (!list || !add_ids(object, "prompt_ids", &j->prompt)) {
            rc = sw_cmd_json_added(NULL, err);
            goto done;
        }
    }
    if ((rc = draw_all(j, list, &n_new, err)) != SW_OK) goto done;
    if ((rc = sw_watch_check(err)) != SW_OK) goto done; /* a mixture of two models has spoken */
    if (j->o->out && (rc = sw_sample_file_write(&j->file, j->o->out, j->o->may_replace != 0,
                                             err)) != SW_OK)
        goto done;
    sw_progress_note(&j->run->term->progress, "%lld tokens at %.0f per second", (long long)n_new,
                     j->seconds > 0 ? (double)n_new / j->seconds : 0);
    if (object && !cJSON_AddNumberToObject(object, "tokens_per_second",
                                           j->seconds > 0 ? (double)n_new / j->seconds : 0))
        rc = sw_cmd_json_added(NULL, err);
    if (rc == SW_OK && object) rc = sw_cmd_json_print(j->run, object, err);
done:
    cJSON_Delete(object);
    return rc;
}

static sw_code run_generate(sw_run *run, sw_err *err)
{
    job *j = NULL;
    sw_code rc = SW_ARENA_TAKE(&j, run->arena, 1, err); /* too large a frame */

    if (rc != SW_OK) return rc;
    j->o = run->options;
    j->run = run;
    j->model_dir = run->args[0];
    if (j->o->out && !j->o->may_replace && sw_path_exists(j->o->out))
        return SW_FAIL(err, SW_E_USAGE, "%s: exists; give --force to replace it", j->o->out);
    if ((rc = load(j, err)) == SW_OK) rc = generate(j, err);
    job_free(j);
    return rc;
}

static bool may_spread(const void *given)
{
    (void)given;
    return true;
}

static const char *const examples[] = {
    "swage generate calib_data/tiny-llama --prompt 'The function returns' -n 40",
    "swage generate OUT --prompt 'Once' --temperature 0.8 --top-p 0.95 --seed 7",
    "swage generate MODEL --chat --system 'Be brief.' --prompt 'Why is the sky blue?' -n 200",
    "swage generate MODEL --prompt 'Once' --device cuda:0,1",
    "swage generate MODEL --samples 64 -n 512 --temperature 1 --seed 1000 -o build/calib.u16",
    NULL};

const sw_cmd sw_cmd_generate = {
    .name = "generate",
    .args = "MODEL [--prompt TEXT]",
    .summary = "let a model, original or quantized, continue a prompt",
    .more = "With --chat the prompt is put into the model's chat template, as it is served: from\n"
            "chat_template.jinja, chat_template.json or tokenizer_config.json of a directory, or\n"
            "the metadata of a GGUF. The template writes the BOS token where it wants one. An\n"
            "answer ends with the token that the template puts behind one, or with an end token "
            "of\n"
            "generation_config.json. A construct of a template that is not known here is refused\n"
            "with its line and column.\n"
            "With several devices (--device cuda, cuda:0,1) a model that has room on the first\n"
            "lies there alone; one that has not has its layers spread over all of them, and\n"
            "tokens run through them in turn. The text is the same.\n",
    .options = options,
    .options_bytes = sizeof(generate_options),
    .defaults = &defaults,
    .min_args = 1,
    .max_args = 1,
    .is_long = true,
    .may_spread = may_spread,
    .examples = examples,
    .run = run_generate,
};
