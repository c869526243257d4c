/* test_engine_text.c - trained models at work on the device: the greedy texts and NLLs that
 * golden.json has of them, what is told of a long prompt, and sessions that run at the same
 * time. Exit 77 without a GPU.
 *
 * The texts of the NLLs are not in the repository: SWAGE_TEXTS names the directory with
 * wikitext2-test.txt and docs-heldout.txt, and without it that part is skipped.
 */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "formats/base/parallel.h"
#include "formats/io/file_content.h"
#include "formats/text/corpus.h"
#include "formats/text/tokenizer.h"
#include "kernels/engine/device_engine.h"
#include "tests/support/toys/open_model.h"
#include "verify/metrics/perplexity.h"

#define GOLDEN "tests/golden/models/golden.json"
#define NLL_LIMIT 2e-3 /* nats a token */
#define CAPACITY 256
#define STEPS 40

static const char *const models[] = {"calib_data/tiny-llama", "tests/golden/models/small-llama",
                                     "tests/golden/models/tiny-moe"};
#define N_MODELS (sizeof models / sizeof *models)

static sw_device *gpu;
static const sw_sampling greedy = {0, 0, 1, 0};

#define MUST(call)                                        \
    do {                                                  \
        sw_err e_text = {0}, *err = &e_text;              \
        if ((call) != SW_OK) fail_msg("%s", err->text);   \
    } while (0)

typedef struct on_device {
    open_model m;
    sw_device_engine *engine;
    sw_device_lm *lm;
} on_device;

static void on_device_open(on_device *c, sw_device *where, const char *dir)
{
    open_model_dir(&c->m, dir);
    MUST(sw_device_engine_new(&c->engine, where, &c->m.model, 128, CAPACITY, err));
    MUST(sw_device_lm_new(&c->lm, c->engine, &c->m.lm, err));
}

static void on_device_close(on_device *c)
{
    sw_device_lm_free(c->lm);
    sw_device_engine_free(c->engine);
    open_model_close(&c->m);
}

/* ---- greedy texts ---- */

typedef struct golden_text {
    cJSON *golden;
    const cJSON *ids; /* with the prompt's */
    sw_tokenizer *tok;
    sw_ids prompt;
} golden_text;

static void golden_open(golden_text *g, const char *dir)
{
    char path[256];
    const cJSON *entry, *prompt;

    memset(g, 0, sizeof *g);
    MUST(sw_json_read(&g->golden, GOLDEN, &sw_json_caps_config, err));
    entry = sw_json_member(sw_json_member(g->golden, strrchr(dir, '/') + 1), "greedy");
    prompt = sw_json_member(entry, "prompt");
    g->ids = sw_json_member(entry, "ids");
    (void)snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    MUST(sw_tokenizer_open(&g->tok, path, err));
    MUST(sw_tokenizer_encode(g->tok, &g->prompt, prompt->valuestring, strlen(prompt->valuestring),
                             true, err));
}

static void golden_close(golden_text *g)
{
    sw_ids_free(&g->prompt);
    sw_tokenizer_free(g->tok);
    cJSON_Delete(g->golden);
}

/* How many of the new tokens are as golden.json has them before one is not. */
static int agreeing(const golden_text *g, const uint32_t *ids, int n)
{
    for (int i = 0; i < n; i++)
        if (ids[i] != (uint32_t)cJSON_GetArrayItem(g->ids, (int)g->prompt.n + i)->valuedouble)
            return i;
    return n;
}

static void test_greedy(void **state)
{
    const char *dir = *state;
    uint32_t ids[CAPACITY];
    golden_text g;
    on_device c;
    sw_device_session *s = NULL;
    int n, n_same;

    golden_open(&g, dir);
    n = cJSON_GetArraySize(g.ids) - (int)g.prompt.n;
    on_device_open(&c, gpu, dir);
    MUST(sw_device_session_new(&s, c.lm, 1, CAPACITY, &greedy, err));
    MUST(sw_device_session_feed(s, 0, g.prompt.ids, g.prompt.n, err));
    MUST(sw_device_session_step(s, ids, n, err));
    n_same = agreeing(&g, ids, n);
    print_message("%s: %d of %d tokens\n", dir, n_same, n);
    if (n_same < n) fail_msg("%s: new token %d is %u", dir, n_same, ids[n_same]);
    sw_device_session_free(s);
    /* without the prompt's last word the text is another one, and this says so */
    MUST(sw_device_session_new(&s, c.lm, 1, CAPACITY, &greedy, err));
    MUST(sw_device_session_feed(s, 0, g.prompt.ids, g.prompt.n - 1, err));
    MUST(sw_device_session_step(s, ids, n, err));
    assert_true(agreeing(&g, ids, n) < n);
    sw_device_session_free(s);
    on_device_close(&c);
    golden_close(&g);
}

/* ---- how far a prompt has been read ---- */

typedef struct watcher {
    int64_t done[4], total;
    int n, most; /* steps seen; those after which it asks to stop */
} watcher;

static void see_step(void *self, const char *stage, int64_t done, int64_t total)
{
    watcher *w = self;

    assert_string_equal(stage, "prompt");
    assert_true(w->n < 4);
    w->done[w->n++] = done;
    w->total = total;
}

static bool has_enough(void *self)
{
    const watcher *w = self;

    return w->n >= w->most;
}

/* Two pieces of a prompt are two times all blocks; a short one is silent, and one can be ended. */
static void test_watched(void **state)
{
    watcher w = {.most = 100};
    const sw_progress progress = {.self = &w, .step = see_step, .is_cancelled = has_enough};
    sw_device_session *s = NULL;
    uint32_t ids[200];
    on_device c;
    sw_err why = {0};

    on_device_open(&c, gpu, *state);
    for (uint32_t i = 0; i < 200; i++) ids[i] = i * 7 + 3;
    MUST(sw_device_session_new(&s, c.lm, 1, CAPACITY, &greedy, err));
    sw_device_session_watch(s, &progress);
    MUST(sw_device_session_feed(s, 0, ids, 200, err));
    assert_int_equal(w.n, 3);
    assert_int_equal(w.total, 2 * c.m.model.n_layers);
    for (int i = 0; i < 3; i++) assert_int_equal(w.done[i], i * c.m.model.n_layers);
    MUST(sw_device_session_feed(s, 0, ids, 8, err));
    assert_int_equal(w.n, 3);
    sw_device_session_free(s);

    w = (watcher){.most = 2};
    MUST(sw_device_session_new(&s, c.lm, 1, CAPACITY, &greedy, err));
    sw_device_session_watch(s, &progress);
    assert_int_equal(sw_device_session_feed(s, 0, ids, 200, &why), SW_E_CANCELLED);
    assert_int_equal(w.n, 2);
    sw_device_session_free(s);
    on_device_close(&c);
}

/* ---- NLL of whole texts ---- */

static double nll_on_device(const open_model *m, const sw_corpus *text, int64_t window,
                            int64_t max_windows)
{
    sw_eval_job job = {.checkpoint = &m->lm, .gpu = gpu, .bootstrap = {0, 2, 0.95},
                       .n_threads = sw_cpu_count()};
    sw_report_eval eval = {0};

    MUST(sw_windows_cut(&job.windows, text->ids.ids, text->ids.n, window, max_windows, false,
                        &m->model, err));
    MUST(sw_evaluate(&eval, &job, err));
    return eval.nll.at;
}

static void check_text(const open_model *m, sw_tokenizer *tok, const cJSON *want,
                       const char *texts_dir)
{
    const double nll = sw_json_member(want, "nll_per_token")->valuedouble;
    const int64_t window = (int64_t)sw_json_member(want, "window")->valuedouble;
    sw_corpus text = {0};
    char path[512];
    double have;

    (void)snprintf(path, sizeof path, "%s/%s", texts_dir, want->string);
    MUST(sw_corpus_add(&text, tok, m->model.vocab, path, err));
    have = nll_on_device(m, &text, window, 0);
    print_message("  %s: NLL %.6f, golden %.6f: %+.1e\n", want->string, have, nll, have - nll);
    if (!(fabs(have - nll) <= NLL_LIMIT)) fail_msg("%s: NLL %g", want->string, have - nll);
    /* as far from the golden figure is the text with each token moved by one */
    for (int64_t i = 0; i < text.ids.n; i++)
        text.ids.ids[i] = (uint32_t)((text.ids.ids[i] + 1) % (uint32_t)m->model.vocab);
    assert_true(fabs(nll_on_device(m, &text, window, 16) - nll) > NLL_LIMIT);
    sw_corpus_free(&text);
}

static void test_nll(void **state)
{
    const char *dir = *state, *texts_dir = getenv("SWAGE_TEXTS");
    const cJSON *entry;
    golden_text g;
    open_model m;

    if (!texts_dir || !*texts_dir) skip();
    golden_open(&g, dir);
    open_model_dir(&m, dir);
    print_message("%s\n", dir);
    cJSON_ArrayForEach(entry, sw_json_member(g.golden, strrchr(dir, '/') + 1))
        if (cJSON_HasObjectItem(entry, "nll_per_token")) check_text(&m, g.tok, entry, texts_dir);
    open_model_close(&m);
    golden_close(&g);
}

/* ---- at the same time ---- */

static const uint32_t prompts[2][8] = {{0, 441, 506, 17, 900, 33, 4, 71},
                                       {0, 1203, 7, 7, 350, 2000, 5, 12}};

static sw_device_session *session_on(const on_device *c, int which, const sw_sampling *sampling)
{
    sw_device_session *s = NULL;

    MUST(sw_device_session_new(&s, c->lm, 1, CAPACITY, sampling, err));
    MUST(sw_device_session_feed(s, 0, prompts[which], 8, err));
    return s;
}

/* Two sessions of one model take turns, their prompts in between; each gets what it gets alone. */
static void test_turns(void **state)
{
    const sw_sampling drawn = {0.8, 50, 0.95, 7};
    uint32_t alone[2][STEPS], turns[2][STEPS];
    sw_device_session *s[2];
    on_device c;

    on_device_open(&c, gpu, *state);
    for (int i = 0; i < 2; i++) {
        s[i] = session_on(&c, i, &drawn);
        MUST(sw_device_session_step(s[i], alone[i], STEPS, err));
        sw_device_session_free(s[i]);
    }
    assert_memory_not_equal(alone[0], alone[1], sizeof alone[0]);
    for (int i = 0; i < 2; i++) s[i] = session_on(&c, i, &drawn);
    for (int t = 0; t < STEPS; t += 1 + t % 3)
        for (int i = 0; i < 2; i++)
            MUST(sw_device_session_step(s[i], turns[i] + t,
                                        t + 1 + t % 3 < STEPS ? 1 + t % 3 : STEPS - t, err));
    for (int i = 0; i < 2; i++) {
        assert_memory_equal(turns[i], alone[i], sizeof alone[i]);
        sw_device_session_free(s[i]);
    }
    on_device_close(&c);
}

/* A thread with a stream, a memory pool and a model of its own. */
typedef struct worker {
    const char *dir;
    int which;
    uint32_t ids[STEPS];
    float *logits;
    sw_err err;
} worker;

static sw_code work(worker *w, sw_err *err)
{
    sw_device *mine = NULL;
    sw_device_session *s = NULL;
    on_device c = {0};
    sw_code rc;

    open_model_dir(&c.m, w->dir); /* checked before by others */
    if ((rc = sw_device_open(&mine, 0, (int64_t)2 << 30, err)) != SW_OK ||
        (rc = sw_device_engine_new(&c.engine, mine, &c.m.model, 128, CAPACITY, err)) != SW_OK ||
        (rc = sw_device_lm_new(&c.lm, c.engine, &c.m.lm, err)) != SW_OK ||
        (rc = sw_device_session_new(&s, c.lm, 1, CAPACITY, &greedy, err)) != SW_OK ||
        (rc = sw_device_session_feed(s, 0, prompts[w->which], 8, err)) != SW_OK ||
        (rc = sw_device_session_step(s, w->ids, STEPS, err)) != SW_OK)
        goto done;
    rc = sw_device_session_logits(s, w->logits, err);
done:
    sw_device_session_free(s);
    on_device_close(&c);
    sw_device_close(mine);
    return rc;
}

static void *run_worker(void *self)
{
    worker *w = self;

    (void)!work(w, &w->err); /* the text stays */
    return NULL;
}

static void worker_new(worker *w, const char *dir, int which, int64_t vocab)
{
    memset(w, 0, sizeof *w);
    w->dir = dir;
    w->which = which;
    w->logits = malloc(4 * (size_t)vocab);
}

/* Four threads, two streams of each prompt: the bytes are those of one thread alone. */
static void test_streams(void **state)
{
    worker alone[2], beside[4];
    pthread_t threads[4];
    open_model m;
    int64_t vocab;

    open_model_dir(&m, *state);
    vocab = m.model.vocab;
    open_model_close(&m);
    for (int i = 0; i < 2; i++) {
        worker_new(&alone[i], *state, i, vocab);
        (void)run_worker(&alone[i]);
        assert_string_equal(alone[i].err.text, "");
    }
    for (int i = 0; i < 4; i++) {
        worker_new(&beside[i], *state, i % 2, vocab);
        assert_int_equal(pthread_create(&threads[i], NULL, run_worker, &beside[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_string_equal(beside[i].err.text, "");
        assert_memory_equal(beside[i].ids, alone[i % 2].ids, sizeof beside[i].ids);
        assert_memory_equal(beside[i].logits, alone[i % 2].logits, 4 * (size_t)vocab);
        free(beside[i].logits);
    }
    assert_memory_not_equal(alone[0].logits, alone[1].logits, 4 * (size_t)vocab);
    for (int i = 0; i < 2; i++) free(alone[i].logits);
}

int main(void)
{
    struct CMUnitTest tests[5 * N_MODELS];
    sw_err err = {0};
    int n = 0, failed;

    if (!sw_device_count()) {
        printf("skipped: no GPU\n");
        return 77;
    }
    if (sw_device_open(&gpu, 0, 0, &err) != SW_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    for (size_t i = 0; i < N_MODELS; i++) {
        static const struct {
            const char *name;
            CMUnitTestFunction run;
        } kinds[] = {{"greedy text", test_greedy}, {"prompt that is watched", test_watched},
                     {"NLL of texts", test_nll}, {"sessions in turns", test_turns},
                     {"streams side by side", test_streams}};

        if (!open_model_is_there(models[i])) continue;
        for (int k = 0; k < 5; k++)
            tests[n++] = (struct CMUnitTest){.name = kinds[k].name, .test_func = kinds[k].run,
                                             .initial_state = (void *)(uintptr_t)models[i]};
    }
    failed = _cmocka_run_group_tests("texts on the device", tests, (size_t)n, NULL, NULL);
    sw_device_close(gpu);
    return failed;
}
