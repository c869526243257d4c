/* async_sink.c - see async_sink.h. */
#include "quant/run/async_sink.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/mem.h"

#define THREADS_MAX 8

/* A call that waits: of take, or (without a path) of end_block. */
typedef struct item {
    struct item *next;
    sw_linear_ref ref;
    char path[256];
    sw_qtensor q;
    sw_solve_report report;
    int64_t layer, n_bytes;
} item;

struct sw_async_sink {
    sw_quant_sink front, behind;
    pthread_t threads[THREADS_MAX];
    int n_threads, n_busy; /* n_busy: with a call of the sink behind */
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* in line, or in what is under way */
    bool is_ordered; /* one of them is with a call that keeps the order: no other may begin */
    bool is_ending;
    item *first, *last;
    int64_t n_bytes; /* that wait or are stored */
    sw_err failed;   /* code SW_OK: nothing has */
};

static void item_free(item *it)
{
    if (!it) return;
    sw_qtensor_free(&it->q);
    sw_mem_put(it);
}

/* What has to be in order. */
static sw_code hand_on(const sw_async_sink *a, const item *it, sw_err *err)
{
    const sw_quant_sink *s = &a->behind;

    if (!it->path[0]) return s->end_block(s->self, it->layer, err);
    return (s->store ? s->note : s->put)(s->self, &it->ref, it->path, &it->q, &it->report, err);
}

/* A linear may begin beside others; the end of a block waits for them. */
static bool may_begin(const sw_async_sink *a)
{
    return a->first && !a->is_ordered && (a->first->path[0] || !a->n_busy);
}

/* The first in line; NULL: there will be no more. */
static item *next_item(sw_async_sink *a)
{
    item *it;

    while (!a->is_ending && !may_begin(a)) (void)pthread_cond_wait(&a->changed, &a->mutex);
    if (a->is_ending) return NULL;
    it = a->first;
    a->first = it->next;
    if (!a->first) a->last = NULL;
    return it;
}

static sw_code store(const sw_async_sink *a, const item *it, sw_err *err)
{
    const sw_quant_sink *s = &a->behind;

    return it->path[0] && s->store ? s->store(s->self, it->path, &it->q, err) : SW_OK;
}

/* With the mutex held. */
static void note_failure(sw_async_sink *a, sw_code rc, const sw_err *err)
{
    if (rc != SW_OK && a->failed.code == SW_OK) a->failed = *err;
}

/* With the mutex held, but for the calls. */
static void serve(sw_async_sink *a, item *it)
{
    bool is_wanted = a->failed.code == SW_OK;
    sw_err err = {0};
    sw_code rc = SW_OK;

    a->n_busy++;
    a->is_ordered = true;
    (void)pthread_mutex_unlock(&a->mutex);
    if (is_wanted) rc = hand_on(a, it, &err);
    (void)pthread_mutex_lock(&a->mutex);
    note_failure(a, rc, &err);
    a->is_ordered = false;
    (void)pthread_cond_broadcast(&a->changed);
    (void)pthread_mutex_unlock(&a->mutex);
    if (is_wanted && rc == SW_OK) rc = store(a, it, &err);
    sw_qtensor_free(&it->q);
    (void)pthread_mutex_lock(&a->mutex);
    note_failure(a, rc, &err);
    a->n_bytes -= it->n_bytes;
    a->n_busy--;
    (void)pthread_cond_broadcast(&a->changed);
    item_free(it);
}

static void *work(void *self)
{
    sw_async_sink *a = self;
    item *it;

    (void)pthread_mutex_lock(&a->mutex);
    while ((it = next_item(a)) != NULL) serve(a, it);
    (void)pthread_mutex_unlock(&a->mutex);
    return NULL;
}

/* With the mutex held. */
static sw_code failure(const sw_async_sink *a, sw_err *err)
{
    return a->failed.code == SW_OK ? SW_OK : SW_FAIL(err, a->failed.code, "%s", a->failed.text);
}

sw_code sw_async_sink_drain(sw_async_sink *a, sw_err *err)
{
    sw_code rc;

    (void)pthread_mutex_lock(&a->mutex);
    while (a->first || a->n_busy) (void)pthread_cond_wait(&a->changed, &a->mutex);
    rc = failure(a, err);
    (void)pthread_mutex_unlock(&a->mutex);
    return rc;
}

/* Takes `it` over. */
static sw_code enqueue(sw_async_sink *a, item *it, sw_err *err)
{
    sw_code rc;

    (void)pthread_mutex_lock(&a->mutex);
    while ((a->first || a->n_busy) && a->n_bytes + it->n_bytes > SW_ASYNC_WAITING_BYTES)
        (void)pthread_cond_wait(&a->changed, &a->mutex);
    if ((rc = failure(a, err)) == SW_OK) {
        if (a->last) a->last->next = it;
        else a->first = it;
        a->last = it;
        a->n_bytes += it->n_bytes;
        it = NULL;
        (void)pthread_cond_broadcast(&a->changed);
    }
    (void)pthread_mutex_unlock(&a->mutex);
    item_free(it);
    return rc;
}

static int64_t bytes_of(const sw_qtensor *q)
{
    return q->n_out * (q->k_in + q->n_groups * (int64_t)(sizeof *q->scales + 1));
}

static sw_code take(void *self, const sw_linear_ref *ref, const char *path, sw_qtensor *q,
                    const sw_solve_report *report, sw_err *err)
{
    item *it = NULL;
    sw_code rc = SW_MEM_GET(&it, 1, "result", err);

    if (rc != SW_OK) return rc;
    it->ref = *ref;
    it->report = *report;
    it->q = *q;
    it->n_bytes = bytes_of(q);
    memset(q, 0, sizeof *q);
    (void)snprintf(it->path, sizeof it->path, "%s", path);
    return enqueue(self, it, err);
}

static sw_code end_block(void *self, int64_t layer, sw_err *err)
{
    item *it = NULL;
    sw_code rc = SW_MEM_GET(&it, 1, "result", err);

    if (rc != SW_OK) return rc;
    it->layer = layer;
    return enqueue(self, it, err);
}

/* ---- the rest: once nothing waits ---- */

#define BEHIND(a) (&((sw_async_sink *)(a))->behind)

static bool is_selected(void *self, const sw_linear_ref *ref, const char *path)
{
    return BEHIND(self)->is_selected(BEHIND(self)->self, ref, path);
}

static const sw_qspec *spec_of(void *self, const sw_linear_ref *ref, const char *path)
{
    return BEHIND(self)->spec_of(BEHIND(self)->self, ref, path);
}

static sw_code change(void *self, const char *name, const float *values, int64_t n, sw_err *err)
{
    sw_code rc = sw_async_sink_drain(self, err);

    return rc == SW_OK ? BEHIND(self)->change(BEHIND(self)->self, name, values, n, err) : rc;
}

static sw_code transformed(void *self, const sw_transform_report *report, sw_err *err)
{
    sw_code rc = sw_async_sink_drain(self, err);

    return rc == SW_OK ? BEHIND(self)->transformed(BEHIND(self)->self, report, err) : rc;
}

static sw_code put_kv(void *self, int64_t layer, float k_scale, float v_scale, sw_err *err)
{
    sw_code rc = sw_async_sink_drain(self, err);

    return rc == SW_OK ? BEHIND(self)->put_kv(BEHIND(self)->self, layer, k_scale, v_scale, err)
                       : rc;
}

static int64_t n_done(void *self) { return BEHIND(self)->n_done(BEHIND(self)->self); }

static sw_code get(void *self, sw_qtensor *q, const char *path, sw_err *err)
{
    sw_code rc = sw_async_sink_drain(self, err);

    return rc == SW_OK ? BEHIND(self)->get(BEHIND(self)->self, q, path, err) : rc;
}

static sw_code get_changed(void *self, bool *is_changed, float *values, int64_t n,
                           const char *name, sw_err *err)
{
    sw_code rc = sw_async_sink_drain(self, err);

    return rc == SW_OK ? BEHIND(self)->get_changed(BEHIND(self)->self, is_changed, values, n, name,
                                                   err)
                       : rc;
}

/* What the sink behind does not have, the front has not either. */
static sw_quant_sink front_of(sw_async_sink *a, const sw_quant_sink *behind)
{
    return (sw_quant_sink){.self = a, .take = take, .is_selected = is_selected,
                           .spec_of = behind->spec_of ? spec_of : NULL,
                           .change = behind->change ? change : NULL,
                           .transformed = behind->transformed ? transformed : NULL,
                           .put_kv = behind->put_kv ? put_kv : NULL,
                           .n_done = behind->n_done ? n_done : NULL,
                           .get = behind->get ? get : NULL,
                           .get_changed = behind->get_changed ? get_changed : NULL,
                           .end_block = behind->end_block ? end_block : NULL};
}

sw_code sw_async_sink_new(sw_async_sink **out, const sw_quant_sink *behind, int n_threads,
                          sw_err *err)
{
    sw_async_sink *a = NULL;
    sw_code rc = SW_MEM_GET(&a, 1, "sink", err);

    if (!behind->store || n_threads < 1) n_threads = 1;
    if (n_threads > THREADS_MAX) n_threads = THREADS_MAX;
    if (rc != SW_OK) return rc;
    a->behind = *behind;
    a->front = front_of(a, behind);
    (void)pthread_mutex_init(&a->mutex, NULL);
    (void)pthread_cond_init(&a->changed, NULL);
    while (a->n_threads < n_threads &&
           pthread_create(&a->threads[a->n_threads], NULL, work, a) == 0)
        a->n_threads++;
    if (a->n_threads) {
        *out = a;
        return SW_OK;
    }
    sw_async_sink_free(a);
    return SW_FAIL(err, SW_E_NOMEM, "no thread for writing");
}

const sw_quant_sink *sw_async_sink_front(const sw_async_sink *a) { return &a->front; }

void sw_async_sink_free(sw_async_sink *a)
{
    if (!a) return;
    (void)pthread_mutex_lock(&a->mutex);
    a->is_ending = true;
    (void)pthread_cond_broadcast(&a->changed);
    (void)pthread_mutex_unlock(&a->mutex);
    for (int i = 0; i < a->n_threads; i++) (void)pthread_join(a->threads[i], NULL);
    while (a->first) {
        item *it = a->first;
        a->first = it->next;
        item_free(it);
    }
    (void)pthread_cond_destroy(&a->changed);
    (void)pthread_mutex_destroy(&a->mutex);
    sw_mem_put(a);
}
