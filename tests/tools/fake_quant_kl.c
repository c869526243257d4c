/* fake_quant_kl.c - what codes cost when floats stand for them, for scripts that hold the kernels
 * against it.
 *
 *   fake_quant_kl MODEL_DIR CHECKPOINT_DIR REFERENCE.safetensors WINDOW
 *
 * Prints the mean KL divergence of the checkpoint from the model in nats, over the windows of the
 * reference's token ids. The checkpoint runs in floats: its weights are decoded first, and where
 * its scheme rounds the inputs of linears they are rounded and multiplied in floats. Exit code 1
 * says on stderr what went wrong.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/checkpoint/checkpoint.h"
#include "kernels/engine/lm_open.h"
#include "verify/base/metrics.h"

/* The ids of a reference, [n]; of the caller. */
static sw_code read_ids(uint32_t **ids, int64_t *n, const char *path, sw_err *err)
{
    const sw_st_tensor *t;
    sw_st *st = NULL;
    sw_code rc = sw_st_open(&st, path, err);

    if (rc != SW_OK) return rc;
    t = sw_st_find(st, "input_ids");
    if (!t || t->view.dtype != SW_DTYPE_I32) {
        rc = SW_FAIL(err, SW_E_FORMAT, "%s: no input_ids in I32", path);
    } else {
        *n = sw_view_elems(&t->view);
        rc = SW_MEM_GET(ids, *n, "ids", err);
        if (rc == SW_OK) memcpy(*ids, t->view.data, (size_t)*n * sizeof **ids);
    }
    sw_st_close(st);
    return rc;
}

/* Logits of all windows, [n, vocab]; of the caller. */
static sw_code run(float **logits, int64_t *vocab, const char *dir, const uint32_t *ids, int64_t n,
                   int64_t window, sw_err *err)
{
    const sw_lm_options options = {.dequantize = true, .n_threads = 1};
    sw_checkpoint ckpt = {0};
    sw_engine *e = NULL;
    sw_lm lm = {0};
    sw_code rc = sw_checkpoint_open(&ckpt, dir, err);

    if (rc != SW_OK) return rc;
    *vocab = ckpt.model.vocab;
    if ((rc = sw_lm_open(&lm, &ckpt, &options, err)) == SW_OK &&
        (rc = sw_engine_new(&e, &ckpt.model, n, 0, 1, err)) == SW_OK &&
        (rc = SW_MEM_GET(logits, n * *vocab, "logits", err)) == SW_OK)
        rc = sw_engine_logits(e, &lm, *logits, ids, n / window, window, err);
    sw_engine_free(e);
    sw_lm_free(&lm);
    sw_checkpoint_close(&ckpt);
    return rc;
}

static sw_code mean_kl(double *out, const float *ref, const float *have, int64_t vocab,
                       const uint32_t *ids, int64_t n, int64_t window, sw_err *err)
{
    double *scratch = NULL, sum = 0.0;
    int64_t n_positions = 0;
    sw_code rc = SW_MEM_GET(&scratch, vocab, "softmax", err);

    for (int64_t t = 0; rc == SW_OK && t < n / window * window; t++) {
        sw_position p;

        if (t % window == window - 1) continue; /* nothing to predict */
        sw_position_compare(&p, ref + t * vocab, have + t * vocab, vocab, ids[t + 1], scratch);
        sum += p.kl;
        n_positions++;
    }
    sw_mem_put(scratch);
    if (rc == SW_OK) *out = n_positions ? sum / (double)n_positions : 0.0;
    return rc;
}

int main(int argc, char **argv)
{
    const int64_t window = argc == 5 ? strtoll(argv[4], NULL, 10) : 0;
    float *ref = NULL, *have = NULL;
    int64_t n = 0, vocab = 0;
    uint32_t *ids = NULL;
    double kl = 0.0;
    sw_err err = {0};
    sw_code rc;

    if (window < 2) {
        (void)fprintf(stderr, "usage: fake_quant_kl MODEL CHECKPOINT REFERENCE WINDOW\n");
        return 1;
    }
    if ((rc = read_ids(&ids, &n, argv[3], &err)) == SW_OK &&
        (rc = run(&ref, &vocab, argv[1], ids, n, window, &err)) == SW_OK &&
        (rc = run(&have, &vocab, argv[2], ids, n, window, &err)) == SW_OK)
        rc = mean_kl(&kl, ref, have, vocab, ids, n, window, &err);
    sw_mem_put(ids);
    sw_mem_put(ref);
    sw_mem_put(have);
    if (rc == SW_OK) (void)printf("%.5f\n", kl);
    else (void)fprintf(stderr, "fake_quant_kl: %s\n", err.text);
    return rc == SW_OK ? 0 : 1;
}
