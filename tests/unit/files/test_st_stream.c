/* test_st_stream.c - tensors in pieces: whatever the pieces, their order and the threads, the file
 * holds the tensors and the digest on the way is that of the file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/hash.h"
#include "formats/base/mem.h"
#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "formats/file/safetensors.h"
#include "formats/io/file_content.h"
#include "tests/support/scratch.h"
#include "tests/support/toys/random.h"

/* Around a page, around what is worth a block, around a block, several blocks. */
static const int64_t sizes[] = {1,     4095,  4096,    4097,    65535,   65536,  70001,
                                (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 1500001, 2 << 20,
                                3333333,       17,      0,             1048577};
#define N_TENSORS ((int)(sizeof sizes / sizeof *sizes))
#define LARGEST 3333333

typedef struct writing {
    sw_st_writer *w;
    const uint8_t *bytes; /* [LARGEST + N_TENSORS]; tensor t has those from t on */
    int order[N_TENSORS];
    uint64_t seed;
    bool is_restarted; /* every tensor is begun with other bytes, which are then left */
} writing;

/* Constants, since threads ask for the same one at a time. */
static const char *name_of(int t)
{
    static const char *const names[] = {"t00", "t01", "t02", "t03", "t04", "t05", "t06", "t07",
                                        "t08", "t09", "t10", "t11", "t12", "t13", "t14", "t15"};

    _Static_assert(sizeof names / sizeof *names == N_TENSORS, "a name for each tensor");
    return names[t];
}

static void must(sw_code rc, const sw_err *err)
{
    if (rc != SW_OK) fail_msg("%s", err->text);
}

/* Some pieces in place, some copied, of 1 byte to a few blocks. */
static sw_code stream_one(const writing *x, int t, int64_t n_all, int shift, test_rng *rng,
                          bool is_left, sw_err *err)
{
    const uint8_t *from = x->bytes + t + shift;
    sw_st_stream s = {0};
    uint64_t n_put = 0;
    sw_code rc = sw_st_stream_open(&s, x->w, name_of(t), err);

    for (int64_t at = 0; at < n_all && rc == SW_OK;) {
        int64_t n = 1 + (int64_t)(test_u64(rng) % (uint64_t)(test_u64(rng) % 4 ? 300000 : 2500000));
        void *to = NULL;
        n = sw_min_i64(n, n_all - at);
        if (test_u64(rng) % 3 == 0) {
            rc = sw_st_stream_add(&s, from + at, (size_t)n, err);
        } else if ((rc = sw_st_stream_room(&to, &s, (size_t)n, err)) == SW_OK) {
            memcpy(to, from + at, (size_t)n);
            rc = sw_st_stream_put(&s, (size_t)n, err);
        }
        at += n;
    }
    if (rc == SW_OK && !is_left) rc = sw_st_stream_end(&n_put, &s, err);
    sw_st_stream_close(&s);
    return rc;
}

static void put_one(void *ctx, int64_t begin, int64_t end, int thread)
{
    const writing *x = ctx;
    test_rng rng = {x->seed + (uint64_t)begin};
    sw_err err = {0};
    sw_code rc = SW_OK;

    (void)thread;
    for (int64_t i = begin; i < end && rc == SW_OK; i++) {
        int t = x->order[i];
        if (x->is_restarted && sizes[t] > 2)
            rc = stream_one(x, t, sizes[t] - 1, 5, &rng, true, &err);
        if (rc == SW_OK)
            rc = i % 4 == 3 ? sw_st_writer_put(x->w, name_of(t), x->bytes + t, (size_t)sizes[t],
                                               &err)
                            : stream_one(x, t, sizes[t], 0, &rng, false, &err);
        if (rc == SW_OK) rc = sw_st_writer_catch_up(x->w, &err);
    }
    if (rc != SW_OK) abort(); /* cmocka's way out is not for other threads */
}

static void shuffle(writing *x)
{
    test_rng rng = {x->seed};

    for (int i = 0; i < N_TENSORS; i++) x->order[i] = i;
    for (int i = N_TENSORS - 1; i > 0; i--) {
        int j = (int)(test_u64(&rng) % (uint64_t)(i + 1)), kept = x->order[i];
        x->order[i] = x->order[j];
        x->order[j] = kept;
    }
}

static void check_file(const writing *x, const char *dir, int32_t file, const sw_st *st,
                       bool is_followed)
{
    const char *path = sw_st_file_path(st, file);
    const sw_digest_steps *known;
    char digest[SW_SHA256_HEX_BYTES];
    sw_err err = {0};

    must(sw_sha256_file(digest, path, &err), &err);
    known = sw_st_writer_digest(x->w, path + strlen(dir) + 1);
    if (is_followed) assert_string_equal(known->digest, digest);
    else assert_null(known);
}

static void check(const writing *x, const char *dir, bool is_followed)
{
    sw_st *st = NULL;
    sw_err err = {0};

    must(sw_st_open(&st, dir, &err), &err);
    assert_int_equal(sw_st_count(st), N_TENSORS);
    for (int t = 0; t < N_TENSORS; t++) {
        const sw_st_tensor *found = sw_st_find(st, name_of(t));
        assert_int_equal(found->view.size_bytes, sizes[t]);
        assert_memory_equal(found->view.data, x->bytes + t, (size_t)sizes[t]);
    }
    for (int32_t i = 0; i < sw_st_n_files(st); i++) check_file(x, dir, i, st, is_followed);
    sw_st_close(st);
}

static void write_once(writing *x, uint64_t shard_bytes, int n_threads, bool is_followed)
{
    sw_err err = {0};
    scratch s;

    scratch_open(&s);
    must(sw_st_writer_new(&x->w, s.dir, shard_bytes, &err), &err);
    for (int t = 0; t < N_TENSORS; t++)
        must(sw_st_writer_declare(x->w, name_of(t), SW_DTYPE_U8, 1, &sizes[t], &err), &err);
    if (is_followed) sw_st_writer_follow(x->w);
    must(sw_st_writer_begin(x->w, &err), &err);
    shuffle(x);
    sw_parallel_for(n_threads, N_TENSORS, 1, put_one, x);
    must(sw_st_writer_commit(x->w, &err), &err);
    check(x, s.dir, is_followed);
    sw_st_writer_free(x->w);
    scratch_close(&s);
}

/* --- parts --- */

#define PARTS_MAX 4096

typedef struct part {
    int t;
    uint64_t begin, end;
} part;

typedef struct parting {
    writing x;
    part parts[PARTS_MAX];
    int64_t n;
} parting;

static void cut_all(parting *p)
{
    test_rng rng = {p->x.seed};
    sw_err err = {0};

    for (int t = 0; t < N_TENSORS; t++) {
        part one = {.t = t};
        do {
            one.begin = one.end;
            must(sw_st_stream_cut(&one.end, p->x.w, name_of(t), one.begin,
                                  1 + test_u64(&rng) % 300000, &err), &err);
            assert_true(p->n < PARTS_MAX);
            p->parts[p->n++] = one;
        } while (one.end < (uint64_t)sizes[t]);
    }
    for (int64_t i = p->n - 1; i > 0; i--) {
        const int64_t j = (int64_t)(test_u64(&rng) % (uint64_t)(i + 1));
        const part kept = p->parts[i];
        p->parts[i] = p->parts[j];
        p->parts[j] = kept;
    }
}

static void put_part(void *ctx, int64_t begin, int64_t end, int thread)
{
    const parting *p = ctx;
    sw_err err = {0};
    sw_code rc = SW_OK;

    (void)thread;
    for (int64_t i = begin; i < end && rc == SW_OK; i++) {
        const part *one = &p->parts[i];
        sw_st_stream s = {0};
        uint64_t n_put = 0;
        sw_st_writer_keep_pace(p->x.w, name_of(one->t), one->end);
        rc = sw_st_stream_open_part(&s, p->x.w, name_of(one->t), one->begin, one->end, &err);
        if (rc == SW_OK)
            rc = sw_st_stream_add(&s, p->x.bytes + one->t + one->begin,
                                  (size_t)(one->end - one->begin), &err);
        if (rc == SW_OK) rc = sw_st_stream_end(&n_put, &s, &err);
        if (rc == SW_OK && n_put != one->end - one->begin) abort();
        sw_st_stream_close(&s);
        if (rc == SW_OK) rc = sw_st_writer_catch_up(p->x.w, &err);
    }
    if (rc != SW_OK) { /* in a thread that cmocka does not know */
        print_error("%s\n", err.text);
        abort();
    }
}

static void write_parts(parting *p, uint64_t shard_bytes, int n_threads)
{
    sw_err err = {0};
    scratch s;

    scratch_open(&s);
    must(sw_st_writer_new(&p->x.w, s.dir, shard_bytes, &err), &err);
    for (int t = 0; t < N_TENSORS; t++)
        must(sw_st_writer_declare(p->x.w, name_of(t), SW_DTYPE_U8, 1, &sizes[t], &err), &err);
    sw_st_writer_follow(p->x.w);
    must(sw_st_writer_begin(p->x.w, &err), &err);
    cut_all(p);
    sw_parallel_for(n_threads, p->n, 1, put_part, p);
    must(sw_st_writer_commit(p->x.w, &err), &err);
    check(&p->x, s.dir, true);
    sw_st_writer_free(p->x.w);
    scratch_close(&s);
}

static uint8_t *make_bytes(void)
{
    uint8_t *bytes = NULL;
    test_rng rng = {7};
    sw_err err = {0};

    must(SW_MEM_GET(&bytes, LARGEST + N_TENSORS + 5, "bytes", &err), &err);
    for (int64_t i = 0; i < LARGEST + N_TENSORS + 5; i++) bytes[i] = (uint8_t)test_u64(&rng);
    return bytes;
}

static void test_any_pieces(void **state)
{
    uint8_t *bytes = make_bytes();

    (void)state;
    for (uint64_t seed = 0; seed < 6; seed++) {
        writing x = {.bytes = bytes, .seed = seed};
        write_once(&x, seed % 2 ? 4 << 20 : 0, 1 + (int)(seed % 3), true);
    }
    sw_mem_put(bytes);
}

static void test_parts_in_any_order(void **state)
{
    uint8_t *bytes = make_bytes();

    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++) {
        parting p = {.x = {.bytes = bytes, .seed = seed}};
        write_parts(&p, seed % 2 ? 4 << 20 : 0, 1 + (int)seed);
    }
    sw_mem_put(bytes);
}

static void test_nobody_follows(void **state)
{
    uint8_t *bytes = make_bytes();
    writing x = {.bytes = bytes, .seed = 3};

    (void)state;
    write_once(&x, 0, 2, false);
    sw_mem_put(bytes);
}

/* What was digested of a tensor that then comes anew does not count. */
static void test_put_anew(void **state)
{
    uint8_t *bytes = make_bytes();

    (void)state;
    for (uint64_t seed = 0; seed < 3; seed++) {
        writing x = {.bytes = bytes, .seed = seed, .is_restarted = true};
        write_once(&x, 4 << 20, 1 + (int)seed, true);
    }
    sw_mem_put(bytes);
}

#define REFUSED(call, text_part)                                 \
    do {                                                         \
        sw_err e = {0};                                          \
        (void)e;                                                 \
        assert_int_equal((call), SW_E_BUG);                      \
        assert_non_null(strstr(e.text, (text_part)));            \
    } while (0)

static void test_misuse(void **state)
{
    const int64_t shape[] = {100000};
    sw_st_stream stream = {0}, other = {0};
    sw_st_writer *w = NULL;
    uint64_t n_bytes = 77;
    void *room = NULL;
    sw_err err = {0};
    scratch s;

    (void)state;
    scratch_open(&s);
    must(sw_st_writer_new(&w, s.dir, 0, &err), &err);
    must(sw_st_writer_declare(w, "x", SW_DTYPE_U8, 1, shape, &err), &err);
    REFUSED(sw_st_stream_open(&stream, w, "x", &e), "not yet begun");
    must(sw_st_writer_begin(w, &err), &err);
    REFUSED(sw_st_stream_open(&stream, w, "y", &e), "\"y\" is not declared");
    must(sw_st_stream_open(&stream, w, "x", &err), &err);
    REFUSED(sw_st_stream_room(&room, &stream, 100001, &e), "more than declared");
    must(sw_st_stream_room(&room, &stream, 99999, &err), &err);
    memset(room, 1, 99999);
    must(sw_st_stream_put(&stream, 99999, &err), &err);
    REFUSED(sw_st_stream_room(&room, &stream, 2, &e), "more than declared");
    REFUSED(sw_st_stream_end(&n_bytes, &stream, &e), "99999 bytes put, 100000 declared");
    assert_int_equal(n_bytes, 77);
    must(sw_st_stream_add(&stream, "z", 1, &err), &err);
    must(sw_st_stream_end(&n_bytes, &stream, &err), &err);
    assert_int_equal(n_bytes, 100000);
    REFUSED(sw_st_stream_open(&other, w, "x", &e), "put twice");
    sw_st_stream_close(&stream);
    sw_st_stream_close(&other);
    sw_st_writer_free(w); /* not committed */
    assert_int_equal(scratch_count(&s, NULL), 0);
    scratch_close(&s);
}

/* A tensor is not there until its last part is, and what shares a page with others is no part. */
static void test_misuse_of_parts(void **state)
{
    const int64_t shape[] = {100000};
    sw_st_stream stream = {0};
    sw_st_writer *w = NULL;
    uint64_t cut = 0, n_bytes = 0, end = 0;
    sw_err err = {0};
    scratch s;

    (void)state;
    scratch_open(&s);
    must(sw_st_writer_new(&w, s.dir, 0, &err), &err);
    must(sw_st_writer_declare(w, "x", SW_DTYPE_U8, 1, shape, &err), &err);
    must(sw_st_writer_begin(w, &err), &err);
    assert_int_equal(sw_st_writer_bytes(w, "x"), 100000);
    assert_int_equal(sw_st_writer_bytes(w, "y"), 0);
    must(sw_st_stream_cut(&cut, w, "x", 0, 50000, &err), &err);
    assert_in_range(cut, 50000, 50000 + 4095);
    must(sw_st_stream_cut(&end, w, "x", cut, 70000, &err), &err);
    assert_int_equal(end, 100000);
    REFUSED(sw_st_stream_cut(&end, w, "x", 100001, 1, &e), "no byte 100001");
    REFUSED(sw_st_stream_cut(&end, w, "y", 0, 1, &e), "\"y\"");
    REFUSED(sw_st_stream_open_part(&stream, w, "x", cut + 1, 100000, &e), "no part");
    REFUSED(sw_st_stream_open_part(&stream, w, "x", 0, cut - 1, &e), "no part");
    REFUSED(sw_st_stream_open_part(&stream, w, "x", cut, 100001, &e), "no part");
    must(sw_st_stream_open_part(&stream, w, "x", cut, 100000, &err), &err);
    for (uint64_t i = cut; i < 100000; i++) must(sw_st_stream_add(&stream, "z", 1, &err), &err);
    REFUSED(sw_st_stream_add(&stream, "z", 1, &e), "more than declared");
    must(sw_st_stream_end(&n_bytes, &stream, &err), &err);
    assert_int_equal(n_bytes, 100000 - cut);
    sw_st_stream_close(&stream);
    REFUSED(sw_st_writer_commit(w, &e), "never written");
    sw_st_writer_free(w);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_pieces), cmocka_unit_test(test_nobody_follows),
        cmocka_unit_test(test_put_anew),   cmocka_unit_test(test_misuse),
        cmocka_unit_test(test_parts_in_any_order), cmocka_unit_test(test_misuse_of_parts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
