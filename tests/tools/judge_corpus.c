/* judge_corpus.c - damage a sound checkpoint in every way of the tables in tests/support/damage*.h
 * and see that the judge finds each.
 *
 *   judge_corpus cut MODEL LAYERS OUT          the first layers of a model, to have it small
 *   judge_corpus sound CHECKPOINT MODEL        0 when the judge passes it
 *   judge_corpus all CHECKPOINT MODEL DIALECT FORMAT CSV [EVERY PHASE [bytes]]
 *                                              all damages, of those to bytes of tensors one in
 *                                              EVERY from PHASE on (or these alone), one line
 *                                              each to CSV
 *
 * A line on stdout names each damage that escaped or was blamed on something else, and each false
 * alarm. The last line counts. Exit code 1: some escaped; 2: it could not be tried.
 */
#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/mem.h"
#include "tests/support/damage.h"
#include "tests/support/damage_parts.h"
#include "tests/support/damage_text.h"
#include "verify/base/subject.h"
#include "verify/verify.h"

/* Instead of a text of the bundled tokenizer, where a model has another vocabulary: JUDGE_TEXT. */
#define TEXT "calib_data/eval.u16"
/* One damage in so many is judged with a text too. */
enum { WITH_TEXT = 8, TENSORS_MAX = 4096 };

typedef struct target {
    const sw_st_tensor *tensor;
    char path[256]; /* of the linear, or the tensor's name */
    damage_place place;
} target;

typedef struct corpus {
    const char *base, *model, *dialect, *format;
    char dir[SW_PATH_BYTES]; /* what is judged: a copy of base */
    FILE *csv;
    int every, n, n_tried, n_found, n_misnamed, n_text;
    sw_subject subject;
    target targets[TENSORS_MAX];
    int n_targets;
} corpus;

static int number(const char *text) { return (int)strtol(text, NULL, 10); }

static void must(sw_code rc, const sw_err *err)
{
    if (rc == SW_OK) return;
    fprintf(stderr, "judge_corpus: %s\n", err->text);
    exit(2);
}

static uint8_t *take_file(const char *path, size_t *n_bytes)
{
    sw_map map = {0};
    sw_err err = {0};
    uint8_t *bytes;

    must(sw_map_open(&map, path, &err), &err);
    bytes = malloc(map.size_bytes + 1);
    if (!bytes) exit(2);
    memcpy(bytes, map.data, map.size_bytes);
    bytes[map.size_bytes] = '\0';
    *n_bytes = map.size_bytes;
    sw_map_close(&map);
    return bytes;
}

static int drop(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info;
    (void)kind;
    (void)walk;
    return remove(path);
}

static void drop_case(const corpus *c) { (void)nftw(c->dir, drop, 16, FTW_DEPTH | FTW_PHYS); }

/* A copy of the base without its manifest, which would tell; but for `but` (NULL: of all files). */
static void make_case(const corpus *c, const char *but)
{
    char from[SW_PATH_BYTES], to[SW_PATH_BYTES];
    struct dirent *entry;
    sw_err err = {0};
    DIR *dir;

    drop_case(c);
    if (c->subject.is_gguf) return;
    if (mkdir(c->dir, 0755) || !(dir = opendir(c->base))) exit(2);
    while ((entry = readdir(dir))) {
        if (entry->d_name[0] == '.' || !strcmp(entry->d_name, "manifest.json") ||
            (but && !strcmp(entry->d_name, but)))
            continue;
        must(sw_path_join(from, c->base, entry->d_name, &err), &err);
        must(sw_path_join(to, c->dir, entry->d_name, &err), &err);
        if (link(from, to)) exit(2);
    }
    closedir(dir);
}

static void put_case_file(const corpus *c, const char *name, const void *bytes, size_t n_bytes)
{
    char path[SW_PATH_BYTES];
    sw_err err = {0};

    if (c->subject.is_gguf) (void)snprintf(path, sizeof path, "%s", c->dir);
    else must(sw_path_join(path, c->dir, name, &err), &err);
    must(sw_file_put(path, bytes, n_bytes, &err), &err);
}

typedef struct verdict {
    bool is_found, is_named;
    char by[40];
    const char *text; /* in `said` */
    char said[1024];
} verdict;

static bool names(const char *text, const char *a, const char *b)
{
    return strstr(text, a) || (b && strstr(text, b));
}

/* `a` or `b` is what must be named. */
static void judge(verdict *v, const corpus *c, const char *a, const char *b, bool with_text)
{
    const char *own = getenv("JUDGE_TEXT"), *text = own ? own : TEXT;
    sw_verify_options o = {.checkpoint_dir = c->dir, .original_dir = c->model, .n_threads = 1};
    sw_report r = {0};
    sw_err err = {0};
    sw_code rc;

    if (with_text) {
        o.text_paths = &text;
        o.n_texts = 1;
        o.window = own ? 48 : 64;
        o.max_windows = 1;
        o.gap_windows = 1;
    }
    memset(v, 0, sizeof *v);
    rc = sw_verify_run(&r, &o, &err);
    if (rc == SW_OK) {
        rc = sw_report_verdict(&r, &err);
        v->is_found = rc != SW_OK;
        (void)snprintf(v->by, sizeof v->by, "%s", r.n_findings ? r.findings[0].what : "");
        (void)snprintf(v->said, sizeof v->said, "%s", r.n_findings ? r.findings[0].text : err.text);
        for (int64_t i = 0; i < r.n_findings && i < SW_FINDINGS_MAX && !v->is_named; i++) {
            if (!names(r.findings[i].text, a, b) && !names(r.findings[i].name, a, b)) continue;
            v->is_named = true;
            (void)snprintf(v->by, sizeof v->by, "%s", r.findings[i].what);
            (void)snprintf(v->said, sizeof v->said, "%s", r.findings[i].text);
        }
        for (int64_t i = 0; *a && i < r.n_remarks && i < SW_REMARKS_MAX && !v->is_found; i++) {
            if (!names(r.remarks[i], a, b)) continue; /* nothing is computed otherwise */
            v->is_found = v->is_named = true;
            (void)snprintf(v->by, sizeof v->by, "remark");
            (void)snprintf(v->said, sizeof v->said, "%s", r.remarks[i]);
        }
        sw_report_free(&r);
        return;
    }
    v->is_found = rc != SW_E_BUG;
    v->is_named = names(err.text, a, b);
    (void)snprintf(v->by, sizeof v->by, "exit %d", (int)rc);
    (void)snprintf(v->said, sizeof v->said, "%s", err.text);
}

static void put_csv_text(FILE *f, const char *text)
{
    fputc('"', f);
    for (; *text; text++)
        if (*text == '"') fputs("\"\"", f);
        else fputc(*text == '\n' ? ' ' : *text, f);
    fputc('"', f);
}

/* What is in c->dir now: judged, counted and written down. */
static void try_case(corpus *c, const char *kind, const char *a, const char *b)
{
    const char *prefix = strstr(c->dir, "/case");
    verdict v;

    for (int with_text = 0; with_text < 1 + (c->n_tried % WITH_TEXT == 0); with_text++) {
        const char *at;

        judge(&v, c, a, b, with_text);
        /* messages do not depend on where the corpus was made */
        while (prefix && (at = strstr(v.said, c->dir)))
            memmove((char *)(uintptr_t)at, at + strlen(c->dir), strlen(at + strlen(c->dir)) + 1);
        if (!v.is_found || !v.is_named)
            printf("%s: %s %s, %s, %s%s: %s\n", v.is_found ? "misnamed" : "escaped", c->dialect,
                   c->format, kind, a, with_text ? ", with a text" : "", v.said);
        if (with_text) c->n_text++;
        if (!v.is_found) break;
    }
    c->n_tried++;
    c->n_found += v.is_found;
    c->n_misnamed += v.is_found && !v.is_named;
    fprintf(c->csv, "\"%s\",%s,%s,%s,%s,", kind, c->dialect, c->format, a,
            v.is_found ? v.by : "escaped");
    put_csv_text(c->csv, v.said);
    fputc('\n', c->csv);
    fflush(c->csv);
}

/* ---- bytes ---------------------------------------------------------------------------------- */

static void list_targets(corpus *c)
{
    const sw_st *st = c->subject.st;

    for (int64_t i = 0; i < sw_st_count(st) && c->n_targets < TENSORS_MAX; i++) {
        const sw_st_tensor *t = sw_st_at(st, i);
        const char *dot = strrchr(t->name, '.'), *fused = strstr(t->name, "_proj_");
        target *to = &c->targets[c->n_targets];

        if (!dot || !t->view.data || strlen(t->name) >= sizeof to->path) continue;
        to->tensor = t;
        (void)snprintf(to->path, sizeof to->path, "%s", t->name);
        if (fused && strcmp(fused, "_proj_blocks") && strcmp(fused, "_proj_scales")) fused = NULL;
        if (damage_place_by_name(&to->place, t->name, c->subject.model.n_layers)) fused = NULL;
        else if (fused) {
            to->place = fused[6] == 'b' ? DAMAGE_CODES : DAMAGE_SCALES;
            *strstr(to->path, "experts") = '\0'; /* found expert by expert */
        } else if (!damage_place_of(&to->place, dot + 1, &t->view)) continue;
        if (!fused) to->path[dot - t->name] = '\0';
        c->n_targets++;
    }
}

/* The n-th tensor of that place, counted round; of big ones, large enough to lose 4 KB, if there
 * are such. */
static const target *pick(const corpus *c, damage_place place, bool is_big, int n)
{
    const target *of_place[TENSORS_MAX];
    int n_found = 0;

    for (int i = 0; i < c->n_targets; i++)
        if (c->targets[i].place == place &&
            (!is_big || c->targets[i].tensor->view.size_bytes >= 8192))
            of_place[n_found++] = &c->targets[i];
    if (!n_found && is_big) return pick(c, place, false, n);
    return n_found ? of_place[n % n_found] : NULL;
}

/* Another of the same size and place, beginning after `t`. */
static const target *partner(const corpus *c, const target *t)
{
    int from = (int)(t - c->targets);

    for (int i = 1; i < c->n_targets; i++) {
        const target *other = &c->targets[(from + i) % c->n_targets];
        if (other->place == t->place && other->tensor->view.dtype == t->tensor->view.dtype &&
            other->tensor->view.size_bytes == t->tensor->view.size_bytes &&
            memcmp(other->tensor->view.data, t->tensor->view.data, t->tensor->view.size_bytes))
            return other;
    }
    return NULL;
}

/* Where a tensor lies in the image of its file: found by the largest of them, since small ones may
 * have equal bytes. */
static uint8_t *in_image(uint8_t *image, size_t n_bytes, const corpus *c, const sw_st_tensor *t)
{
    const sw_cview *anchor = &t->view;
    uint8_t *at;

    for (int i = 0; i < c->n_targets; i++) {
        const sw_st_tensor *other = c->targets[i].tensor;
        if (other->shard == t->shard && other->view.size_bytes > anchor->size_bytes)
            anchor = &other->view;
    }
    at = memmem(image, n_bytes, anchor->data, anchor->size_bytes);
    return at ? at + ((intptr_t)t->view.data - (intptr_t)anchor->data) : NULL;
}

static void try_bytes(corpus *c, const damage_kind *kind, int at)
{
    const target *t = pick(c, kind->place, kind->place == DAMAGE_CODES, at * 5 + 3), *other = NULL;
    const sw_spec_scheme *scheme = &c->subject.scheme;
    damage_site site = {.bits = c->subject.is_gguf ? 0 : scheme->bits,
                        .is_float = scheme->exponent_bits > 0};
    const char *path = sw_st_file_path(c->subject.st, t ? t->tensor->shard : 0), *name;
    uint8_t *image, *before;
    size_t n_bytes;

    if (!t && kind->place != DAMAGE_HEADER) return;
    if (kind->needs_other && !(other = partner(c, t))) return;
    if (c->n++ % c->every) return;
    name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    image = take_file(path, &n_bytes);
    before = take_file(path, &n_bytes);
    if (kind->place == DAMAGE_HEADER) {
        site.own = image + 8;
        site.n_bytes = c->subject.is_gguf ? n_bytes / 2 : n_bytes < 200000 ? n_bytes / 2 : 100000;
    } else {
        site.own = in_image(image, n_bytes, c, t->tensor);
        site.n_bytes = t->tensor->view.size_bytes;
        site.dtype = t->tensor->view.dtype;
        site.offset = (size_t)(site.own - image);
        if (other) site.other = in_image(image, n_bytes, c, other->tensor);
    }
    if (!site.own || (other && !site.other)) exit(2);
    kind->apply(&site);
    if (memcmp(image, before, n_bytes)) {
        make_case(c, name);
        put_case_file(c, name, image, n_bytes);
        try_case(c, kind->name, t ? t->path : "model.layers", other ? other->path : NULL);
    }
    free(image);
    free(before);
}

/* ---- text and lists ------------------------------------------------------------------------- */

static void try_text(corpus *c, const char *file, const char *kind, const char *wants, char *text)
{
    if (!text) return;
    make_case(c, file);
    put_case_file(c, file, text, strlen(text));
    try_case(c, kind, *wants ? wants : "quant", *wants ? NULL : "model.layers");
    cJSON_free(text);
}

static void try_files(corpus *c)
{
    char path[SW_PATH_BYTES];
    sw_err err = {0};
    size_t n_bytes;
    char *text;

    for (int i = 0; i < n_damage_fields; i++) {
        const damage_field *f = &damage_fields[i];

        must(sw_path_join(path, c->base, f->file, &err), &err);
        if (!sw_path_exists(path)) continue;
        text = (char *)take_file(path, &n_bytes);
        try_text(c, f->file, f->name, f->wants, damage_field_apply(f, text));
        free(text);
    }
    must(sw_path_join(path, c->base, "tokenizer.json", &err), &err);
    if (!sw_path_exists(path)) return;
    text = (char *)take_file(path, &n_bytes);
    try_text(c, "tokenizer.json", "two ids of the vocabulary swapped", "tokenizer",
             damage_swap_ids(text));
    free(text);
}

static void try_parts(corpus *c)
{
    char module[256];

    for (int i = 0; i < n_damage_parts; i++) {
        make_case(c, "model.safetensors");
        if (damage_part_apply(module, &damage_parts[i], c->dir, c->subject.st))
            try_case(c, damage_parts[i].name, module, NULL);
    }
}

static void try_lists(corpus *c)
{
    const target *t = pick(c, DAMAGE_CODES, true, 5);

    for (int kind = 0; t && kind < DAMAGE_LIST_COUNT; kind++) {
        make_case(c, "model.safetensors");
        if (damage_list_apply((damage_list_kind)kind, c->dir, c->subject.st, t->path,
                              t->tensor->name))
            try_case(c, damage_list_names[kind], kind == DAMAGE_NO_NORM ? "input_layernorm"
                     : kind == DAMAGE_EXTRA ? "lora" : t->path, NULL);
    }
}

/* ---- commands ------------------------------------------------------------------------------- */

static int all(int argc, char **argv)
{
    static corpus c;
    const char *tmp = getenv("TMPDIR");
    char parent[64];
    sw_err err = {0};

    c.base = argv[2];
    c.model = argv[3];
    c.dialect = argv[4];
    c.format = argv[5];
    c.every = argc > 7 ? number(argv[7]) : 1;
    c.n = argc > 8 ? c.every - number(argv[8]) % c.every : 0;
    (void)snprintf(parent, sizeof parent, "%.40s/judge-XXXXXX", tmp ? tmp : "/tmp");
    if (c.every < 1 || c.n < 0 || !(c.csv = fopen(argv[6], "a")) || !mkdtemp(parent)) return 2;
    (void)snprintf(c.dir, sizeof c.dir, "%s/case", parent);
    must(sw_subject_open(&c.subject, c.base, true, &err), &err);
    list_targets(&c);
    for (int i = 0; i < n_damage_kinds; i++) try_bytes(&c, &damage_kinds[i], i);
    if (!c.subject.is_gguf && argc < 10) {
        try_files(&c);
        try_lists(&c);
        try_parts(&c);
    }
    drop_case(&c);
    (void)rmdir(parent);
    sw_subject_close(&c.subject);
    fclose(c.csv);
    printf("%s %s: %d damages, %d found, %d of them misnamed, %d tried with a text too\n",
           c.dialect, c.format, c.n_tried, c.n_found, c.n_misnamed, c.n_text);
    return c.n_found < c.n_tried || c.n_misnamed;
}

static int sound(char **argv)
{
    static corpus c;
    verdict v;

    (void)snprintf(c.dir, sizeof c.dir, "%s", argv[2]);
    c.model = argv[3];
    judge(&v, &c, "", NULL, false);
    if (v.is_found) printf("false alarm: %s: %s\n", argv[2], v.said);
    return v.is_found;
}

static bool is_kept(const char *name, int layers)
{
    const char *at = strstr(name, "layers.");

    return !at || number(at + strlen("layers.")) < layers;
}

static int cut(char **argv)
{
    int layers = number(argv[3]);
    char path[SW_PATH_BYTES], *text;
    sw_st_writer *w = NULL;
    cJSON *config;
    sw_st *st = NULL;
    sw_err err = {0};
    size_t n_bytes;

    if (mkdir(argv[4], 0755)) return 2;
    must(sw_st_open(&st, argv[2], &err), &err);
    must(sw_st_writer_new(&w, argv[4], 0, &err), &err);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < sw_st_count(st); i++) {
            const sw_st_tensor *t = sw_st_at(st, i);

            if (!is_kept(t->name, layers)) continue;
            must(pass ? sw_st_writer_put(w, t->name, t->view.data, t->view.size_bytes, &err)
                      : sw_st_writer_declare(w, t->name, t->view.dtype, t->view.n_dims,
                                             t->view.shape, &err), &err);
        }
        if (!pass) must(sw_st_writer_begin(w, &err), &err);
    }
    must(sw_st_writer_commit(w, &err), &err);
    sw_st_writer_free(w);
    sw_st_close(st);
    must(sw_path_join(path, argv[2], "config.json", &err), &err);
    text = (char *)take_file(path, &n_bytes);
    config = cJSON_Parse(text);
    free(text);
    cJSON_SetNumberValue(cJSON_GetObjectItemCaseSensitive(config, "num_hidden_layers"), layers);
    text = cJSON_Print(config);
    must(sw_path_join(path, argv[4], "config.json", &err), &err);
    must(sw_file_put(path, text, strlen(text), &err), &err);
    cJSON_free(text);
    cJSON_Delete(config);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 5 && !strcmp(argv[1], "cut")) return cut(argv);
    if (argc == 4 && !strcmp(argv[1], "sound")) return sound(argv);
    if (argc >= 7 && argc <= 10 && !strcmp(argv[1], "all")) return all(argc, argv);
    fprintf(stderr, "judge_corpus cut MODEL LAYERS OUT | sound CHECKPOINT MODEL | all CHECKPOINT "
            "MODEL DIALECT FORMAT CSV [EVERY PHASE [bytes]]\n");
    return 2;
}
