/* fused_case.c - see fused_case.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "tests/gpu/support/fused_case.h"
#include "tests/support/toys/qtensor_gen.h"
#include "tests/support/toys/random.h"

void fused_weight(sw_qtensor *q, const fused_case *c, uint64_t seed)
{
    const sw_qspec spec = {.num = &sw_nums[SW_NUM_E4M3], .is_symmetric = true,
                           .group_elems = c->group, .scale_dtype = c->scale_dtype};
    test_rng rng = {seed};

    if (c->num == SW_NUM_E4M3) {
        MUST(sw_qtensor_alloc(q, &spec, c->n_out, c->k_in, err));
        for (int64_t i = 0; i < c->n_out * c->k_in; i++)
            q->codes[i] = (uint8_t)(test_u64(&rng) & 0xbf); /* below 2 */
    } else {
        sw_gen_qtensor(q, c->num ? 8 : 4, !c->is_asymmetric, c->group, c->scale_dtype, c->n_out,
                       c->k_in, SW_GEN_RANDOM, 0, 8 + seed);
    }
    for (int64_t i = 0; i < q->n_out * q->n_groups; i++)
        q->scales[i] = sw_num_round_to((float)((c->num == SW_NUM_INT8 ? 0.1 : 1.0) *
                                               (0.002 + 0.01 * test_uniform(&rng))),
                                       c->scale_dtype);
}

void fused_act(sw_fused_args *a, const fused_case *c)
{
    if (c->scope != SW_ACT_NONE)
        a->act_of_x = (sw_act){&sw_nums[c->num], c->scope, c->scope == SW_ACT_GROUP ? 128 : 0,
                               SW_DTYPE_F32};
}

sw_tiles fused_tiles(sw_device *gpu, const sw_qtensor *q)
{
    const int64_t codes_bytes = sw_tiles_codes_bytes(q->spec.num, q->n_out, q->k_in);
    const int64_t scales_bytes = sw_tiles_scales_bytes(q->spec.scale_dtype, q->n_out, q->n_groups);
    const int64_t zeros_bytes = sw_tiles_zeros_bytes(q->n_out, q->n_groups);
    uint8_t *codes = malloc((size_t)codes_bytes), *scales = malloc((size_t)scales_bytes);
    uint8_t *zeros = malloc((size_t)zeros_bytes);
    sw_tiles t = {.spec = q->spec, .n_out = q->n_out, .k_in = q->k_in, .n_groups = q->n_groups,
                  .container_bits = sw_tiles_container_bits(q->spec.num)};

    MUST(sw_tiles_pack(codes, scales, q->zeros ? zeros : NULL, q, err));
    t.codes = device_copy(gpu, codes, codes_bytes);
    t.scales = device_copy(gpu, scales, scales_bytes);
    if (q->zeros) t.zeros = device_copy(gpu, zeros, zeros_bytes);
    free(codes), free(scales), free(zeros);
    return t;
}
