/* file_content.c - see file_content.h. */
#include "formats/io/file_content.h"

#include "formats/base/mem.h"
#include "formats/base/parallel.h"
#include "formats/io/file.h"
#include "formats/io/watch.h"

#define FILE_STEP_BYTES ((size_t)16 << 20)

static sw_code add_map(sw_sha256 *sum, const sw_map *map, const sw_progress *progress, sw_err *err)
{
    for (size_t at = 0; at < map->size_bytes; at += FILE_STEP_BYTES) {
        size_t left = map->size_bytes - at, n = left < FILE_STEP_BYTES ? left : FILE_STEP_BYTES;
        sw_code rc = sw_progress_check(progress, err);

        if (rc != SW_OK) return rc;
        sw_map_want(map->data + at, left < 2 * n ? left : 2 * n); /* and what comes next */
        if ((rc = sw_sha256_add(sum, map->data + at, n, err)) != SW_OK) return rc;
        sw_map_forget(map->data + at, n);
    }
    return SW_OK;
}

static sw_code digest_file(char out[SW_SHA256_HEX_BYTES], const char *path,
                           const sw_progress *progress, sw_err *err)
{
    sw_map map = {0};
    sw_sha256 *sum = NULL;
    sw_code rc;

    if ((rc = sw_map_open_any(&map, path, err)) != SW_OK) return rc;
    if ((rc = sw_sha256_new(&sum, err)) != SW_OK ||
        (rc = add_map(sum, &map, progress, err)) != SW_OK ||
        (rc = sw_sha256_finish(out, sum, err)) != SW_OK)
        goto done;
    sw_watch_digest(path, out);
done:
    sw_sha256_free(sum);
    sw_map_close(&map);
    return rc;
}

sw_code sw_sha256_file(char out[SW_SHA256_HEX_BYTES], const char *path, sw_err *err)
{
    return digest_file(out, path, NULL, err);
}

typedef struct digest_job {
    char (*out)[SW_SHA256_HEX_BYTES];
    const char *const *paths;
    sw_err *errs; /* [n] code SW_OK: none */
    const sw_progress *progress;
    int64_t n, n_done;
} digest_job;

static void digest_one(digest_job *job, int64_t i)
{
    sw_err *err = &job->errs[i];

    err->code = digest_file(job->out[i], job->paths[i], job->progress, err);
#pragma omp critical(digest_progress)
    sw_progress_step(job->progress, "digest files", ++job->n_done, job->n);
}

static void digest_some(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    for (int64_t i = begin; i < end; i++) digest_one(ctx, i);
}

sw_code sw_sha256_files(char (*out)[SW_SHA256_HEX_BYTES], const char *const *paths, int64_t n,
                        const sw_progress *progress, sw_err *err)
{
    digest_job job = {.out = out, .paths = paths, .progress = progress, .n = n};
    sw_code rc = SW_MEM_GET(&job.errs, n, "failures", err);

    if (rc == SW_OK && n) sw_progress_step(progress, "digest files", 0, n);
    if (rc == SW_OK) sw_parallel_for(sw_cpu_count(), n, 1, digest_some, &job);
    for (int64_t i = 0; i < n && rc == SW_OK; i++)
        if (job.errs[i].code != SW_OK) {
            *err = job.errs[i];
            rc = job.errs[i].code;
        }
    sw_mem_put(job.errs);
    return rc;
}

sw_code sw_json_read(cJSON **out, const char *path, const sw_json_caps *caps, sw_err *err)
{
    sw_map map = {0};
    sw_code rc;

    if ((rc = sw_map_open(&map, path, err)) != SW_OK) return rc;
    rc = sw_json_parse(out, (const char *)map.data, map.size_bytes, caps, path, err);
    sw_map_close(&map);
    return rc;
}
