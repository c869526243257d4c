/* open_model.c - see open_model.h. */
#include "tests/support/toys/open_model.h"

#include "formats/io/file_content.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define MUST(call_with_err)                                              \
    do {                                                                 \
        sw_err e_text = {0}, *err = &e_text;                             \
        if ((call_with_err) != SW_OK) fail_msg("%s", err->text);         \
    } while (0)

bool open_model_is_there(const char *dir)
{
    char path[SW_PATH_BYTES];

    (void)snprintf(path, sizeof path, "%s/config.json", dir);
    if (sw_path_exists(path)) return true;
    printf("left out: tests of %s, which is not here\n", dir);
    return false;
}

void open_model_dir(open_model *out, const char *dir)
{
    char path[SW_PATH_BYTES];
    cJSON *config = NULL;

    memset(out, 0, sizeof *out);
    (void)snprintf(path, sizeof path, "%s/config.json", dir);
    MUST(sw_json_read(&config, path, &sw_json_caps_config, err));
    MUST(sw_model_read(&out->model, config, err));
    cJSON_Delete(config);
    (void)snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
    if (!sw_path_exists(path)) (void)snprintf(path, sizeof path, "%s/model.safetensors", dir);
    else (void)snprintf(path, sizeof path, "%s", dir);
    MUST(sw_st_open(&out->st, path, err));
    sw_model_fit_names(&out->model, out->st);
    MUST(sw_lm_load(&out->lm, &out->model, out->st, err));
}

void open_model_close(open_model *m)
{
    sw_lm_free(&m->lm);
    sw_st_close(m->st);
}

sw_engine *open_engine(const open_model *m, int64_t max_tokens, int n_threads)
{
    sw_engine *e = NULL;

    MUST(sw_engine_new(&e, &m->model, max_tokens, 0, n_threads, err));
    return e;
}

float *model_logits(const open_model *m, int n_threads, const uint32_t *ids, int64_t n_seqs,
                    int64_t seq_len)
{
    sw_engine *engine = open_engine(m, n_seqs * seq_len, n_threads);
    float *logits = NULL;

    MUST(SW_MEM_GET(&logits, n_seqs * seq_len * m->model.vocab, "logits", err));
    MUST(sw_engine_logits(engine, &m->lm, logits, ids, n_seqs, seq_len, err));
    sw_engine_free(engine);
    return logits;
}

void reference_open(reference_logits *out, const char *path)
{
    const sw_st_tensor *ids, *logits;
    int64_t n;

    memset(out, 0, sizeof *out);
    MUST(sw_st_open(&out->st, path, err));
    ids = sw_st_find(out->st, "input_ids");
    logits = sw_st_find(out->st, "logits");
    if (!ids || !logits || ids->view.dtype != SW_DTYPE_I32 || logits->view.dtype != SW_DTYPE_F32)
        fail_msg("%s: no reference", path);
    out->n_seqs = ids->view.shape[0];
    out->seq_len = ids->view.shape[1];
    out->vocab = logits->view.shape[2];
    out->logits = logits->view.data;
    n = out->n_seqs * out->seq_len;
    MUST(SW_MEM_GET(&out->ids, n, "ids", err));
    memcpy(out->ids, ids->view.data, (size_t)n * sizeof *out->ids);
}

void reference_close(reference_logits *r)
{
    sw_mem_put(r->ids);
    sw_st_close(r->st);
}

double relative_l2(const float *a, const float *b, int64_t n)
{
    double diff = 0.0, size = 0.0;

    for (int64_t i = 0; i < n; i++) {
        diff += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)b[i] * (double)b[i];
    }
    return sqrt(diff / size);
}

static int by_value(const void *a, const void *b)
{
    const double d = *(const double *)a - *(const double *)b;

    return d < 0 ? -1 : d > 0;
}

double relative_l2_median(const float *a, const float *b, int64_t n_rows, int64_t width)
{
    double *errors = malloc((size_t)n_rows * sizeof *errors), median;

    if (!errors) fail_msg("no memory for %lld errors", (long long)n_rows);
    for (int64_t t = 0; t < n_rows; t++)
        errors[t] = relative_l2(a + t * width, b + t * width, width);
    qsort(errors, (size_t)n_rows, sizeof *errors, by_value);
    median = errors[n_rows / 2];
    free(errors);
    return median;
}

double relative_l2_double(const float *a, const double *b, int64_t n)
{
    double diff = 0.0, size = 0.0;

    for (int64_t i = 0; i < n; i++) {
        diff += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += b[i] * b[i];
    }
    return sqrt(diff / size);
}

void read_ids(uint32_t *ids, const char *path, int64_t n)
{
    FILE *f = fopen(path, "rb");
    uint16_t id;

    for (int64_t i = 0; i < n; i++) {
        if (!f || fread(&id, sizeof id, 1, f) != 1) fail_msg("%s: too short", path);
        ids[i] = id;
    }
    if (f) (void)fclose(f);
}
