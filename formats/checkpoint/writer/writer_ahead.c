/* writer_ahead.c - what the checkpoint writer does on threads of its own while linears are made: it
 * digests the source, and copies the tensors that nobody will change.
 *
 * Neither decides a byte. Where no thread can be had, or none was asked for, the commit does the
 * same. What fails is what the commit fails with; whoever frees a writer before stops both.
 */
#include <errno.h>
#include <time.h>

#include "formats/base/parallel.h"
#include "formats/checkpoint/writer/writer_internal.h"
#include "formats/io/profile.h"

#define WAIT_NS 50000000 /* between two looks at whether the user wants to stop */
#define COPIERS 2 /* one waits for the disk while the other one digests */

static bool is_stopped(void *self) { return atomic_load(&((sw_writer_ahead *)self)->is_stopped); }

/* Neither bars nor notes, but a way to stop. */
static sw_progress quiet(sw_writer_ahead *ahead)
{
    return (sw_progress){.self = ahead, .is_cancelled = is_stopped};
}

static void *digest(void *self)
{
    sw_ckpt_writer *w = self;
    sw_ahead_task *task = &w->ahead.digest;
    const sw_progress progress = quiet(&w->ahead);
    sw_span span = sw_span_open("digest inputs");

    task->code = sw_manifest_sources(&w->sources, w->source, &w->listing, &progress, &task->err);
    sw_span_close(span, NULL);
    return NULL;
}

static void copy_some(void *self, int64_t begin, int64_t end, int thread)
{
    sw_ckpt_writer *w = self;
    sw_ahead_task *task = &w->ahead.copies;

    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        sw_err err = {0};
        sw_code rc;
        if (is_stopped(&w->ahead) || atomic_load(&task->has_failed)) return;
        if ((rc = sw_ckpt_writer_copy(w, i, &err)) == SW_OK) rc = sw_ckpt_writer_catch_up(w, &err);
        if (rc == SW_OK || atomic_exchange(&task->has_failed, true)) continue;
        task->code = rc; /* of the first that failed; read once the thread is joined */
        task->err = err;
    }
}

static void *copy(void *self)
{
    sw_parallel_for(COPIERS, sw_ckpt_writer_n_copies(self), 1, copy_some, self);
    return NULL;
}

/* Without a thread the commit does it. */
static void start(sw_ahead_task *task, void *(*work)(void *), sw_ckpt_writer *w)
{
    task->is_running = pthread_create(&task->thread, NULL, work, w) == 0;
}

/* Whoever waits for it may still be told to stop. */
static sw_code finish(sw_ckpt_writer *w, sw_ahead_task *task, sw_err *err)
{
    while (task->is_running) {
        struct timespec until;
        sw_err ignored = {0};
        (void)clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += WAIT_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        task->is_running = pthread_timedjoin_np(task->thread, NULL, &until) == ETIMEDOUT;
        if (task->is_running && sw_progress_check(w->progress, &ignored) != SW_OK)
            atomic_store(&w->ahead.is_stopped, true);
    }
    if (task->code != SW_OK) *err = task->err;
    return task->code;
}

void sw_writer_digest_ahead(sw_ckpt_writer *w) { start(&w->ahead.digest, digest, w); }

/* The commit and the journal's thread may ask at the same time. */
sw_code sw_ckpt_writer_digest(sw_ckpt_writer *w, sw_err *err)
{
    sw_code rc;

    (void)pthread_mutex_lock(&w->ahead.mutex);
    rc = finish(w, &w->ahead.digest, err);
    if (rc == SW_OK && !w->sources) {
        sw_span span = sw_span_open("digest inputs");
        rc = sw_manifest_sources(&w->sources, w->source, &w->listing, NULL, err);
        sw_span_close(span, NULL);
    }
    (void)pthread_mutex_unlock(&w->ahead.mutex);
    return rc;
}

void sw_ckpt_writer_copy_ahead(sw_ckpt_writer *w) { start(&w->ahead.copies, copy, w); }

/* What cannot be finished any more need not go on until the commit. */
sw_code sw_writer_check_copies(sw_ckpt_writer *w, sw_err *err)
{
    return atomic_load(&w->ahead.copies.has_failed) ? finish(w, &w->ahead.copies, err) : SW_OK;
}

sw_code sw_writer_wait_copies(sw_ckpt_writer *w, sw_err *err)
{
    return finish(w, &w->ahead.copies, err);
}

void sw_writer_stop_copies(sw_ckpt_writer *w)
{
    sw_err ignored = {0};

    atomic_store(&w->ahead.copies.has_failed, true);
    (void)!finish(w, &w->ahead.copies, &ignored);
}

void sw_writer_stop_digest(sw_ckpt_writer *w)
{
    sw_err ignored = {0};

    atomic_store(&w->ahead.is_stopped, true);
    (void)pthread_mutex_lock(&w->ahead.mutex);
    (void)!finish(w, &w->ahead.digest, &ignored);
    (void)pthread_mutex_unlock(&w->ahead.mutex);
}
