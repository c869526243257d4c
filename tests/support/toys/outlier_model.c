/* outlier_model.c - see patched_model.h. */
#include "tests/support/toys/patched_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "formats/file/safetensors.h"
#include "formats/io/file.h"
#include "formats/num/num.h"
#include "tests/support/toys/random.h"

enum { LAYERS_MAX = 64, WIDTH_MAX = 8192 };

typedef struct outliers {
    double factor[2][WIDTH_MAX]; /* of the present layer: attention's norm, the MLP's */
} outliers;

static void must(sw_code rc, const sw_err *err)
{
    if (rc != SW_OK) fail_msg("%s", err->text);
}

static void draw(double *factors, int64_t width, int n_channels, double factor, test_rng *rng)
{
    for (int64_t j = 0; j < width; j++) factors[j] = 1;
    while (n_channels > 0) {
        int64_t j = (int64_t)(test_u64(rng) % (uint64_t)width);
        if (factors[j] != 1) continue;
        factors[j] = factor;
        n_channels--;
    }
}

/* 0: reads (or is) the norm before attention, 1: the one before the MLP, -1: neither. */
static int half_of(const char *name)
{
    static const char *const parts[2][4] = {{"input_layernorm", "q_proj", "k_proj", "v_proj"},
                                            {"post_attention_layernorm", "gate_proj", "up_proj",
                                             "up_proj"}};

    for (int half = 0; half < 2; half++)
        for (int i = 0; i < 4; i++)
            if (strstr(name, parts[half][i])) return half;
    return -1;
}

static void put_one(sw_st_writer *w, const sw_st_tensor *t, const outliers *layers)
{
    int64_t cols = t->view.shape[t->view.n_dims - 1], n = cols;
    const char *at = strstr(t->name, "layers.");
    int half = half_of(t->name);
    sw_err err = {0};
    float *values;

    if (t->view.n_dims == 2) n *= t->view.shape[0];
    values = malloc((size_t)n * sizeof *values);
    assert_non_null(values);
    must(sw_float_decode_n(values, t->view.data, t->view.dtype, n, &err), &err);
    for (int64_t i = 0; at && half >= 0 && i < n; i++) {
        double f = layers[strtol(at + strlen("layers."), NULL, 10)].factor[half][i % cols];
        values[i] = (float)(t->view.n_dims == 1 ? (double)values[i] * f : (double)values[i] / f);
    }
    must(sw_st_writer_put(w, t->name, values, (size_t)n * sizeof *values, &err), &err);
    free(values);
}

static void copy_config(const char *out_dir, const char *source_dir)
{
    char from[SW_PATH_BYTES], to[SW_PATH_BYTES];
    sw_err err = {0};
    sw_map map = {0};

    must(sw_path_join(from, source_dir, "config.json", &err), &err);
    must(sw_path_join(to, out_dir, "config.json", &err), &err);
    must(sw_map_open(&map, from, &err), &err);
    must(sw_file_put(to, (const char *)map.data, map.size_bytes, &err), &err);
    sw_map_close(&map);
}

void outlier_model_make(const char *out_dir, const char *source_dir, int n_channels, double factor,
                        uint64_t seed)
{
    outliers *layers = calloc(LAYERS_MAX, sizeof *layers);
    test_rng rng = {seed};
    sw_st_writer *w = NULL;
    sw_st *st = NULL;
    sw_err err = {0};

    assert_non_null(layers);
    assert_int_equal(mkdir(out_dir, 0755), 0);
    must(sw_st_open(&st, source_dir, &err), &err);
    for (int l = 0; l < LAYERS_MAX; l++)
        for (int half = 0; half < 2; half++)
            draw(layers[l].factor[half], sw_st_find(st, "model.norm.weight")->view.shape[0],
                 n_channels, factor, &rng);
    must(sw_st_writer_new(&w, out_dir, 0, &err), &err);
    for (int64_t i = 0; i < sw_st_count(st); i++) {
        const sw_st_tensor *t = sw_st_at(st, i);
        must(sw_st_writer_declare(w, t->name, SW_DTYPE_F32, t->view.n_dims, t->view.shape, &err),
             &err);
    }
    must(sw_st_writer_begin(w, &err), &err);
    for (int64_t i = 0; i < sw_st_count(st); i++) put_one(w, sw_st_at(st, i), layers);
    must(sw_st_writer_commit(w, &err), &err);
    sw_st_writer_free(w);
    sw_st_close(st);
    copy_config(out_dir, source_dir);
    free(layers);
}
