/* ckpt_case.c - see ckpt_case.h. */
#include "tests/support/cases/ckpt_case.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "formats/base/mem.h"
#include "tests/support/toys/qtensor_gen.h"

static void must(sw_code rc, const sw_err *err)
{
    if (rc != SW_OK) fail_msg("%s", err->text);
}

static void join(char out[SW_PATH_BYTES], const scratch *s, const char *dir, const char *name)
{
    int n = snprintf(out, SW_PATH_BYTES, "%s/%s%s%s", s->dir, dir, *name ? "/" : "", name);

    assert_in_range(n, 1, SW_PATH_BYTES - 1);
}

static void copy_in(const scratch *s, const char *from, const char *name)
{
    char target[SW_PATH_BYTES];
    sw_map map = {0};
    sw_err err = {0};

    join(target, s, "source", name);
    must(sw_map_open(&map, from, &err), &err);
    must(sw_file_put(target, map.data, map.size_bytes, &err), &err);
    sw_map_close(&map);
}

static void put_in(const scratch *s, const char *name, const char *text)
{
    char target[SW_PATH_BYTES];
    sw_err err = {0};

    join(target, s, "source", name);
    must(sw_file_put(target, text, strlen(text), &err), &err);
}

void ckpt_source(const scratch *s, const char *arch)
{
    char from[SW_PATH_BYTES], dir[SW_PATH_BYTES];

    join(dir, s, "source", "");
    assert_int_equal(mkdir(dir, 0755), 0);
    snprintf(from, sizeof from, "tests/golden/arch/%s/config.json", arch);
    copy_in(s, from, "config.json");
    snprintf(from, sizeof from, "tests/golden/arch/%s/model.safetensors", arch);
    copy_in(s, from, "model.safetensors");
    put_in(s, "tokenizer.json", "{\"model\": {\"type\": \"BPE\"}}");
    put_in(s, "generation_config.json", "{}\n");
    put_in(s, "LICENSE", "as you like it\n");
    put_in(s, "pytorch_model.bin", "old weights");
    put_in(s, "quantize_config.json", "{\"bits\": 4, \"stale\": true}");
    join(dir, s, "source", "original");
    assert_int_equal(mkdir(dir, 0755), 0);
}

static void add_layer(ckpt_case *c, const sw_dialect *dialect, int64_t layer)
{
    const sw_qspec *spec = &c->config.spec;
    sw_linear_ref refs[64];
    int64_t n = sw_model_linears(&c->source.model, layer, refs, 64);

    assert_in_range(n, 1, 64);
    for (int64_t i = 0; i < n; i++, c->n++) {
        assert_in_range(c->n, 0, CKPT_LINEARS_MAX - 1);
        assert_true(sw_model_slot_path(c->paths[c->n], &c->source.model, layer, refs[i].slot,
                                       refs[i].expert));
        sw_ckpt_linear one = {c->paths[c->n], refs[i].n_out, refs[i].k_in, NULL};
        c->linears[c->n] = one;
        sw_gen_qtensor(&c->q[c->n], spec->num->bits, spec->is_symmetric, spec->group_elems,
                       spec->scale_dtype, refs[i].n_out, refs[i].k_in, SW_GEN_RANDOM,
                       dialect->zero_min, (uint64_t)c->n + 100);
    }
}

void ckpt_open(ckpt_case *c, const scratch *s, const sw_dialect *dialect, int bits,
               bool is_symmetric, int64_t group_elems)
{
    sw_err err = {0};

    memset(c, 0, sizeof *c);
    join(c->dir, s, "source", "");
    must(sw_checkpoint_open(&c->source, c->dir, &err), &err);
    c->config.spec.num = sw_num_by_bits(bits);
    c->config.spec.is_symmetric = is_symmetric;
    c->config.spec.group_elems = group_elems;
    c->config.spec.scale_dtype = dialect->scale_dtype(c->source.model.dtype);
    c->config.spec.zero_min = dialect->zero_min;
    for (int64_t layer = 0; layer < c->source.model.n_layers; layer++) add_layer(c, dialect, layer);
}

void ckpt_add_head(ckpt_case *c, const sw_dialect *dialect)
{
    add_layer(c, dialect, c->source.model.n_layers);
}

static void round_group(sw_qtensor *q, int64_t n, int64_t group, const float *w, int64_t n_w)
{
    float low = 0, high = 0, code_max = (float)q->spec.num->code_max, scale;
    int64_t at = n * q->n_groups + group;
    int zero = q->spec.num->sym_zero;

    for (int64_t i = 0; i < n_w; i++) {
        low = fminf(low, w[i]);
        high = fmaxf(high, w[i]);
    }
    if (!q->zeros) low = -(high = fmaxf(high, -low));
    scale = sw_num_round_to(fmaxf((high - low) / code_max, 1e-6f), q->spec.scale_dtype);
    if (q->zeros) {
        zero = (int)fminf(fmaxf(nearbyintf(-low / scale), 1.0f), code_max); /* 1: for gptq */
        q->zeros[at] = (uint8_t)zero;
    }
    q->scales[at] = scale;
    for (int64_t i = 0; i < n_w; i++) {
        float code = nearbyintf(w[i] / scale) + (float)zero;
        q->codes[n * q->k_in + group * n_w + i] = (uint8_t)fminf(fmaxf(code, 0.0f), code_max);
    }
}

void ckpt_round(ckpt_case *c)
{
    for (int64_t i = 0; i < c->n; i++) {
        sw_qtensor *q = &c->q[i];
        char name[300];
        float *w = NULL;
        int64_t n_w = q->k_in / q->n_groups;
        sw_err err = {0};
        snprintf(name, sizeof name, "%s.weight", c->paths[i]);
        const sw_st_tensor *t = sw_st_find(c->source.st, name);
        assert_non_null(t);
        must(SW_MEM_GET(&w, q->n_out * q->k_in, "w", &err), &err);
        must(sw_float_decode_n(w, t->view.data, t->view.dtype, q->n_out * q->k_in, &err), &err);
        for (int64_t n = 0; n < q->n_out; n++)
            for (int64_t g = 0; g < q->n_groups; g++)
                round_group(q, n, g, w + n * q->k_in + g * n_w, n_w);
        sw_mem_put(w);
    }
}

void ckpt_close(ckpt_case *c)
{
    for (int64_t i = 0; i < c->n; i++) sw_qtensor_free(&c->q[i]);
    sw_checkpoint_close(&c->source);
}

sw_code ckpt_write(ckpt_case *c, const scratch *s, const char *name, const sw_dialect *dialect,
                   bool may_replace, uint64_t shard_bytes, bool with_reverse, sw_err *err)
{
    char out[SW_PATH_BYTES];
    sw_ckpt_writer *w = NULL;
    sw_code rc;

    join(out, s, name, "");
    rc = sw_ckpt_writer_new(&w, &c->source, out, may_replace, dialect, &c->config, c->linears, c->n,
                            shard_bytes, err);
    for (int64_t i = 0; i < c->n && rc == SW_OK; i++) {
        int64_t at = with_reverse ? c->n - 1 - i : i;
        rc = sw_ckpt_writer_put(w, c->paths[at], &c->q[at], err);
    }
    if (rc == SW_OK) rc = sw_ckpt_writer_commit(w, NULL, err);
    sw_ckpt_writer_free(w);
    return rc;
}

void ckpt_rewrite(const scratch *s, const char *dir, ckpt_edit edit, void *ctx)
{
    char path[SW_PATH_BYTES];
    sw_st *st = NULL;
    sw_st_writer *w = NULL;
    sw_err err = {0};

    join(path, s, dir, "");
    must(sw_st_open(&st, path, &err), &err);
    must(sw_st_writer_new(&w, path, 0, &err), &err);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < sw_st_count(st); i++) {
            const sw_st_tensor *t = sw_st_at(st, i);
            sw_cview view = t->view;
            if (!edit(ctx, t->name, &view)) continue;
            if (pass == 0)
                must(sw_st_writer_declare(w, t->name, view.dtype, view.n_dims, view.shape, &err),
                     &err);
            else
                must(sw_st_writer_put(w, t->name, view.data, view.size_bytes, &err), &err);
        }
        if (pass == 0) must(sw_st_writer_begin(w, &err), &err);
    }
    must(sw_st_writer_commit(w, &err), &err);
    sw_st_writer_free(w);
    sw_st_close(st);
}

char *ckpt_text(const scratch *s, const char *dir, const char *name, size_t *n_bytes)
{
    char path[SW_PATH_BYTES], *text = NULL;
    sw_map map = {0};
    sw_err err = {0};

    join(path, s, dir, name);
    must(sw_map_open(&map, path, &err), &err);
    must(SW_MEM_GET(&text, map.size_bytes + 1, "text", &err), &err);
    memcpy(text, map.data, map.size_bytes);
    if (n_bytes) *n_bytes = map.size_bytes;
    sw_map_close(&map);
    return text;
}

bool ckpt_has(const scratch *s, const char *dir, const char *name)
{
    char path[SW_PATH_BYTES];

    join(path, s, dir, name);
    return sw_path_exists(path);
}

void ckpt_assert_same_dirs(const scratch *s, const char *a, const char *b)
{
    char path[SW_PATH_BYTES];
    struct dirent *entry;
    int n = 0;
    DIR *stream;

    join(path, s, a, "");
    stream = opendir(path);
    assert_non_null(stream);
    while ((entry = readdir(stream)) != NULL) {
        size_t n_a, n_b;
        if (entry->d_name[0] == '.') continue;
        n++;
        char *text_a = ckpt_text(s, a, entry->d_name, &n_a);
        char *text_b = ckpt_text(s, b, entry->d_name, &n_b);
        if (n_a != n_b || memcmp(text_a, text_b, n_a)) fail_msg("%s differs", entry->d_name);
        sw_mem_put(text_a);
        sw_mem_put(text_b);
    }
    closedir(stream);
    assert_int_equal(scratch_count(s, b), n);
}
