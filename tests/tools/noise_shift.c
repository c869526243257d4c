/* noise_shift.c - how far errors as small as those of BF16 move a checkpoint's likelihood, for
 * comparisons with engines that compute in BF16.
 *
 *   noise_shift MODEL_DIR CHECKPOINT_DIR WINDOW N_WINDOWS SHARE N_SEEDS
 *
 * Draws a text from the model, and runs the checkpoint over it as it is and with an error on every
 * output of its linears that is SHARE as large as the output (sw_engine_set_noise), once for each
 * seed. Prints NLL, root mean square and largest of its shifts, and the root mean square of a
 * single token's: "4.33472 0.00179 0.00316 0.1143". Exit code 1 says on stderr what went wrong.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/engine/generate.h"
#include "kernels/engine/lm_open.h"
#include "tests/support/toys/random.h"
#include "verify/base/metrics.h"

typedef struct subject {
    sw_checkpoint ckpt;
    sw_lm lm;
    sw_engine *e;
} subject;

typedef struct text {
    uint32_t *ids; /* [n_windows, window] */
    int64_t window, n_windows;
    float *logits; /* of all */
    double *scratch, *before, *after; /* likelihoods, [n_windows * (window - 1)] */
} text;

static sw_code open_subject(subject *s, const char *dir, const text *t, sw_err *err)
{
    const sw_lm_options options = {.n_threads = 2};
    sw_code rc = sw_checkpoint_open(&s->ckpt, dir, err);

    if (rc != SW_OK || (rc = sw_lm_open(&s->lm, &s->ckpt, &options, err)) != SW_OK) return rc;
    return sw_engine_new(&s->e, &s->ckpt.model, t->n_windows * t->window, 0, 2, err);
}

static void close_subject(subject *s)
{
    sw_engine_free(s->e);
    sw_lm_free(&s->lm);
    sw_checkpoint_close(&s->ckpt);
}

/* The next token of a row of logits, by its probability. */
static uint32_t drawn(const float *logits, int64_t vocab, test_rng *rng)
{
    double most = logits[0], sum = 0.0, rest;
    int64_t i = 0;

    for (int64_t v = 1; v < vocab; v++) most = fmax(most, (double)logits[v]);
    for (int64_t v = 0; v < vocab; v++) sum += exp((double)logits[v] - most);
    rest = sum * test_uniform(rng);
    for (; i < vocab - 1 && (rest -= exp((double)logits[i] - most)) >= 0.0; i++) {
    }
    return (uint32_t)i;
}

static sw_code draw_text(text *t, const subject *from, sw_err *err)
{
    const int64_t vocab = from->ckpt.model.vocab;
    test_rng rng = {11};
    sw_code rc = SW_OK;

    for (int64_t w = 0; w < t->n_windows && rc == SW_OK; w++) {
        uint32_t *ids = t->ids + w * t->window;
        sw_session *session = NULL;

        ids[0] = (uint32_t)(test_u64(&rng) % (uint64_t)vocab);
        rc = sw_session_new(&session, from->e, &from->lm, t->window, err);
        for (int64_t i = 0; i + 1 < t->window && rc == SW_OK; i++)
            if ((rc = sw_session_feed(session, t->logits, ids + i, 1, err)) == SW_OK)
                ids[i + 1] = drawn(t->logits, vocab, &rng);
        sw_session_free(session);
    }
    return rc;
}

static sw_code likelihoods(double *out, double *mean, const text *t, const subject *s, sw_err *err)
{
    const int64_t vocab = s->ckpt.model.vocab;
    sw_code rc = sw_engine_logits(s->e, &s->lm, t->logits, t->ids, t->n_windows, t->window, err);
    int64_t n = 0;

    *mean = 0.0;
    for (int64_t i = 0; i < t->n_windows * t->window && rc == SW_OK; i++) {
        const float *row = t->logits + i * vocab;
        sw_position p;

        if (i % t->window == t->window - 1) continue; /* nothing to predict */
        sw_position_compare(&p, row, row, vocab, t->ids[i + 1], t->scratch);
        out[n++] = p.nll_have;
        *mean += p.nll_have;
    }
    if (n) *mean /= (double)n;
    return rc;
}

static sw_code print_shifts(const text *t, const subject *s, double share, int n_seeds, sw_err *err)
{
    const int64_t n = t->n_windows * (t->window - 1);
    double clean = 0.0, squares = 0.0, largest = 0.0, token = 0.0;
    sw_code rc = likelihoods(t->before, &clean, t, s, err);

    for (int i = 0; i < n_seeds && rc == SW_OK; i++) {
        double noisy = 0.0;

        sw_engine_set_noise(s->e, share, (uint64_t)(1000 * i + 7));
        rc = likelihoods(t->after, &noisy, t, s, err);
        squares += (noisy - clean) * (noisy - clean) / n_seeds;
        largest = fmax(largest, fabs(noisy - clean));
        for (int64_t k = 0; k < n; k++)
            token += (t->after[k] - t->before[k]) * (t->after[k] - t->before[k]) /
                     ((double)n * n_seeds);
    }
    if (rc == SW_OK)
        (void)printf("%.5f %.5f %.5f %.4f\n", clean, sqrt(squares), largest, sqrt(token));
    return rc;
}

static sw_code take_room(text *t, int64_t vocab, sw_err *err)
{
    const int64_t n = t->n_windows * t->window;
    sw_code rc;

    if ((rc = SW_MEM_GET(&t->ids, n, "ids", err)) != SW_OK ||
        (rc = SW_MEM_GET(&t->logits, n * vocab, "logits", err)) != SW_OK ||
        (rc = SW_MEM_GET(&t->scratch, vocab, "softmax", err)) != SW_OK ||
        (rc = SW_MEM_GET(&t->before, n, "likelihoods", err)) != SW_OK)
        return rc;
    return SW_MEM_GET(&t->after, n, "likelihoods", err);
}

int main(int argc, char **argv)
{
    const int n_seeds = argc == 7 ? (int)strtol(argv[6], NULL, 10) : 0;
    text t = {0};
    subject model = {0}, judged = {0};
    sw_err err = {0};
    sw_code rc;

    if (argc != 7 || (t.window = strtoll(argv[3], NULL, 10)) < 2 ||
        (t.n_windows = strtoll(argv[4], NULL, 10)) < 1 || n_seeds < 1) {
        (void)fputs("usage: noise_shift MODEL CHECKPOINT WINDOW N_WINDOWS SHARE N_SEEDS\n", stderr);
        return 1;
    }
    if ((rc = open_subject(&model, argv[1], &t, &err)) == SW_OK &&
        (rc = open_subject(&judged, argv[2], &t, &err)) == SW_OK &&
        (rc = take_room(&t, model.ckpt.model.vocab, &err)) == SW_OK &&
        (rc = draw_text(&t, &model, &err)) == SW_OK)
        rc = print_shifts(&t, &judged, strtod(argv[5], NULL), n_seeds, &err);
    if (rc != SW_OK) (void)fprintf(stderr, "noise_shift: %s\n", err.text);
    close_subject(&model);
    close_subject(&judged);
    sw_mem_put(t.ids);
    sw_mem_put(t.logits);
    sw_mem_put(t.scratch);
    sw_mem_put(t.before);
    sw_mem_put(t.after);
    return rc == SW_OK ? 0 : 1;
}
