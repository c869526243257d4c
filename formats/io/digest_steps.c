/* digest_steps.c - see digest_steps.h. */
#include "formats/io/digest_steps.h"

#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "formats/io/file.h"
#include "formats/io/watch.h"

#define STEP SW_DIGEST_STEP_BYTES

sw_code sw_digest_steps_begin(sw_digest_steps *out, sw_err *err)
{
    return sw_sha256_new(&out->sum, err);
}

void sw_digest_steps_free(sw_digest_steps *steps)
{
    for (int64_t i = 0; i < steps->n_marks; i++) sw_sha256_free(steps->marks[i]);
    sw_mem_put(steps->marks);
    sw_sha256_free(steps->sum);
    memset(steps, 0, sizeof *steps);
}

static sw_code add_mark(sw_digest_steps *s, sw_err *err)
{
    int64_t larger = s->room_marks ? 2 * s->room_marks : 64;
    sw_sha256 **more = NULL;
    sw_code rc;

    if (s->n_marks == s->room_marks) {
        if ((rc = SW_MEM_GET(&more, larger, "steps of a digest", err)) != SW_OK) return rc;
        if (s->n_marks) memcpy(more, s->marks, (size_t)s->n_marks * sizeof *more);
        sw_mem_put(s->marks);
        s->marks = more;
        s->room_marks = larger;
    }
    rc = sw_sha256_copy(&s->marks[s->n_marks], s->sum, err);
    if (rc == SW_OK) s->n_marks++;
    return rc;
}

sw_code sw_digest_steps_add(sw_digest_steps *s, const void *bytes, size_t n_bytes, sw_err *err)
{
    const unsigned char *from = bytes;
    sw_code rc = SW_OK;

    while (n_bytes && rc == SW_OK) {
        const uint64_t left = STEP - s->n_bytes % STEP;
        const size_t n = n_bytes < left ? n_bytes : (size_t)left;

        if ((rc = sw_sha256_add(s->sum, from, n, err)) != SW_OK) return rc;
        s->n_bytes += n;
        from += n;
        n_bytes -= n;
        if (s->n_bytes % STEP == 0) rc = add_mark(s, err);
    }
    return rc;
}

sw_code sw_digest_steps_finish(sw_digest_steps *s, sw_err *err)
{
    return sw_sha256_finish(s->digest, s->sum, err);
}

/* --- once more --- */

typedef struct check_job {
    const sw_digest_steps *steps;
    sw_map map;
    bool *is_same; /* [pieces] */
    sw_err *errs;  /* [pieces] code SW_OK: none */
} check_job;

/* What the digest comes to up to the end of a step, from a state that is left as it is. */
static sw_code digest_from(char out[SW_SHA256_HEX_BYTES], const sw_sha256 *state,
                           const unsigned char *bytes, size_t n_bytes, sw_err *err)
{
    sw_sha256 *sum = NULL;
    sw_code rc = state ? sw_sha256_copy(&sum, state, err) : sw_sha256_new(&sum, err);

    if (rc == SW_OK && n_bytes) rc = sw_sha256_add(sum, bytes, n_bytes, err);
    if (rc == SW_OK) rc = sw_sha256_finish(out, sum, err);
    sw_sha256_free(sum);
    return rc;
}

static sw_code check_step(bool *is_same, const check_job *job, int64_t i, sw_err *err)
{
    const sw_digest_steps *s = job->steps;
    const uint64_t begin = (uint64_t)i * STEP, left = s->n_bytes - begin;
    const size_t n = (size_t)(left < STEP ? left : STEP);
    const unsigned char *bytes = job->map.data + begin;
    char have[SW_SHA256_HEX_BYTES], want[SW_SHA256_HEX_BYTES];
    sw_code rc;

    sw_map_want(bytes, n);
    rc = digest_from(have, i ? s->marks[i - 1] : NULL, bytes, n, err);
    sw_map_forget(bytes, n);
    if (rc == SW_OK && i < s->n_marks)
        rc = digest_from(want, s->marks[i], NULL, 0, err);
    else if (rc == SW_OK)
        memcpy(want, s->digest, sizeof want);
    *is_same = rc == SW_OK && !strcmp(have, want);
    return rc;
}

static void check_some(void *ctx, int64_t begin, int64_t end, int thread)
{
    check_job *job = ctx;

    (void)thread;
    for (int64_t i = begin; i < end; i++)
        job->errs[i].code = check_step(&job->is_same[i], job, i, &job->errs[i]);
}

sw_code sw_digest_steps_check(bool *out, const sw_digest_steps *steps, const char *path,
                              int n_threads, sw_err *err)
{
    const int64_t n = steps->n_marks + 1; /* the last one may be empty */
    check_job job = {.steps = steps};
    sw_code rc = sw_map_open_any(&job.map, path, err);

    if (rc != SW_OK) return rc;
    *out = steps->digest[0] && job.map.size_bytes == steps->n_bytes;
    if (!*out) goto done;
    if ((rc = SW_MEM_GET(&job.is_same, n, "steps of a digest", err)) != SW_OK ||
        (rc = SW_MEM_GET(&job.errs, n, "failures", err)) != SW_OK)
        goto done;
    sw_parallel_for(n_threads, n, 1, check_some, &job);
    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        rc = job.errs[i].code;
        if (rc != SW_OK) *err = job.errs[i];
        *out = *out && job.is_same[i];
    }
    if (rc == SW_OK && *out) sw_watch_digest(path, steps->digest);
done:
    sw_mem_put(job.is_same);
    sw_mem_put(job.errs);
    sw_map_close(&job.map);
    return rc;
}
