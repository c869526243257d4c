/* digest_back.c - see digest_back.h. */
#include "formats/io/digest_back.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "formats/io/file.h"
#include "formats/io/profile.h"

#define STEP SW_DIGEST_STEP_BYTES
#define PART_BYTES ((size_t)1 << 20)
#define FILES_MAX 64 /* of more the descriptors would be missing elsewhere */
#define THREADS 2 /* one waits for the disk while the other one sums up */

typedef struct back_step {
    uint8_t tag[SW_MAC_BYTES];
    bool is_read;
} back_step;

/* One file, in the state of one sw_digest_steps: those that begin anew have another key. */
typedef struct back_file {
    struct back_file *next;
    uint8_t key[SW_MAC_KEY_BYTES];
    int fd;
    dev_t dev;
    ino_t ino;
    back_step *steps; /* [n_ready] */
    int64_t n_ready, room, n_taken;
} back_file;

struct sw_digest_back {
    pthread_mutex_t mutex; /* of all but is_ending */
    pthread_cond_t changed;
    pthread_t threads[THREADS];
    uint8_t *parts[THREADS]; /* [PART_BYTES] each */
    int n_threads, n_entered, n_busy, n_files;
    atomic_bool is_ending;
    back_file *files;
};

/* --- a step --- */

/* On the disk, and out of the system's cache: who reads it asks the disk. */
static void let_go(int fd, uint64_t at)
{
    (void)sync_file_range(fd, (off_t)at, (off_t)STEP,
                          SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                              SYNC_FILE_RANGE_WAIT_AFTER);
    (void)posix_fadvise(fd, (off_t)at, (off_t)STEP, POSIX_FADV_DONTNEED);
    (void)posix_fadvise(fd, (off_t)at, (off_t)STEP, POSIX_FADV_WILLNEED);
}

/* false: it could not be read, or nobody wants to know any more. */
static bool add_part(sw_mac *mac, const sw_digest_back *b, uint8_t *part, int fd, uint64_t at)
{
    size_t n_bytes = 0;
    sw_err ignored = {0};

    while (n_bytes < PART_BYTES && !atomic_load(&b->is_ending)) {
        ssize_t n = pread(fd, part + n_bytes, PART_BYTES - n_bytes, (off_t)(at + n_bytes));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        n_bytes += (size_t)n;
    }
    return n_bytes == PART_BYTES && sw_mac_add(mac, part, n_bytes, &ignored) == SW_OK;
}

static bool read_step(uint8_t tag[SW_MAC_BYTES], const sw_digest_back *b, uint8_t *part,
                      const back_file *f, int64_t i)
{
    const uint64_t begin = (uint64_t)i * STEP;
    sw_mac *mac = NULL;
    sw_err ignored = {0};
    bool is_read = sw_mac_new(&mac, f->key, (uint64_t)i, &ignored) == SW_OK;

    if (is_read) let_go(f->fd, begin);
    for (uint64_t at = begin; at < begin + STEP && is_read; at += PART_BYTES)
        is_read = add_part(mac, b, part, f->fd, at);
    is_read = is_read && sw_mac_finish(tag, mac, &ignored) == SW_OK;
    sw_mac_free(mac);
    return is_read;
}

/* --- threads --- */

/* A file with a step that nobody has taken; NULL: none. */
static back_file *waiting(const sw_digest_back *b)
{
    back_file *f = b->files;

    while (f && f->n_taken == f->n_ready) f = f->next;
    return f;
}

/* With the mutex held, but for the reading. */
static void read_next(sw_digest_back *b, back_file *f, uint8_t *part)
{
    const int64_t i = f->n_taken++;
    const back_file now = *f; /* steps move when there are more */
    back_step step = {.is_read = false};
    sw_span span;

    b->n_busy++;
    (void)pthread_mutex_unlock(&b->mutex);
    span = sw_span_open("read behind");
    step.is_read = read_step(step.tag, b, part, &now, i);
    sw_span_close(span, NULL);
    (void)pthread_mutex_lock(&b->mutex);
    f->steps[i] = step;
    b->n_busy--;
    (void)pthread_cond_broadcast(&b->changed);
}

static void *work(void *self)
{
    sw_digest_back *b = self;
    uint8_t *part;

    (void)pthread_mutex_lock(&b->mutex);
    part = b->parts[b->n_entered++];
    while (!atomic_load(&b->is_ending)) {
        back_file *f = waiting(b);
        if (f) read_next(b, f, part);
        else (void)pthread_cond_wait(&b->changed, &b->mutex);
    }
    (void)pthread_mutex_unlock(&b->mutex);
    return NULL;
}

sw_code sw_digest_back_new(sw_digest_back **out, sw_err *err)
{
    sw_digest_back *b = NULL;
    sw_code rc = SW_MEM_GET(&b, 1, "reading back", err);

    if (rc != SW_OK) return rc;
    (void)pthread_mutex_init(&b->mutex, NULL);
    (void)pthread_cond_init(&b->changed, NULL);
    for (int i = 0; i < THREADS && rc == SW_OK; i++)
        rc = SW_MEM_GET(&b->parts[i], PART_BYTES, "reading back", err);
    while (rc == SW_OK && b->n_threads < THREADS &&
           pthread_create(&b->threads[b->n_threads], NULL, work, b) == 0)
        b->n_threads++;
    if (rc == SW_OK) *out = b;
    else sw_digest_back_free(b);
    return rc;
}

void sw_digest_back_free(sw_digest_back *b)
{
    if (!b) return;
    (void)pthread_mutex_lock(&b->mutex);
    atomic_store(&b->is_ending, true);
    (void)pthread_cond_broadcast(&b->changed);
    (void)pthread_mutex_unlock(&b->mutex);
    for (int i = 0; i < b->n_threads; i++) (void)pthread_join(b->threads[i], NULL);
    while (b->files) {
        back_file *f = b->files;
        b->files = f->next;
        close(f->fd);
        sw_mem_put(f->steps);
        sw_mem_put(f);
    }
    for (int i = 0; i < THREADS; i++) sw_mem_put(b->parts[i]);
    (void)pthread_cond_destroy(&b->changed);
    (void)pthread_mutex_destroy(&b->mutex);
    sw_mem_put(b);
}

/* --- what there is to read --- */

static back_file *find(const sw_digest_back *b, const sw_digest_steps *steps)
{
    back_file *f = b->files;

    while (f && memcmp(f->key, steps->key, sizeof f->key) != 0) f = f->next;
    return f;
}

/* NULL in *out: it is left to the end, as it cannot be opened now. */
static sw_code open_file(back_file **out, sw_digest_back *b, const sw_digest_steps *steps,
                         const char *path, sw_err *err)
{
    back_file *f = NULL;
    struct stat info;
    sw_code rc = SW_MEM_GET(&f, 1, "reading back", err);

    if (rc != SW_OK) return rc;
    do f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    while (f->fd < 0 && errno == EINTR);
    if (f->fd < 0 || fstat(f->fd, &info) != 0) {
        if (f->fd >= 0) close(f->fd);
        sw_mem_put(f);
        return SW_OK;
    }
    memcpy(f->key, steps->key, sizeof f->key);
    f->dev = info.st_dev;
    f->ino = info.st_ino;
    f->next = b->files;
    b->files = *out = f;
    b->n_files++;
    return SW_OK;
}

static sw_code make_room(back_file *f, int64_t n, sw_err *err)
{
    const int64_t larger = sw_max_i64(n, 2 * f->room);
    back_step *more = NULL;
    sw_code rc;

    if (n <= f->room) return SW_OK;
    if ((rc = SW_MEM_GET(&more, larger, "reading back", err)) != SW_OK) return rc;
    if (f->n_ready) memcpy(more, f->steps, (size_t)f->n_ready * sizeof *more);
    sw_mem_put(f->steps);
    f->steps = more;
    f->room = larger;
    return SW_OK;
}

sw_code sw_digest_back_ready(sw_digest_back *b, const sw_digest_steps *steps, const char *path,
                             sw_err *err)
{
    sw_code rc = SW_OK;
    back_file *f;

    if (!b || !b->n_threads || !steps->n_tags) return SW_OK;
    (void)pthread_mutex_lock(&b->mutex);
    if (!(f = find(b, steps)) && b->n_files < FILES_MAX)
        rc = open_file(&f, b, steps, path, err);
    if (rc == SW_OK && f) rc = make_room(f, steps->n_tags, err);
    if (rc == SW_OK && f) {
        f->n_ready = steps->n_tags;
        (void)pthread_cond_broadcast(&b->changed);
    }
    (void)pthread_mutex_unlock(&b->mutex);
    return rc;
}

void sw_digest_back_take(uint8_t (*tags)[SW_MAC_BYTES], bool *is_read, int64_t n,
                         sw_digest_back *b, const sw_digest_steps *steps, const char *path)
{
    struct stat info;
    back_file *f;

    memset(is_read, 0, (size_t)n * sizeof *is_read);
    if (!b || stat(path, &info) != 0) return;
    (void)pthread_mutex_lock(&b->mutex);
    while (b->n_busy || waiting(b)) (void)pthread_cond_wait(&b->changed, &b->mutex);
    f = find(b, steps);
    if (f && f->dev == info.st_dev && f->ino == info.st_ino)
        for (int64_t i = 0; i < sw_min_i64(n, f->n_ready); i++) {
            is_read[i] = f->steps[i].is_read;
            memcpy(tags[i], f->steps[i].tag, sizeof tags[i]);
        }
    (void)pthread_mutex_unlock(&b->mutex);
}
