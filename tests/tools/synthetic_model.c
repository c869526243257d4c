/* synthetic_model.c - write a model of random weights, to measure memory and time.
 *
 *   synthetic_model DIR SHAPE [layers=N] [vocab=N] [tokens=N] [threads=N]
 *   synthetic_model DIR HIDDEN INTERMEDIATE LAYERS HEADS KV_HEADS VOCAB [DIALECT | experts=N]
 *
 * SHAPE is a name of synthetic.c: 8b, 70b, 30b-a3b, deepseek-v3, or a toy of a family. The second
 * form is a Llama or, of N experts of which a token uses two, a Mixtral of one's own sizes. bf16,
 * untied, in shards, with tokens.u16 beside it: random ids for --calib. Weights are normal with a
 * deviation of 1 / sqrt(columns). With a dialect the linears of the blocks are random 4-bit codes
 * under scales of groups of 128 instead, the same in every block. The same arguments give the same
 * bytes for any number of threads. What it took is said on stdout. Exit code 1 says on stderr what
 * went wrong, 2 what it wants to be told.
 */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/mem.h"
#include "formats/base/parallel.h"
#include "formats/base/print_buf.h"
#include "formats/dialect/dialect.h"
#include "formats/file/config_text.h"
#include "formats/file/safetensors.h"
#include "formats/io/profile.h"
#include "formats/num/half.h"
#include "tests/support/toys/random.h"
#include "tests/support/toys/synthetic.h"

#define SHARD_BYTES ((uint64_t)5 << 30)
#define CHUNK_ELEMS 262144 /* made at once, and still in the cache when they are written */
/* Weights are drawn from a table of normal deviates: fast, and as good here. It fits the first
 * cache, and five draws come out of one random number. */
#define TABLE_BITS 12
#define TABLE (1 << TABLE_BITS)
#define DRAWS 5

typedef struct job {
    synthetic model;
    const sw_dialect *dialect; /* NULL: bf16 */
    int64_t n_tokens, n_threads;
} job;

/* What is written, with the encoded linears of one block, which all blocks have. */
#define SHAPES_MAX 8
typedef struct encoded {
    int64_t rows, cols;
    void *parts[SW_DIALECT_TENSORS_MAX];
} encoded;

/* The deviates of weights with so many columns. */
#define WIDTHS_MAX 16
typedef struct deviates {
    int64_t cols;
    uint16_t at[TABLE];
} deviates;

typedef struct filler {
    sw_st_writer *w;
    const sw_dialect *dialect;
    sw_qspec spec;
    encoded linears[SHAPES_MAX];
    test_rng rng; /* of codes and scales */
    deviates widths[WIDTHS_MAX];
    synthetic_tensor *tensors;
    int64_t n_tensors;
    atomic_int rc; /* of the first thread that failed; its message */
    sw_err err;
} filler;

static bool is_packed(const filler *f, const char *name)
{
    return f->dialect && strstr(name, "_proj.");
}

/* Part `i` of the linear whose dense name is `name`. */
static void part_name(char out[192], const char *name, const sw_part *part)
{
    (void)snprintf(out, 192, "%.*s.%s", (int)(strrchr(name, '.') - name), name, part->suffix);
}

static sw_code declare(const filler *f, const char *name, int64_t rows, int64_t cols, sw_err *err)
{
    const int64_t dims[] = {rows, cols};
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    sw_code rc = SW_OK;
    int n;

    if (!is_packed(f, name))
        return sw_st_writer_declare(f->w, name, SW_DTYPE_BF16, cols ? 2 : 1, dims, err);
    n = f->dialect->declare(parts, &f->spec, rows, cols);
    for (int i = 0; i < n && rc == SW_OK; i++) {
        char at[192];
        part_name(at, name, &parts[i]);
        rc = sw_st_writer_declare(f->w, at, parts[i].dtype, parts[i].n_dims, parts[i].shape, err);
    }
    return rc;
}

static sw_code encode(encoded *e, filler *f, int64_t rows, int64_t cols, sw_err *err)
{
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    int n = f->dialect->declare(parts, &f->spec, rows, cols);
    sw_qtensor q = {0};
    sw_code rc = sw_qtensor_alloc(&q, &f->spec, rows, cols, err);

    for (int64_t i = 0; rc == SW_OK && i < rows * cols; i++)
        q.codes[i] = (uint8_t)(test_u64(&f->rng) & 15);
    for (int64_t i = 0; rc == SW_OK && i < rows * q.n_groups; i++)
        q.scales[i] = sw_num_round_to((float)(0.001 + 0.01 * test_uniform(&f->rng)),
                                      f->spec.scale_dtype);
    for (int i = 0; i < n && rc == SW_OK; i++) {
        uint64_t n_bytes = 0;
        if ((rc = sw_shape_bytes(&n_bytes, parts[i].dtype, parts[i].n_dims, parts[i].shape,
                                 err)) == SW_OK)
            rc = sw_mem_get(&e->parts[i], (int64_t)n_bytes, 1, "parts", err);
    }
    if (rc == SW_OK) rc = f->dialect->encode(e->parts, &q, err);
    e->rows = rows;
    e->cols = cols;
    sw_qtensor_free(&q);
    return rc;
}

static sw_code fill_packed(filler *f, const char *name, int64_t rows, int64_t cols, sw_err *err)
{
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    int n = f->dialect->declare(parts, &f->spec, rows, cols);
    encoded *e = f->linears;
    sw_code rc = SW_OK;

    while (e->rows && (e->rows != rows || e->cols != cols)) e++;
    if (!e->rows) rc = encode(e, f, rows, cols, err);
    for (int i = 0; i < n && rc == SW_OK; i++) {
        uint64_t n_bytes = 0;
        char at[192];
        part_name(at, name, &parts[i]);
        if ((rc = sw_shape_bytes(&n_bytes, parts[i].dtype, parts[i].n_dims, parts[i].shape,
                                 err)) == SW_OK)
            rc = sw_st_writer_put(f->w, at, e->parts[i], (size_t)n_bytes, err);
    }
    return rc;
}

/* FNV-1a: each tensor has numbers of its own, whichever thread makes it. */
static uint64_t seed_of(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u;

    for (; *name; name++) hash = (hash ^ (uint8_t)*name) * 0x100000001b3u;
    return hash;
}

static sw_code add_width(filler *f, int64_t cols, sw_err *err)
{
    test_rng rng = {1};
    deviates *d = f->widths;

    while (d < f->widths + WIDTHS_MAX && d->cols && d->cols != cols) d++;
    if (d == f->widths + WIDTHS_MAX)
        return SW_FAIL(err, SW_E_BUG, "more than %d widths of tensors", WIDTHS_MAX);
    if (d->cols) return SW_OK;
    d->cols = cols;
    for (int i = 0; i < TABLE; i++)
        d->at[i] = sw_bf16_encode((float)(test_gauss(&rng) / sqrt((double)cols)));
    return SW_OK;
}

static const uint16_t *table_of(const filler *f, int64_t cols)
{
    const deviates *d = f->widths;

    while (d->cols != cols) d++;
    return d->at;
}

/* n weights; n is a multiple of DRAWS, or the tensor ends with them. */
static void draw(uint16_t *out, int64_t n, const uint16_t *table, test_rng *rng)
{
    for (int64_t i = 0; i < n; i += DRAWS) {
        uint64_t bits = test_u64(rng);
        const int64_t end = i + DRAWS < n ? i + DRAWS : n;

        for (int64_t j = i; j < end; j++, bits >>= TABLE_BITS) out[j] = table[bits & (TABLE - 1)];
    }
}

static sw_code fill_matrix(filler *f, const synthetic_tensor *t, sw_err *err)
{
    const uint16_t *table = table_of(f, t->cols);
    const int64_t n = t->rows * t->cols, chunk = CHUNK_ELEMS / DRAWS * DRAWS;
    test_rng rng = {seed_of(t->name)};
    sw_st_stream s = {0};
    uint64_t n_bytes = 0;
    void *room = NULL;
    sw_code rc = sw_st_stream_open(&s, f->w, t->name, err);

    for (int64_t i = 0; i < n && rc == SW_OK; i += chunk) {
        const int64_t some = n - i < chunk ? n - i : chunk;

        if ((rc = sw_st_stream_room(&room, &s, (size_t)some * 2, err)) != SW_OK) break;
        draw(room, some, table, &rng);
        rc = sw_st_stream_put(&s, (size_t)some * 2, err);
    }
    if (rc == SW_OK) rc = sw_st_stream_end(&n_bytes, &s, err);
    sw_st_stream_close(&s);
    return rc;
}

static sw_code fill_vector(filler *f, const synthetic_tensor *t, sw_err *err)
{
    uint16_t *data = NULL;
    sw_code rc = SW_MEM_GET(&data, t->rows, "weights", err);

    if (rc != SW_OK) return rc;
    for (int64_t i = 0; i < t->rows; i++) data[i] = sw_bf16_encode(t->value);
    rc = sw_st_writer_put(f->w, t->name, data, (size_t)t->rows * sizeof *data, err);
    sw_mem_put(data);
    return rc;
}

/* The dense tensors [begin, end), as one of several threads. */
static void fill_some(void *ctx, int64_t begin, int64_t end, int thread)
{
    filler *f = ctx;

    (void)thread;
    for (int64_t i = begin; i < end && atomic_load(&f->rc) == SW_OK; i++) {
        const synthetic_tensor *t = &f->tensors[i];
        int was = SW_OK;
        sw_err err = {0};
        sw_code rc = SW_OK;

        if (!is_packed(f, t->name)) rc = (t->cols ? fill_matrix : fill_vector)(f, t, &err);
        if (rc != SW_OK && atomic_compare_exchange_strong(&f->rc, &was, (int)rc)) f->err = err;
    }
}

static sw_code fill_all(filler *f, int64_t n_threads, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < f->n_tensors && rc == SW_OK; i++) {
        const synthetic_tensor *t = &f->tensors[i];

        if (is_packed(f, t->name))
            rc = fill_packed(f, t->name, t->rows, t->cols, err);
        else if (t->cols)
            rc = add_width(f, t->cols, err);
    }
    if (rc != SW_OK) return rc;
    sw_parallel_for((int)n_threads, f->n_tensors, 1, fill_some, f);
    if (atomic_load(&f->rc) != SW_OK) *err = f->err;
    return (sw_code)atomic_load(&f->rc);
}

static sw_code declare_all(filler *f, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < f->n_tensors && rc == SW_OK; i++)
        rc = declare(f, f->tensors[i].name, f->tensors[i].rows, f->tensors[i].cols, err);
    return rc;
}

static sw_qspec synthetic_spec(const sw_dialect *dialect)
{
    sw_qspec spec = {.num = sw_num_by_bits(4), .is_symmetric = true, .group_elems = 128};

    if (dialect) spec.scale_dtype = dialect->scale_dtype(SW_DTYPE_BF16);
    return spec;
}

/* ", "quantization_config": {...}" or nothing; owned by the caller. */
static sw_code config_text(char **out, const sw_dialect *dialect, sw_err *err)
{
    static const char *const head[] = {"lm_head"};
    const sw_qconfig config = {.spec = synthetic_spec(dialect), .ignore = head, .n_ignore = 1};
    cJSON *object = NULL;
    sw_code rc = SW_OK;

    if (dialect) rc = dialect->write_config(&object, &config, err);
    if (rc == SW_OK && object) rc = sw_json_pretty(out, object, 1, err);
    cJSON_Delete(object);
    return rc;
}

static sw_code write_weights(uint64_t *n_bytes, const char *dir, const job *j, sw_err *err)
{
    filler *f = NULL;
    sw_code rc = SW_MEM_GET(&f, 1, "tables", err);

    if (rc != SW_OK) return rc;
    f->rng.state = 1;
    f->dialect = j->dialect;
    f->spec = synthetic_spec(j->dialect);
    if ((rc = synthetic_tensors(&f->tensors, &f->n_tensors, &j->model, err)) == SW_OK &&
        (rc = sw_st_writer_new(&f->w, dir, SHARD_BYTES, err)) == SW_OK &&
        (rc = declare_all(f, err)) == SW_OK && (rc = sw_st_writer_begin(f->w, err)) == SW_OK &&
        (rc = fill_all(f, j->n_threads, err)) == SW_OK)
        rc = sw_st_writer_commit(f->w, err);
    if (rc == SW_OK) *n_bytes = sw_st_writer_data_bytes(f->w);
    sw_st_writer_free(f->w);
    for (int i = 0; i < SHAPES_MAX; i++)
        for (int p = 0; p < SW_DIALECT_TENSORS_MAX; p++) sw_mem_put(f->linears[i].parts[p]);
    sw_mem_put(f->tensors);
    sw_mem_put(f);
    return rc;
}

static sw_code write_config(const char *dir, const job *j, sw_err *err)
{
    sw_print_buf buf = {0};
    char path[SW_PATH_BYTES], *text = NULL, *quantized = NULL;
    sw_code rc = config_text(&quantized, j->dialect, err);

    if (rc == SW_OK) rc = synthetic_config(&text, &j->model, err);
    if (rc == SW_OK) rc = sw_print_add(&buf, text, strlen(text), err);
    if (rc == SW_OK && quantized) rc = sw_print_fmt(&buf, err, ",\n \"quantization_config\": ");
    if (rc == SW_OK && quantized) rc = sw_print_add(&buf, quantized, strlen(quantized), err);
    if (rc == SW_OK) rc = sw_print_fmt(&buf, err, "}\n");
    if (rc == SW_OK) rc = sw_path_join(path, dir, "config.json", err);
    if (rc == SW_OK) rc = sw_file_put(path, buf.at, buf.n_bytes, err);
    sw_mem_put(quantized);
    sw_mem_put(text);
    sw_mem_put(buf.at);
    return rc;
}

static sw_code write_tokens(const char *dir, const job *j, sw_err *err)
{
    const uint64_t vocab = (uint64_t)j->model.size[SYN_VOCAB];
    char path[SW_PATH_BYTES];
    uint16_t *ids = NULL;
    test_rng rng = {2};
    sw_code rc = SW_MEM_GET(&ids, j->n_tokens, "tokens", err);

    for (int64_t i = 0; i < j->n_tokens && rc == SW_OK; i++)
        ids[i] = (uint16_t)(test_u64(&rng) % vocab);
    if (rc == SW_OK) rc = sw_path_join(path, dir, "tokens.u16", err);
    if (rc == SW_OK) rc = sw_file_put(path, ids, (size_t)j->n_tokens * sizeof *ids, err);
    sw_mem_put(ids);
    return rc;
}

/* "layers=4": a positive number into where it belongs. */
static bool read_setting(job *j, const char *word)
{
    const struct {
        const char *name;
        int64_t *at, most;
    } settings[] = {{"layers=", &j->model.size[SYN_LAYERS], 1000},
                    {"vocab=", &j->model.size[SYN_VOCAB], 65536},
                    {"tokens=", &j->n_tokens, (int64_t)1 << 30},
                    {"threads=", &j->n_threads, 1024}};

    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const size_t n = strlen(settings[i].name);
        char *end = NULL;

        if (strncmp(word, settings[i].name, n) != 0) continue;
        *settings[i].at = strtoll(word + n, &end, 10);
        return end != word + n && !*end && *settings[i].at > 0 &&
               *settings[i].at <= settings[i].most;
    }
    return false;
}

static bool read_by_name(job *j, int argc, char **argv)
{
    sw_err err = {0};

    if (argc < 3) return false;
    if (synthetic_find(&j->model, argv[2], &err) != SW_OK) {
        fprintf(stderr, "synthetic_model: %s\n", err.text);
        return false;
    }
    for (int i = 3; i < argc; i++)
        if (!read_setting(j, argv[i])) return false;
    return true;
}

static bool read_by_sizes(job *j, int argc, char **argv)
{
    const char *kind = argc == 9 ? argv[8] : NULL;
    const int64_t experts = kind && !strncmp(kind, "experts=", 8) ? strtoll(kind + 8, NULL, 10) : 0;
    int64_t sizes[6];

    if (argc < 8 || argc > 9) return false;
    for (int i = 0; i < 6; i++)
        if ((sizes[i] = strtoll(argv[i + 2], NULL, 10)) <= 0) return false;
    j->model = synthetic_of(sizes, experts);
    j->dialect = kind && !experts ? sw_dialect_find(kind) : NULL;
    return !kind || experts || j->dialect;
}

int main(int argc, char *argv[])
{
    job j = {.n_tokens = 65536, .n_threads = sw_cpu_count()};
    const double start_s = sw_clock_s();
    const bool by_sizes = argc > 2 && argv[2][strspn(argv[2], "0123456789")] == '\0';
    uint64_t n_bytes = 0;
    double took_s;
    sw_err err = {0};

    if (!(by_sizes ? read_by_sizes : read_by_name)(&j, argc, argv)) {
        fprintf(stderr, "synthetic_model DIR SHAPE [layers=N] [vocab=N] [tokens=N] [threads=N]\n"
                "synthetic_model DIR HIDDEN INTERMEDIATE LAYERS HEADS KV_HEADS VOCAB "
                "[DIALECT | experts=N]\n");
        return 2;
    }
    (void)mkdir(argv[1], 0755);
    if (write_weights(&n_bytes, argv[1], &j, &err) != SW_OK ||
        write_config(argv[1], &j, &err) != SW_OK || write_tokens(argv[1], &j, &err) != SW_OK) {
        fprintf(stderr, "synthetic_model: %s\n", err.text);
        return 1;
    }
    took_s = sw_clock_s() - start_s;
    printf("%.2f GB in %.1f s: %.2f GB/s\n", (double)n_bytes / 1e9, took_s,
           (double)n_bytes / 1e9 / took_s);
    return 0;
}
