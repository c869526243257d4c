/* spec_agree.c - see spec_agree.h. */
#include "tests/support/cases/spec_agree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "formats/num/half.h"
#include "tests/support/toys/qtensor_gen.h"
#include "tests/support/toys/st_build.h"
#include "verify/decoders/decode_spec.h"

void spec_tame(sw_qtensor *q)
{
    for (int64_t i = 0; i < q->n_out * q->n_groups; i++)
        if (q->scales[i] > 128) q->scales[i] = 128;
}

static void first(const sw_dialect *dialect, const sw_qtensor *q, st_build *b)
{
    const void *parts[SW_DIALECT_TENSORS_MAX] = {NULL};
    sw_qtensor back;
    sw_err err = {0};

    for (int i = 0; i < b->n; i++) parts[i] = b->tensors[i].data;
    assert_int_equal(sw_qtensor_alloc(&back, &q->spec, q->n_out, q->k_in, &err), SW_OK);
    if (dialect->decode(&back, parts, &err) != SW_OK) fail_msg("%s: %s", dialect->name, err.text);
    sw_gen_assert_same(&back, q);
    sw_qtensor_free(&back);
}

static void second(const sw_dialect *dialect, const sw_qtensor *q, st_build *b)
{
    sw_qconfig config = {.spec = q->spec};
    sw_spec_scheme scheme;
    sw_spec_weight w = {0};
    cJSON *object = NULL;
    sw_err err = {0};

    assert_int_equal(dialect->write_config(&object, &config, &err), SW_OK);
    if (sw_spec_scheme_read(&scheme, object, &err) != SW_OK) fail_msg("%s", err.text);
    assert_string_equal(scheme.reader->name, dialect->name);
    (void)st_build_open(b);
    assert_true(sw_spec_is_quantized(&scheme, b->st, "p"));
    for (int i = 0; i < b->n; i++)
        assert_true(sw_spec_is_part(&scheme, strrchr(b->tensors[i].name, '.') + 1));
    if (sw_spec_decode(&w, &scheme, b->st, "p", q->n_out, q->k_in, &err) != SW_OK)
        fail_msg("%s: %s", dialect->name, err.text);
    assert_memory_equal(w.codes, q->codes, (size_t)(q->n_out * q->k_in));
    for (int64_t i = 0; i < q->n_out * q->n_groups; i++) {
        assert_int_equal(sw_f32_bits(w.scales[i]), sw_f32_bits(q->scales[i]));
        assert_int_equal(w.zeros[i], q->zeros ? q->zeros[i] : q->spec.num->sym_zero);
    }
    sw_spec_weight_free(&w);
    cJSON_Delete(object);
}

void spec_agree(const sw_dialect *dialect, const sw_qtensor *q)
{
    st_build b = {.n = 0};

    st_build_encode(&b, dialect, "p", q);
    first(dialect, q, &b);
    second(dialect, q, &b);
    st_build_free(&b);
}
