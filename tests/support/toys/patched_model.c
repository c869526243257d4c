/* patched_model.c - see patched_model.h. */
#include "tests/support/toys/patched_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "formats/file/safetensors.h"
#include "formats/io/file.h"
#include "formats/num/half.h"
#include "tests/support/toys/random.h"

static char *slurp(size_t *n, const char *dir, const char *name)
{
    char path[SW_PATH_BYTES];
    sw_map map = {0};
    char *bytes;

    assert_int_equal(sw_path_join(path, dir, name, NULL), SW_OK);
    assert_int_equal(sw_map_open(&map, path, NULL), SW_OK);
    *n = map.size_bytes;
    bytes = malloc(*n);
    assert_non_null(bytes);
    memcpy(bytes, map.data, *n);
    sw_map_close(&map);
    return bytes;
}

static void spill(const char *dir, const char *name, const char *bytes, size_t n)
{
    char path[SW_PATH_BYTES];

    assert_int_equal(sw_path_join(path, dir, name, NULL), SW_OK);
    assert_int_equal(sw_file_put(path, bytes, n, NULL), SW_OK);
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), n_end = strlen(end);

    return n >= n_end && !strcmp(text + n - n_end, end);
}

/* The header stays as long as it was: it may end with blanks. */
void patched_names_make(const char *dir, const char *from, const char *prefix)
{
    size_t n_config, n_model, n_header = 0, at = 8;
    char *config = slurp(&n_config, from, "config.json");
    char *model = slurp(&n_model, from, "model.safetensors"), quoted[64];

    for (int i = 7; i >= 0; i--) n_header = n_header << 8 | (unsigned char)model[i];
    (void)snprintf(quoted, sizeof quoted, "\"%s", prefix);
    for (size_t i = 8; i < 8 + n_header;) {
        const bool is_cut = !strncmp(model + i, quoted, strlen(quoted));

        model[at++] = model[i];
        i += is_cut ? strlen(quoted) : 1;
    }
    assert_true(at < 8 + n_header);
    memset(model + at, ' ', 8 + n_header - at);
    assert_int_equal(mkdir(dir, 0755), 0);
    spill(dir, "config.json", config, n_config);
    spill(dir, "model.safetensors", model, n_model);
    free(config);
    free(model);
}

void patched_config_make(const char *dir, const char *from, const char *have, const char *want)
{
    size_t n_config, n_model;
    char *config = slurp(&n_config, from, "config.json"), *at, *text;
    char *model = slurp(&n_model, from, "model.safetensors");
    const size_t room = n_config + strlen(want) + 1;

    config = realloc(config, n_config + 1);
    text = malloc(room);
    assert_true(config && text);
    config[n_config] = '\0';
    at = strstr(config, have);
    assert_non_null(at);
    (void)snprintf(text, room, "%.*s%s%s", (int)(at - config), config, want, at + strlen(have));
    assert_int_equal(mkdir(dir, 0755), 0);
    spill(dir, "config.json", text, strlen(text));
    spill(dir, "model.safetensors", model, n_model);
    free(config);
    free(text);
    free(model);
}

void patched_model_make(const char *dir, const char *from, const char *end, double size,
                        uint64_t seed)
{
    size_t n_config, n_model;
    char *config = slurp(&n_config, from, "config.json");
    char *model = slurp(&n_model, from, "model.safetensors");
    test_rng rng = {seed};
    int n_patched = 0;
    sw_st *st = NULL;

    assert_int_equal(sw_st_open_bytes(&st, model, n_model, "toy", NULL), SW_OK);
    for (int64_t i = 0; i < sw_st_count(st); i++) {
        const sw_st_tensor *t = sw_st_at(st, i);
        char *at = model + ((const char *)t->view.data - model);

        if (!ends_with(t->name, end)) continue;
        assert_int_equal(t->view.dtype, SW_DTYPE_BF16);
        for (size_t k = 0; k < t->view.size_bytes; k += 2) {
            const uint32_t bits = sw_f32_bits((float)(size * test_gauss(&rng)));
            const uint16_t half = (uint16_t)(bits >> 16);

            memcpy(at + k, &half, 2);
        }
        n_patched++;
    }
    assert_true(n_patched > 0);
    sw_st_close(st);
    assert_int_equal(mkdir(dir, 0755), 0);
    spill(dir, "config.json", config, n_config);
    spill(dir, "model.safetensors", model, n_model);
    free(config);
    free(model);
}

void patched_scale_make(const char *dir, const char *from, const char *name, bool is_column,
                        int64_t first, int64_t n, double factor)
{
    size_t n_config, n_model;
    char *config = slurp(&n_config, from, "config.json");
    char *model = slurp(&n_model, from, "model.safetensors");
    const sw_st_tensor *t;
    sw_st *st = NULL;

    assert_int_equal(sw_st_open_bytes(&st, model, n_model, "toy", NULL), SW_OK);
    t = sw_st_find(st, name);
    assert_true(t && t->view.dtype == SW_DTYPE_BF16 && t->view.n_dims == 2);
    for (int64_t k = 0; k < t->view.shape[0] * t->view.shape[1]; k++) {
        char *at = model + ((const char *)t->view.data - model) + 2 * k;
        int64_t line = is_column ? k % t->view.shape[1] : k / t->view.shape[1];
        uint16_t half;

        if (line < first || line >= first + n) continue;
        memcpy(&half, at, 2);
        half = sw_bf16_encode((float)(factor * (double)sw_bf16_decode(half)));
        memcpy(at, &half, 2);
    }
    sw_st_close(st);
    assert_int_equal(mkdir(dir, 0755), 0);
    spill(dir, "config.json", config, n_config);
    spill(dir, "model.safetensors", model, n_model);
    free(config);
    free(model);
}
