/* convert_job.c - see convert_job.h: the work. */
#include "tools/convert/convert_job.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "formats/checkpoint/kv_stored.h"
#include "formats/checkpoint/writer/copy_codes.h"
#include "quant/method/frame.h"
#include "tools/card/card.h"
#include "tools/card/card_command.h"
#include "tools/convert/sidecar.h"

#define CREW_BYTES ((int64_t)768 << 20) /* of linears that are worked on side by side */

const char *sw_fate_name(sw_fate fate)
{
    static const char *const names[SW_FATE_COUNT] = {
        [SW_FATE_EXACT] = "exact", [SW_FATE_DECODED] = "decoded",
        [SW_FATE_REQUANTIZED] = "requantized"};

    return names[fate];
}

void sw_convert_free(sw_convert_job *job)
{
    sw_checkpoint_close(&job->source);
    sw_arena_free(&job->arena);
    memset(job, 0, sizeof *job);
}

/* --- the writer --- */

/* Module paths that the source leaves alone; patterns mean nothing to other dialects. */
static sw_code plain_ignores(sw_qconfig *config, sw_convert_job *job, sw_err *err)
{
    const sw_qconfig *from = &job->source.qconfig;
    const char **paths = NULL;
    sw_code rc = SW_ARENA_TAKE(&paths, &job->arena, from->n_ignore, err);

    if (rc != SW_OK) return rc;
    for (int64_t i = 0; i < from->n_ignore; i++)
        if (!strpbrk(from->ignore[i], "*:^$[("))
            paths[config->n_ignore++] = from->ignore[i];
    config->ignore = paths;
    return SW_OK;
}

/* What writes: the checkpoint, and the tiles beside it where they are wanted. */
typedef struct outputs {
    sw_ckpt_writer *writer;
    sw_sidecar *sidecar;
} outputs;

static sw_code open_outputs(outputs *out, sw_convert_job *job, sw_err *err)
{
    const sw_convert_options *o = &job->options;
    sw_qconfig config = {.damp = job->source.qconfig.damp};
    sw_ckpt_linear *linears = NULL;
    sw_code rc;

    if ((rc = SW_ARENA_TAKE(&linears, &job->arena, job->n_linears, err)) != SW_OK ||
        (rc = plain_ignores(&config, job, err)) != SW_OK)
        return rc;
    for (int64_t i = 0; i < job->n_linears; i++) {
        const sw_convert_linear *l = &job->linears[i];
        linears[i] = (sw_ckpt_linear){l->path, l->ref.n_out, l->ref.k_in, &l->to};
        config.desc_act = config.desc_act || l->to.is_scattered;
    }
    if (job->n_linears) config.spec = job->linears[0].to;
    config.kv_num = sw_kv_kept_num(&job->source, o->target);
    rc = sw_ckpt_writer_new(&out->writer, &job->source, o->out_dir, o->may_replace, o->target,
                            &config, linears, job->n_linears, o->shard_bytes, err);
    if (rc != SW_OK || !o->with_sidecar) return rc;
    return sw_sidecar_new(&out->sidecar, sw_ckpt_writer_work_dir(out->writer), linears,
                          job->n_linears, err);
}

/* --- one linear --- */

/* Blocks that are floats here: F32, whatever they are. */
static sw_code take_floats(float **out, const sw_convert_job *job, const sw_convert_linear *l,
                           sw_err *err)
{
    char name[300];
    sw_st_bytes bytes = {0};
    sw_code rc;

    (void)snprintf(name, sizeof name, "%s.weight", l->path);
    rc = sw_st_fetch(&bytes, sw_st_find(job->source.st, name), err);
    *out = bytes.made;
    return rc;
}

static sw_code decode_linear(float **out, const sw_convert_job *job, const sw_convert_linear *l,
                             sw_err *err)
{
    sw_qtensor q = {0};
    float *w = NULL;
    sw_code rc;

    if (l->blocks) return take_floats(out, job, l, err);
    rc = sw_checkpoint_qtensor(&q, &job->source, l->path, l->ref.n_out, l->ref.k_in, err);
    if (rc == SW_OK)
        rc = SW_MEM_GET(&w, l->ref.n_out * l->ref.k_in, "decoded weight", err);
    if (rc == SW_OK) sw_qtensor_decode(w, &q);
    sw_qtensor_free(&q);
    *out = w;
    return rc;
}

/* Largest magnitude over all that engines load as one with this linear, where they share one. */
static sw_code fused_amax(double *out, const sw_convert_job *job, const sw_convert_linear *l,
                          sw_err *err)
{
    sw_code rc = SW_OK;

    *out = 0;
    if (!l->to.has_global && l->to.scale_rows != SW_ROWS_ALL) return SW_OK;
    for (int64_t i = 0; i < job->n_linears && rc == SW_OK; i++) {
        const sw_convert_linear *other = &job->linears[i];
        float *w = NULL;
        if (other->ref.layer != l->ref.layer || other->ref.site != l->ref.site ||
            other->ref.expert != l->ref.expert)
            continue;
        if ((rc = decode_linear(&w, job, other, err)) == SW_OK)
            *out = fmax(*out, sw_weight_amax(w, other->ref.n_out * other->ref.k_in));
        sw_mem_put(w);
    }
    return rc;
}

static sw_code round_again(sw_qtensor *q, sw_convert_job *job, sw_convert_linear *l, sw_err *err)
{
    double amax = 0;
    float *w = NULL;
    sw_code rc = fused_amax(&amax, job, l, err);

    if (rc == SW_OK) rc = decode_linear(&w, job, l, err);
    if (rc == SW_OK)
        rc = sw_requantize(q, &l->error, w, l->ref.n_out, l->ref.k_in, &l->to, amax,
                           job->options.n_threads, err);
    sw_mem_put(w);
    return rc;
}

/* The same weight under the words of the target: nothing of it changes. */
static sw_code carry(sw_qtensor *q, const sw_convert_job *job, const sw_convert_linear *l,
                     sw_err *err)
{
    sw_code rc = sw_checkpoint_qtensor(q, &job->source, l->path, l->ref.n_out, l->ref.k_in, err);

    if (rc == SW_OK) q->spec = l->to;
    return rc;
}

/* In windows where nothing but the target needs it, else as a whole. */
static sw_code convert_linear(const outputs *out, sw_convert_job *job, sw_convert_linear *l,
                              sw_copy_codes_room *room, sw_err *err)
{
    sw_qtensor q = {0};
    bool is_done = false;
    sw_code rc = SW_OK;

    if (l->fate != SW_FATE_REQUANTIZED && !out->sidecar)
        rc = sw_ckpt_writer_copy_codes(&is_done, out->writer, l->path, room, err);
    if (rc != SW_OK || is_done) return rc;
    rc = l->fate == SW_FATE_REQUANTIZED ? round_again(&q, job, l, err) : carry(&q, job, l, err);
    if (rc == SW_OK) rc = sw_ckpt_writer_put(out->writer, l->path, &q, err);
    if (rc == SW_OK && out->sidecar) rc = sw_sidecar_put(out->sidecar, l->path, &q, err);
    sw_qtensor_free(&q);
    sw_st_forget(job->source.st);
    return rc;
}

/* --- the whole --- */

typedef struct card_job {
    sw_convert_job *job;
    cJSON *manifest;
} card_job;

static sw_code put_card(void *self, const char *work_dir, const cJSON *sources, sw_err *err)
{
    const card_job *c = self;

    return sw_card_put(c->manifest, sources, &c->job->source, work_dir, err);
}

static sw_code commit(const outputs *out, sw_convert_job *job, sw_err *err)
{
    cJSON *manifest = NULL;
    sw_code rc = sw_convert_json(&manifest, job, "manifest", true, err);
    card_job card = {job, manifest};

    if (rc == SW_OK && job->options.command)
        rc = sw_card_command_add(manifest, job->options.command, &job->source, err);
    if (rc == SW_OK && !job->options.no_card)
        sw_ckpt_writer_at_end(out->writer, put_card, &card);
    if (rc == SW_OK && out->sidecar) rc = sw_sidecar_commit(out->sidecar, err);
    if (rc == SW_OK) rc = sw_ckpt_writer_commit(out->writer, manifest, err);
    if (rc == SW_OK && sw_ckpt_writer_note(out->writer)[0])
        sw_progress_note(job->progress, "%s", sw_ckpt_writer_note(out->writer));
    if (rc == SW_OK) sw_ckpt_writer_say_kv(out->writer, job->progress);
    cJSON_Delete(manifest);
    return rc;
}

static sw_code weigh(sw_convert_job *job, sw_err *err)
{
    sw_st *written = NULL;
    sw_code rc = sw_st_open(&written, job->options.out_dir, err);

    if (rc != SW_OK) return rc;
    for (int64_t i = 0; i < sw_st_count(written); i++)
        job->out_bytes += sw_st_at(written, i)->view.size_bytes;
    sw_st_close(written);
    return SW_OK;
}

/* Pieces of work side by side: first the digest of the source, which takes longest, then what is
 * only copied, as most of it lies before all else in the output, whose digest waits for it, then
 * linears, in the order in which they lie there. */
typedef struct crew {
    sw_convert_job *job;
    const outputs *out;
    int64_t n_copies;
    sw_code *codes; /* one per piece */
    sw_err *errs;
    sw_copy_codes_room *rooms; /* one per thread */
    int64_t done, total; /* weights */
    bool has_failed;
} crew;

static bool may_go_on(crew *c)
{
    sw_err ignored = {0};
    bool ok;

#pragma omp critical(convert_crew)
    {
        if (sw_progress_check(c->job->progress, &ignored) != SW_OK) c->has_failed = true;
        ok = !c->has_failed;
    }
    return ok;
}

static void note_done(crew *c, sw_code rc, const sw_convert_linear *l)
{
#pragma omp critical(convert_crew)
    {
        c->has_failed = c->has_failed || rc != SW_OK;
        c->done += l ? l->ref.n_out * l->ref.k_in : 0;
        if (l && !c->has_failed) sw_progress_item(c->job->progress, l->path);
        if (!c->has_failed) sw_progress_step(c->job->progress, "convert", c->done, c->total);
    }
}

static void do_piece(void *ctx, int64_t begin, int64_t end, int thread)
{
    crew *c = ctx;
    const int64_t first_linear = 1 + c->n_copies;

    for (int64_t i = begin; i < end && may_go_on(c); i++) {
        bool is_linear = i >= first_linear;
        sw_convert_linear *l = is_linear ? &c->job->linears[i - first_linear] : NULL;
        sw_ckpt_writer *w = c->out->writer;
        sw_code rc = l ? convert_linear(c->out, c->job, l, &c->rooms[thread], &c->errs[i])
                       : i ? sw_ckpt_writer_copy(w, i - 1, &c->errs[i])
                           : sw_ckpt_writer_digest(w, &c->errs[i]);
        c->codes[i] = rc == SW_OK ? sw_ckpt_writer_catch_up(w, &c->errs[i]) : rc;
        note_done(c, c->codes[i], l);
    }
}

/* Bytes that a linear takes while it is converted: codes, what they are encoded to, and floats
 * where it is decoded. */
static int64_t piece_bytes(const sw_convert_job *job, const sw_convert_linear *l)
{
    static const int64_t per_weight[SW_FATE_COUNT] = {
        [SW_FATE_EXACT] = 2, [SW_FATE_DECODED] = 5, [SW_FATE_REQUANTIZED] = 8};

    return l->ref.n_out * l->ref.k_in *
           (per_weight[l->fate] + (job->options.with_sidecar ? 1 : 0));
}

/* As many side by side as the memory is worth, however many processors there are; but one more than
 * those where all may be used, since somebody always waits for the disk. */
static int crew_size(const sw_convert_job *job)
{
    int64_t n_threads = job->options.n_threads, largest = 1, n;

    for (int64_t i = 0; i < job->n_linears; i++)
        largest = sw_max_i64(largest, piece_bytes(job, &job->linears[i]));
    if (n_threads > 1 && n_threads == sw_cpu_count()) n_threads++;
    n = sw_min_i64(CREW_BYTES / largest, n_threads);
    return (int)sw_max_i64(n, 1);
}

static sw_code do_all(sw_convert_job *job, const outputs *out, sw_err *err)
{
    crew c = {.job = job, .out = out, .n_copies = sw_ckpt_writer_n_copies(out->writer)};
    int64_t n = 1 + job->n_linears + c.n_copies;
    sw_code rc;

    for (int64_t i = 0; i < job->n_linears; i++)
        c.total += job->linears[i].ref.n_out * job->linears[i].ref.k_in;
    if ((rc = SW_MEM_GET(&c.codes, n, "results", err)) != SW_OK) return rc;
    if ((rc = SW_MEM_GET(&c.errs, n, "results", err)) == SW_OK &&
        (rc = SW_MEM_GET(&c.rooms, crew_size(job), "buffers", err)) == SW_OK)
        sw_parallel_for(crew_size(job), n, 1, do_piece, &c);
    for (int64_t i = 0; i < n && rc == SW_OK; i++)
        if (c.codes[i] != SW_OK) rc = SW_FAIL(err, c.codes[i], "%s", c.errs[i].text);
    if (rc == SW_OK) rc = sw_progress_check(job->progress, err);
    for (int i = 0; c.rooms && i < crew_size(job); i++) sw_copy_codes_free(&c.rooms[i]);
    sw_mem_put(c.rooms);
    sw_mem_put(c.codes);
    sw_mem_put(c.errs);
    return rc;
}

sw_code sw_convert_run(sw_convert_job *job, sw_err *err)
{
    outputs out = {NULL, NULL};
    sw_code rc = open_outputs(&out, job, err);

    if (rc == SW_OK) rc = do_all(job, &out, err);
    if (rc == SW_OK) rc = commit(&out, job, err);
    sw_sidecar_free(out.sidecar); /* first: it grows in the writer's directory */
    sw_ckpt_writer_free(out.writer);
    return rc == SW_OK ? weigh(job, err) : rc;
}
