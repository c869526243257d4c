/* stats_case.c - see stats_case.h. */
#include "tests/support/cases/stats_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/checkpoint/manifest.h"
#include "kernels/blas.h"
#include "tests/support/toys/random.h"

void stats_case_open(stats_case *t, const char *arch)
{
    char path[256];

    (void)snprintf(path, sizeof path, "tests/golden/arch/%s", arch);
    stats_case_open_dir(t, path);
}

void stats_case_open_dir(stats_case *t, const char *dir)
{
    test_rng rng = {23};
    sw_err err = {0};

    memset(t, 0, sizeof *t);
    sw_blas_single_thread();
    assert_int_equal(sw_checkpoint_open(&t->ckpt, dir, &err), SW_OK);
    assert_int_equal(sw_checkpoint_identity(t->identity, &t->ckpt, &err), SW_OK);
    for (int i = 0; i < STATS_SEQS * STATS_LEN; i++)
        t->ids[i] = (uint32_t)(test_uniform(&rng) * test_uniform(&rng) *
                               (double)t->ckpt.model.vocab);
    t->calib = (sw_calib){t->ids, STATS_SEQS, STATS_LEN};
    scratch_open(&t->s);
}

void stats_case_close(stats_case *t)
{
    sw_checkpoint_close(&t->ckpt);
    scratch_close(&t->s);
}

sw_quant_options stats_case_options(sw_experts policy, int n_threads)
{
    sw_quant_options o = sw_quant_defaults();

    o.spec.group_elems = 32;
    o.experts = policy;
    o.n_threads = n_threads;
    return o;
}

sw_zpack *stats_case_collect(stats_case *t, const char *name, const sw_quant_options *o,
                             bool with_text)
{
    static const char *const policies[] = {"shrink", "routed", "all"};
    sw_zpack_writer *w = NULL;
    sw_zpack *z = NULL;
    sw_err err = {0};

    assert_int_equal(sw_zpack_writer_new(&w, scratch_path(&t->s, name), true, &err), SW_OK);
    assert_int_equal(sw_zpack_writer_meta(w, "kind", SW_STATS_KIND, &err), SW_OK);
    assert_int_equal(sw_zpack_writer_meta(w, "model_sha256", t->identity, &err), SW_OK);
    assert_int_equal(sw_zpack_writer_meta(w, "experts", policies[o->experts], &err), SW_OK);
    if (with_text) assert_int_equal(sw_stats_put_windows(w, &t->calib, &err), SW_OK);
    assert_int_equal(sw_stats_collect(w, &t->ckpt.model, t->ckpt.st, &t->calib, o, NULL, &err),
                     SW_OK);
    assert_int_equal(sw_zpack_writer_commit(w, &err), SW_OK);
    sw_zpack_writer_free(w);
    assert_int_equal(sw_zpack_open(&z, scratch_path(&t->s, name), &err), SW_OK);
    assert_int_equal(sw_stats_check(z, t->identity, &t->ckpt.model, o->experts, &err), SW_OK);
    return z;
}
