/* digest_steps.c - see digest_steps.h. */
#include "formats/io/digest_steps.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/mem.h"
#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "formats/io/digest_back.h"
#include "formats/io/file.h"
#include "formats/io/watch.h"

#define STEP SW_DIGEST_STEP_BYTES
#define PART_BYTES ((size_t)32 << 10) /* that both sums take while it is in the first cache */

sw_code sw_digest_steps_begin(sw_digest_steps *out, sw_err *err)
{
    sw_code rc = sw_mac_key(out->key, err);

    return rc == SW_OK ? sw_sha256_new(&out->sum, err) : rc;
}

void sw_digest_steps_free(sw_digest_steps *steps)
{
    sw_mac_free(steps->mac);
    sw_mem_put(steps->tags);
    sw_sha256_free(steps->sum);
    memset(steps, 0, sizeof *steps);
}

static sw_code make_room(sw_digest_steps *s, sw_err *err)
{
    const int64_t larger = s->room_tags ? 2 * s->room_tags : 64;
    uint8_t (*more)[SW_MAC_BYTES] = NULL;
    sw_code rc;

    if (s->n_tags < s->room_tags) return SW_OK;
    if ((rc = SW_MEM_GET(&more, larger, "steps of a digest", err)) != SW_OK) return rc;
    if (s->n_tags) memcpy(more, s->tags, (size_t)s->n_tags * sizeof *more);
    sw_mem_put(s->tags);
    s->tags = more;
    s->room_tags = larger;
    return SW_OK;
}

/* The step under way is complete. */
static sw_code end_step(sw_digest_steps *s, sw_err *err)
{
    sw_code rc = make_room(s, err);

    if (rc == SW_OK) rc = sw_mac_finish(s->tags[s->n_tags], s->mac, err);
    if (rc != SW_OK) return rc;
    sw_mac_free(s->mac);
    s->mac = NULL;
    s->n_tags++;
    return SW_OK;
}

static sw_code add_part(sw_digest_steps *s, const unsigned char *from, size_t n, sw_err *err)
{
    sw_code rc = sw_sha256_add(s->sum, from, n, err);

    if (rc == SW_OK && s->has_tags && !s->mac)
        rc = sw_mac_new(&s->mac, s->key, (uint64_t)s->n_tags, err);
    if (rc == SW_OK && s->mac) rc = sw_mac_add(s->mac, from, n, err);
    if (rc != SW_OK) return rc;
    s->n_bytes += n;
    return s->mac && s->n_bytes % STEP == 0 ? end_step(s, err) : SW_OK;
}

sw_code sw_digest_steps_add(sw_digest_steps *s, const void *bytes, size_t n_bytes, sw_err *err)
{
    const unsigned char *from = bytes;
    sw_code rc = SW_OK;

    while (n_bytes && rc == SW_OK) {
        const uint64_t left = STEP - s->n_bytes % STEP;
        size_t n = n_bytes < PART_BYTES ? n_bytes : PART_BYTES;

        if (n > left) n = (size_t)left;
        rc = add_part(s, from, n, err);
        from += n;
        n_bytes -= n;
    }
    return rc;
}

sw_code sw_digest_steps_finish(sw_digest_steps *s, sw_err *err)
{
    sw_code rc = s->mac ? end_step(s, err) : SW_OK;

    return rc == SW_OK ? sw_sha256_finish(s->digest, s->sum, err) : rc;
}

/* --- once more --- */

typedef struct check_job {
    const sw_digest_steps *steps;
    sw_map map;
    uint8_t (*tags)[SW_MAC_BYTES]; /* [n_tags] of the steps as the disk has them */
    bool *is_read;                 /* [n_tags] already */
    sw_err *errs;                  /* [n_tags] code SW_OK: none */
} check_job;

static sw_code read_step(const check_job *job, int64_t i, sw_err *err)
{
    const uint64_t begin = (uint64_t)i * STEP, left = job->steps->n_bytes - begin;
    const size_t n = (size_t)(left < STEP ? left : STEP);
    const unsigned char *bytes = job->map.data + begin;
    sw_mac *mac = NULL;
    sw_code rc = sw_mac_new(&mac, job->steps->key, (uint64_t)i, err);

    sw_map_want(bytes, n);
    if (rc == SW_OK) rc = sw_mac_add(mac, bytes, n, err);
    if (rc == SW_OK) rc = sw_mac_finish(job->tags[i], mac, err);
    sw_map_forget(bytes, n);
    sw_mac_free(mac);
    return rc;
}

static void read_some(void *ctx, int64_t begin, int64_t end, int thread)
{
    check_job *job = ctx;

    (void)thread;
    for (int64_t i = begin; i < end; i++)
        if (!job->is_read[i]) job->errs[i].code = read_step(job, i, &job->errs[i]);
}

/* What the system's cache holds of steps that nobody has read back is what was written, and not
 * what the disk has. */
static void let_go(const check_job *job, const char *path)
{
    int fd;

    do fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return; /* it is read from wherever it is */
    for (int64_t i = 0; i < job->steps->n_tags; i++)
        if (!job->is_read[i])
            (void)posix_fadvise(fd, (off_t)((uint64_t)i * STEP), (off_t)STEP, POSIX_FADV_DONTNEED);
    close(fd);
}

static sw_code read_all(bool *out, check_job *job, sw_digest_back *back, const char *path,
                        int n_threads, sw_err *err)
{
    const sw_digest_steps *s = job->steps;
    const int64_t n = s->n_tags;
    sw_code rc;

    if ((rc = SW_MEM_GET(&job->is_read, n, "steps of a digest", err)) != SW_OK ||
        (rc = SW_MEM_GET(&job->tags, n, "steps of a digest", err)) != SW_OK ||
        (rc = SW_MEM_GET(&job->errs, n, "failures", err)) != SW_OK)
        return rc;
    sw_digest_back_take(job->tags, job->is_read, n, back, s, path);
    let_go(job, path);
    sw_parallel_for(n_threads, n, 1, read_some, job);
    for (int64_t i = 0; i < n; i++) {
        if (job->errs[i].code != SW_OK) {
            *err = job->errs[i];
            return err->code;
        }
        *out = *out && !memcmp(job->tags[i], s->tags[i], sizeof *s->tags);
    }
    return SW_OK;
}

sw_code sw_digest_steps_check(bool *out, const sw_digest_steps *steps, sw_digest_back *back,
                              const char *path, int n_threads, sw_err *err)
{
    check_job job = {.steps = steps};
    sw_code rc = sw_map_open_any(&job.map, path, err);

    if (rc != SW_OK) return rc;
    *out = steps->digest[0] && steps->has_tags && job.map.size_bytes == steps->n_bytes;
    if (*out) rc = read_all(out, &job, back, path, n_threads, err);
    if (rc == SW_OK && *out) sw_watch_digest(path, steps->digest);
    sw_mem_put(job.is_read);
    sw_mem_put(job.tags);
    sw_mem_put(job.errs);
    sw_map_close(&job.map);
    return rc;
}
