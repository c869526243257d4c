/* test_async_sink.c - results handed on by other threads: all of them, in order, as they were; what
 * may be side by side; and what happens once one cannot be handed on. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "quant/run/async_sink.h"

enum { N = 6, K = 32, CALLS = 64 };

/* What the sink behind has seen, in order. */
typedef struct seen {
    char calls[CALLS][32];
    int n;
    int fails_at;      /* the call that fails, or -1 */
    useconds_t pause;  /* of every put */
    uint8_t last_code; /* of the last put tensor's last element */
    float last_scale;
} seen;

static sw_code note(seen *s, const char *what, sw_err *err)
{
    assert_true(s->n < CALLS);
    (void)snprintf(s->calls[s->n], sizeof s->calls[0], "%s", what);
    return s->n++ == s->fails_at ? SW_FAIL(err, SW_E_IO, "no room for %s", what) : SW_OK;
}

static sw_code put(void *self, const sw_linear_ref *ref, const char *path, const sw_qtensor *q,
                   const sw_solve_report *report, sw_err *err)
{
    seen *s = self;

    (void)usleep(s->pause);
    assert_int_equal(ref->layer, report->n_tokens);
    s->last_code = q->codes[q->n_out * q->k_in - 1];
    s->last_scale = q->scales[q->n_out * q->n_groups - 1];
    return note(s, path, err);
}

static sw_code end_block(void *self, int64_t layer, sw_err *err)
{
    char text[32];

    (void)snprintf(text, sizeof text, "end %d", (int)layer);
    return note(self, text, err);
}

static sw_code change(void *self, const char *name, const float *values, int64_t n, sw_err *err)
{
    (void)values;
    (void)n;
    return note(self, name, err);
}

static int64_t n_done(void *self)
{
    (void)self;
    return 7;
}

static sw_quant_sink sink_of(seen *s)
{
    return (sw_quant_sink){.self = s, .put = put, .end_block = end_block, .change = change,
                           .n_done = n_done};
}

/* What was taken is the sink's alone. */
static sw_code put_one(const sw_quant_sink *to, int64_t layer, const char *path, uint8_t code,
                       sw_err *err)
{
    sw_qspec spec = {.num = sw_num_by_bits(4), .is_symmetric = true, .group_elems = 16,
                     .scale_dtype = SW_DTYPE_F32};
    sw_linear_ref ref = {.layer = layer, .n_out = N, .k_in = K};
    sw_solve_report report = {.n_tokens = layer};
    sw_qtensor q = {0};
    sw_code rc;

    assert_int_equal(sw_qtensor_alloc(&q, &spec, N, K, err), SW_OK);
    memset(q.codes, code, N * K);
    for (int i = 0; i < N * K / 16; i++) q.scales[i] = (float)code;
    rc = to->take(to->self, &ref, path, &q, &report, err);
    assert_null(q.codes);
    sw_qtensor_free(&q);
    return rc;
}

static void test_order_is_kept(void **state)
{
    static const char *const want[] = {"a", "b", "end 0", "norm", "c", "end 1"};
    seen s = {.fails_at = -1, .pause = 2000};
    sw_quant_sink behind = sink_of(&s);
    const sw_quant_sink *front;
    sw_async_sink *async = NULL;
    sw_err err = {0};

    (void)state;
    assert_int_equal(sw_async_sink_new(&async, &behind, 1, &err), SW_OK);
    front = sw_async_sink_front(async);
    assert_null(front->put_kv); /* nor has the one behind */
    assert_null(front->get);
    assert_int_equal(front->n_done(front->self), 7);
    assert_int_equal(put_one(front, 0, "a", 3, &err), SW_OK);
    assert_int_equal(put_one(front, 0, "b", 4, &err), SW_OK);
    assert_int_equal(front->end_block(front->self, 0, &err), SW_OK);
    assert_int_equal(front->change(front->self, "norm", NULL, 0, &err), SW_OK);
    assert_int_equal(s.n, 4); /* a change waits for what came before */
    assert_int_equal(put_one(front, 1, "c", 9, &err), SW_OK);
    assert_int_equal(front->end_block(front->self, 1, &err), SW_OK);
    assert_int_equal(sw_async_sink_drain(async, &err), SW_OK);
    assert_int_equal(s.n, 6);
    for (int i = 0; i < 6; i++) assert_string_equal(s.calls[i], want[i]);
    assert_int_equal(s.last_code, 9);
    assert_true(s.last_scale == 9.0f);
    sw_async_sink_free(async);
}

/* The first failure is told, once or often; nothing is handed on after it. */
static void test_failure_is_told(void **state)
{
    seen s = {.fails_at = 1};
    sw_quant_sink behind = sink_of(&s);
    const sw_quant_sink *front;
    sw_async_sink *async = NULL;
    sw_err err = {0}, later = {0};

    (void)state;
    assert_int_equal(sw_async_sink_new(&async, &behind, 1, &err), SW_OK);
    front = sw_async_sink_front(async);
    assert_int_equal(put_one(front, 0, "a", 3, &err), SW_OK);
    assert_int_equal(put_one(front, 0, "b", 4, &err), SW_OK);
    assert_int_equal(sw_async_sink_drain(async, &err), SW_E_IO);
    assert_non_null(strstr(err.text, "no room for b"));
    assert_int_equal(put_one(front, 0, "c", 4, &later), SW_E_IO);
    assert_non_null(strstr(later.text, "no room for b"));
    assert_int_equal(front->change(front->self, "norm", NULL, 0, &later), SW_E_IO);
    assert_int_equal(s.n, 2);
    sw_async_sink_free(async);
}

/* A run that fails elsewhere lets go of what still waits. */
static void test_waiting_is_dropped(void **state)
{
    seen s = {.fails_at = -1, .pause = 20000};
    sw_quant_sink behind = sink_of(&s);
    sw_async_sink *async = NULL;
    sw_err err = {0};

    (void)state;
    assert_int_equal(sw_async_sink_new(&async, &behind, 1, &err), SW_OK);
    for (int i = 0; i < 20; i++)
        assert_int_equal(put_one(sw_async_sink_front(async), 0, "a", 1, &err), SW_OK);
    sw_async_sink_free(async);
    assert_true(s.n < 20);
    sw_async_sink_free(NULL);
}

/* A sink that stores: how many at once, and what came when. */
typedef struct stores {
    seen s; /* notes and ends of blocks */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int n_inside, n_most, n_stored, n_at_end[2];
} stores;

static sw_code note_of(void *self, const sw_linear_ref *ref, const char *path, const sw_qtensor *q,
                       const sw_solve_report *report, sw_err *err)
{
    (void)ref;
    (void)q;
    (void)report;
    return note(&((stores *)self)->s, path, err);
}

/* The first two wait for each other, unless that takes longer than any scheduler does. */
static sw_code store(void *self, const char *path, const sw_qtensor *q, sw_err *err)
{
    stores *x = self;
    struct timespec until;

    (void)err;
    assert_int_equal(q->codes[0], path[0] - 'a');
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    (void)pthread_mutex_lock(&x->mutex);
    x->n_inside++;
    if (x->n_inside > x->n_most) x->n_most = x->n_inside;
    (void)pthread_cond_broadcast(&x->changed);
    while (x->n_most < 2 && pthread_cond_timedwait(&x->changed, &x->mutex, &until) == 0) {}
    x->n_inside--;
    x->n_stored++;
    (void)pthread_mutex_unlock(&x->mutex);
    return SW_OK;
}

static sw_code end_of(void *self, int64_t layer, sw_err *err)
{
    stores *x = self;

    assert_int_equal(x->n_inside, 0);
    x->n_at_end[layer] = x->n_stored;
    return end_block(&x->s, layer, err);
}

static void test_stores_side_by_side(void **state)
{
    static const char *const want[] = {"a", "b", "c", "end 0", "d", "e", "end 1"};
    stores x = {.s = {.fails_at = -1}, .mutex = PTHREAD_MUTEX_INITIALIZER,
                .changed = PTHREAD_COND_INITIALIZER};
    const sw_quant_sink behind = {.self = &x, .note = note_of, .store = store,
                                  .end_block = end_of};
    const sw_quant_sink *front;
    sw_async_sink *async = NULL;
    sw_err err = {0};

    (void)state;
    assert_int_equal(sw_async_sink_new(&async, &behind, 3, &err), SW_OK);
    front = sw_async_sink_front(async);
    for (int i = 0; i < 7; i++) {
        if (want[i][1]) assert_int_equal(front->end_block(front->self, i / 4, &err), SW_OK);
        else assert_int_equal(put_one(front, i / 4, want[i], (uint8_t)(want[i][0] - 'a'), &err),
                              SW_OK);
    }
    assert_int_equal(sw_async_sink_drain(async, &err), SW_OK);
    assert_int_equal(x.s.n, 7);
    for (int i = 0; i < 7; i++) assert_string_equal(x.s.calls[i], want[i]);
    assert_true(x.n_most >= 2);
    assert_int_equal(x.n_at_end[0], 3);
    assert_int_equal(x.n_at_end[1], 5);
    sw_async_sink_free(async);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stores_side_by_side),
        cmocka_unit_test(test_order_is_kept),
        cmocka_unit_test(test_failure_is_told),
        cmocka_unit_test(test_waiting_is_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
