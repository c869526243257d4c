/* test_tasks.c - questions with known answers: their files, their tokens, and log-likelihoods
 * against sums over the logits of a plain engine call. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/checkpoint/checkpoint.h"
#include "formats/checkpoint/model_text.h"
#include "kernels/engine/lm_open.h"
#include "tests/support/scratch.h"
#include "tests/support/toys/recipe_model.h"
#include "verify/tasks/task_write.h"
#include "verify/tasks/tasks.h"

#define TINY "calib_data/tiny-llama"

static void expect_refusal(const char *text, const char *says)
{
    sw_arena arena = {0};
    sw_task task;
    sw_err err = {0};

    if (sw_task_parse(&task, &arena, text, strlen(text), "d/x.jsonl", &err) != SW_E_FORMAT)
        fail_msg("%s: is taken", text);
    if (!strstr(err.text, says)) fail_msg("%s: %s, want %s", text, err.text, says);
    sw_arena_free(&arena);
}

static void what_is_no_item_is_refused(void **state)
{
    char many[2000] = "{\"query\": \"\", \"gold\": 0, \"choices\": [\"a\"";

    (void)state;
    expect_refusal("", "d/x.jsonl: holds no item");
    expect_refusal("\n \r\n\t\n", "holds no item");
    expect_refusal("{}", "line 1: has neither query, choices and gold, nor");
    expect_refusal("\n[]", "line 2: has neither");
    expect_refusal("{\"query\": \"a\"", "line 1: item: not valid JSON");
    expect_refusal("{\"query\": \"a\", \"choices\": [\"b\"], \"gold\": 0}", "no list of two");
    expect_refusal("{\"query\": \"a\", \"choices\": \"b\", \"gold\": 0}", "no list of two");
    expect_refusal("{\"query\": \"a\", \"choices\": [\"b\", 1], \"gold\": 0}",
                   "a choice is missing");
    expect_refusal("{\"query\": \"a\", \"choices\": [\"b\", \"\"], \"gold\": 0}", "is empty");
    expect_refusal("{\"query\": 1, \"choices\": [\"b\", \"c\"], \"gold\": 0}", "query is missing");
    expect_refusal("{\"query\": \"a\", \"choices\": [\"b\", \"c\"], \"gold\": 2}", "line 1: gold");
    expect_refusal("{\"query\": \"a\", \"choices\": [\"b\", \"c\"], \"gold\": -1}", "line 1: gold");
    expect_refusal("{\"query\": \"a\", \"choices\": [\"b\", \"c\"]}", "gold, the index");
    expect_refusal("{\"context\": \"a\", \"continuation\": \"\"}", "continuation is empty");
    expect_refusal("{\"prompt\": \"a\", \"answer\": 4}", "answer is missing or no text");
    expect_refusal("{\"prompt\": \"a\", \"answer\": \"b\"}\n{\"context\": \"a\", \"continuation\": "
                   "\"b\"}", "line 2: is of another kind");
    for (int i = 0; i <= SW_TASK_CHOICES_MAX; i++) {
        size_t n = strlen(many);

        (void)snprintf(many + n, sizeof many - n, "%s", i < SW_TASK_CHOICES_MAX ? ", \"a\"" : "]}");
    }
    expect_refusal(many, "too many choices");
}

/* A model with the items of a file, in the arena. */
typedef struct asked {
    sw_checkpoint ckpt;
    sw_lm lm;
    sw_tokenizer *tok;
    sw_arena arena;
    sw_task task;
    sw_task_set set;
    sw_task_encoder encoder;
    sw_task_sequence sequences[64];
    int64_t first_of[32];
} asked;

static void open_asked(asked *a, const char *model, const char *lines, int64_t max_tokens)
{
    const sw_lm_options how = {.n_threads = 2};
    sw_err err = {0};

    memset(a, 0, sizeof *a);
    if (sw_checkpoint_open(&a->ckpt, model, &err) != SW_OK ||
        sw_lm_open(&a->lm, &a->ckpt, &how, &err) != SW_OK ||
        sw_model_tokenizer(&a->tok, TINY, &err) != SW_OK ||
        sw_task_parse(&a->task, &a->arena, lines, strlen(lines), "dir/some.jsonl", &err) != SW_OK)
        fail_msg("%s", err.text);
    assert_string_equal(a->task.name, "some");
    a->encoder = (sw_task_encoder){.tok = a->tok, .model = &a->ckpt.model,
                                   .max_tokens = max_tokens};
    a->set = (sw_task_set){&a->task, a->sequences, a->first_of, 2, a->tok};
    for (int64_t i = 0; i < a->task.n_items; i++) {
        int64_t at = a->first_of[i];

        if (sw_task_encode(a->sequences + at, &a->encoder, &a->task, i, &a->arena, &err) != SW_OK)
            fail_msg("%s", err.text);
        a->first_of[i + 1] = at + a->task.items[i].n_choices;
        for (; at < a->first_of[i + 1]; at++)
            if (a->sequences[at].n + a->sequences[at].max_new > a->set.longest)
                a->set.longest = a->sequences[at].n + a->sequences[at].max_new;
    }
}

static void close_asked(asked *a)
{
    sw_lm_free(&a->lm);
    sw_tokenizer_free(a->tok);
    sw_checkpoint_close(&a->ckpt);
    sw_arena_free(&a->arena);
}

/* The definition: every sequence on its own through the engine, all its logits, sums in long
 * double. */
static double plain_ll(const asked *a, const sw_task_sequence *q, bool *is_greedy)
{
    int64_t vocab = a->ckpt.model.vocab;
    sw_engine *e = NULL;
    float *logits = NULL;
    long double ll = 0;
    sw_err err = {0};

    *is_greedy = true;
    if (sw_engine_new(&e, &a->ckpt.model, q->n, q->n, 1, &err) != SW_OK ||
        SW_MEM_GET(&logits, q->n * vocab, "logits", &err) != SW_OK ||
        sw_engine_logits(e, &a->lm, logits, q->ids, 1, q->n, &err) != SW_OK)
        fail_msg("%s", err.text);
    for (int64_t t = q->first; t < q->n; t++) {
        const float *x = logits + (t - 1) * vocab;
        long double sum = 0;

        for (int64_t i = 0; i < vocab; i++) {
            sum += expl((long double)x[i]);
            if (x[i] > x[q->ids[t]]) *is_greedy = false;
        }
        ll += (long double)x[q->ids[t]] - logl(sum);
    }
    sw_mem_put(logits);
    sw_engine_free(e);
    return (double)ll;
}

static const char items[] =
    "{\"query\": \"The function returns the value of the\", \"gold\": 0, \"choices\": [\"given "
    "key in the table\", \"given key\", \"object, or nothing at all\", \"x\"]}\n"
    "{\"query\": \"Answer:\", \"gold\": 1, \"choices\": [\"A\", \"B\", \"C\", \"D\"]}\n"
    "{\"query\": \"\", \"gold\": 1, \"choices\": [\"static int\", \"The\"]}\n"
    "{\"query\": \"static int read_file(const char *path, \", \"gold\": 1, \"choices\": [\"size_t "
    "n)\", \"  int\"]}\n";

static void scores_are_sums_of_logits(void **state)
{
    sw_task_score scores[2][64];
    sw_err err = {0};
    asked a;

    (void)state;
    open_asked(&a, TINY, items, 512);
    for (int way = 0; way < 2; way++) {
        const sw_task_runner runner = {.lm = &a.lm, .n_threads = 2, .stage = "tasks",
                                       .is_unshared = way == 1};
        if (sw_task_run(scores[way], &a.set, &runner, &a.arena, &err) != SW_OK)
            fail_msg("%s", err.text);
    }
    for (int64_t s = 0; s < a.first_of[a.task.n_items]; s++) {
        bool is_greedy;
        double want = plain_ll(&a, &a.sequences[s], &is_greedy);

        for (int way = 0; way < 2; way++) {
            if (!(fabs(scores[way][s].ll - want) < 1e-4))
                fail_msg("sequence %d, way %d: %.9g, want %.9g", (int)s, way, scores[way][s].ll,
                         want);
            assert_int_equal(scores[way][s].is_greedy, is_greedy);
        }
        if (want > -1e-3) fail_msg("sequence %d is certain: the test says nothing", (int)s);
    }
    close_asked(&a);
}

/* What a recurrent mixer has seen is taken back between choices, as keys are. */
static void recurrent_models_share_too(void **state)
{
    const scratch *s = *state;
    const sw_lm_options how = {.n_threads = 2};
    uint32_t ids[2][40];
    sw_task_item item = {.query = "", .n_choices = 2};
    sw_task_score scores[2];
    sw_err err = {0};
    asked a;

    memset(&a, 0, sizeof a);
    if (recipe_model_make(s->dir, "tests/golden/recipes/bamba", "config.json", &err) != SW_OK ||
        sw_checkpoint_open(&a.ckpt, s->dir, &err) != SW_OK ||
        sw_lm_open(&a.lm, &a.ckpt, &how, &err) != SW_OK)
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < 40; i++) {
        ids[0][i] = (7 * i) % 32;
        ids[1][i] = i < 30 ? ids[0][i] : (5 * i) % 32;
    }
    for (int i = 0; i < 2; i++)
        a.sequences[i] = (sw_task_sequence){.ids = ids[i], .n = 40 - i, .first = 30, .run = i};
    a.first_of[1] = 2;
    a.task = (sw_task){.name = "x", .items = &item, .n_items = 1};
    a.set = (sw_task_set){&a.task, a.sequences, a.first_of, 40, NULL};
    for (int way = 0; way < 2; way++) {
        const sw_task_runner runner = {.lm = &a.lm, .n_threads = 2, .stage = "tasks",
                                       .is_unshared = way == 1};
        if (sw_task_run(scores, &a.set, &runner, &a.arena, &err) != SW_OK)
            fail_msg("%s", err.text);
        for (int i = 0; i < 2; i++) {
            bool is_greedy;
            double want = plain_ll(&a, &a.sequences[i], &is_greedy);
            if (!(fabs(scores[i].ll - want) < 1e-3))
                fail_msg("way %d, %d: %.9g, want %.9g", way, i, scores[i].ll, want);
        }
    }
    close_asked(&a);
}

static void tokens_are_those_of_the_whole_text(void **state)
{
    sw_ids whole = {0}, query = {0};
    const char text[] = "static int read_file(const char *path,   int";
    const sw_task_sequence *q;
    sw_err err = {0};
    asked a;

    (void)state;
    open_asked(&a, TINY, items, 512);
    /* one token each behind the same query: one run for all four */
    for (int64_t s = a.first_of[1]; s < a.first_of[2]; s++) {
        assert_int_equal(a.sequences[s].n - a.sequences[s].first, 1);
        assert_int_equal(a.sequences[s].run, 0);
    }
    /* "given key" begins "given key in the table" */
    assert_int_equal(a.sequences[1].run, 0);
    assert_int_equal(a.sequences[2].run, 2);
    /* nothing before the first token but BOS */
    assert_int_equal(a.sequences[a.first_of[2]].first, 1);
    assert_int_equal(a.sequences[a.first_of[2]].ids[0], a.ckpt.model.bos_id);
    /* blanks of the query are the choice's */
    q = &a.sequences[a.first_of[3] + 1];
    assert_int_equal(sw_tokenizer_encode(a.tok, &whole, text, strlen(text), false, &err), SW_OK);
    assert_int_equal(sw_tokenizer_encode(a.tok, &query, text, strlen(text) - 6, false, &err),
                     SW_OK);
    assert_int_equal(q->n, whole.n);
    assert_memory_equal(q->ids, whole.ids, (size_t)whole.n * sizeof *whole.ids);
    assert_int_equal(q->first, query.n);
    assert_int_equal(q->n_bytes, 5);
    sw_ids_free(&whole);
    sw_ids_free(&query);
    close_asked(&a);
    /* what is too long loses its beginning and nothing of the choice */
    open_asked(&a, TINY, items, 6);
    assert_true(a.encoder.n_cut > 0);
    assert_int_equal(a.sequences[0].n, 6);
    close_asked(&a);
}

static void answers_are_the_likeliest(void **state)
{
    const sw_task_score scores[] = {{-2, true, NULL}, {-1, true, NULL}, {-1, true, NULL}};
    const sw_task_sequence sequences[] = {{.n_bytes = 10}, {.n_bytes = 2}, {.n_bytes = 4}};

    (void)state;
    assert_int_equal(sw_task_answer(scores, sequences, 3, false), 1);
    assert_int_equal(sw_task_answer(scores, sequences, 3, true), 0);
}

static void texts_are_compared_without_blanks(void **state)
{
    static const char *const rows[][3] = {{" 42 \nQ: next", "42", "42"}, {"a b", " a", "a b"},
                                          {"a\nb \n", "x\ny", "a\nb"}, {"\n\n a\nb", "a\n", "a"},
                                          {"", "a", ""}, {" \n", "a", ""}};
    sw_arena arena = {0};
    const char *have;
    sw_err err = {0};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(sw_task_trim(&have, rows[i][0], rows[i][1], &arena, &err), SW_OK);
        assert_string_equal(have, rows[i][2]);
    }
    sw_arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_item_is_refused),
        cmocka_unit_test(scores_are_sums_of_logits),
        cmocka_unit_test_setup_teardown(recurrent_models_share_too, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test(tokens_are_those_of_the_whole_text),
        cmocka_unit_test(answers_are_the_likeliest),
        cmocka_unit_test(texts_are_compared_without_blanks),
    };

    return cmocka_run_group_tests_name("tasks", tests, NULL, NULL);
}
