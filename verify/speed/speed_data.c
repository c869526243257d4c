/* speed_data.c - see speed_data.h. */
#include "verify/speed/speed_data.h"

#include <string.h>

#include "formats/base/size.h"

#define NONE SW_ACT_NONE, 0, 0, 0
#define TOKEN(num) SW_ACT_TOKEN, SW_NUM_##num, 0, SW_DTYPE_F32
#define GROUP(num, n, dtype) SW_ACT_GROUP, SW_NUM_##num, n, SW_DTYPE_##dtype

const sw_speed_store sw_speed_stores[] = {
    {"f32", SW_DTYPE_F32, -1, 0, 0, false, NONE},
    {"bf16", SW_DTYPE_BF16, -1, 0, 0, false, NONE},
    {"w4a16", 0, SW_NUM_INT4, SW_DTYPE_F16, -1, false, NONE},
    {"w8a16", 0, SW_NUM_INT8, SW_DTYPE_F16, -1, false, NONE},
    {"w3a16", 0, SW_NUM_INT3, SW_DTYPE_F16, -1, false, NONE},
    {"w2a16", 0, SW_NUM_INT2, SW_DTYPE_F16, -1, false, NONE},
    {"w4a8", 0, SW_NUM_INT4, SW_DTYPE_F16, -1, false, TOKEN(INT8)},
    {"w8a8", 0, SW_NUM_INT8, SW_DTYPE_F32, 0, false, TOKEN(INT8)},
    {"fp8a16", 0, SW_NUM_E4M3, SW_DTYPE_F32, 0, false, NONE},
    {"fp8", 0, SW_NUM_E4M3, SW_DTYPE_F32, 0, false, TOKEN(E4M3)},
    {"fp8_block", 0, SW_NUM_E4M3, SW_DTYPE_F32, 128, false, GROUP(E4M3, 128, F32)},
    {"mxfp8", 0, SW_NUM_E4M3, SW_DTYPE_F8_E8M0, 32, false, GROUP(E4M3, 32, F8_E8M0)},
    {"mxfp4a16", 0, SW_NUM_E2M1, SW_DTYPE_F8_E8M0, 32, false, NONE},
    {"mxfp4", 0, SW_NUM_E2M1, SW_DTYPE_F8_E8M0, 32, false, GROUP(E2M1, 32, F8_E8M0)},
    {"nvfp4a16", 0, SW_NUM_E2M1, SW_DTYPE_F8_E4M3, 16, true, NONE},
    {"nvfp4", 0, SW_NUM_E2M1, SW_DTYPE_F8_E4M3, 16, true, GROUP(E2M1, 16, F8_E4M3)},
};
const int sw_n_speed_stores = (int)(sizeof sw_speed_stores / sizeof *sw_speed_stores);

static uint64_t next_random(uint64_t *state) /* SplitMix64 (Steele, Lea, Flood 2014) */
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void random_bytes(void *dst, size_t n_bytes, uint64_t seed)
{
    uint8_t *to = (uint8_t *)dst;

    for (size_t i = 0; i < n_bytes; i += 8) {
        uint64_t v = next_random(&seed);
        memcpy(to + i, &v, n_bytes - i < 8 ? n_bytes - i : 8);
    }
}

void sw_speed_random_floats(float *dst, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = (float)(int32_t)(next_random(&seed) >> 32) * 0x1p-31f;
}

static int copies_for(size_t copy_bytes, int64_t cache_bytes)
{
    int64_t n = sw_ceil_div(2 * cache_bytes, (int64_t)copy_bytes) + 1;

    return (int)sw_min_i64(n, SW_SPEED_COPIES_MAX);
}

static sw_code fill_dense(sw_speed_weights *out, const sw_speed_options *o, bool is_bf16,
                          int64_t cache_bytes, sw_err *err)
{
    int64_t n_elems = o->n_out * o->k_in, elem_bytes = is_bf16 ? 2 : 4;
    sw_code rc;

    out->copy_bytes = (size_t)(n_elems * elem_bytes);
    out->n_copies = copies_for(out->copy_bytes, cache_bytes);
    rc = SW_MEM_GET(&out->codes, (int64_t)out->copy_bytes * out->n_copies, "bench weights", err);
    if (rc != SW_OK) return rc;
    for (int64_t i = 0; i < n_elems * out->n_copies; i++) {
        float v;

        if (!is_bf16) {
            sw_speed_random_floats((float *)(void *)out->codes + i, 1, (uint64_t)i);
            continue;
        }
        sw_speed_random_floats(&v, 1, (uint64_t)i);
        memcpy(out->codes + 2 * i, (const uint8_t *)&v + 2, 2); /* cut to bf16: random anyway */
    }
    for (int c = 0; c < out->n_copies; c++)
        out->weights[c] = (sw_weight){
            .n_out = o->n_out, .k_in = o->k_in, .dense = out->codes + (size_t)c * out->copy_bytes,
            .dense_dtype = is_bf16 ? SW_DTYPE_BF16 : SW_DTYPE_F32};
    return SW_OK;
}

/* What a weight of this store and these options is. */
static sw_qspec spec_of(const sw_speed_store *store, const sw_speed_options *o)
{
    sw_qspec spec = {.num = &sw_nums[store->num], .is_symmetric = true,
                     .group_elems = store->group_elems, .scale_dtype = store->scale_dtype,
                     .has_global = store->has_global};

    if (store->group_elems < 0) spec.group_elems = o->group_elems;
    if (o->has_bf16_scales && spec.scale_dtype == SW_DTYPE_F16)
        spec.scale_dtype = SW_DTYPE_BF16;
    if (spec.num->kind == SW_NUM_INT) spec.is_symmetric = !o->is_asymmetric;
    if (store->act_scope != SW_ACT_NONE)
        spec.act = (sw_act){.num = &sw_nums[store->act_num], .scope = store->act_scope,
                            .group_elems = store->act_group_elems,
                            .scale_dtype = store->act_scale_dtype};
    return spec;
}

/* Codes without a NaN, scales between 1/16 and 1 out of random bits. */
static void tame(sw_speed_weights *out, const sw_qspec *spec, int64_t n_codes, int64_t n_params)
{
    for (int64_t i = 0; spec->num->kind == SW_NUM_FLOAT && i < n_codes; i++)
        if (spec->num->bits == 8 && (out->codes[i] & 0x7f) == 0x7f) out->codes[i] ^= 1;
    for (int64_t i = 0; i < n_params; i++) {
        uint8_t *byte = out->scales + i;

        if (spec->scale_dtype == SW_DTYPE_F16) {
            byte += i;
            byte[1] = (uint8_t)(0x2c | (byte[1] & 3));
        } else if (spec->scale_dtype == SW_DTYPE_BF16) {
            byte += i;
            byte[1] = 0x3d;
        } else if (spec->scale_dtype == SW_DTYPE_F32) {
            byte += 3 * i;
            byte[2] = (uint8_t)(0x80 | byte[2]);
            byte[3] = 0x3d;
        } else {
            *byte = (uint8_t)(spec->scale_dtype == SW_DTYPE_F8_E8M0 ? 123 + (*byte & 3)
                                                                    : 0x20 | (*byte & 7));
        }
        out->zeros[i] = (uint8_t)(out->zeros[i] & spec->num->code_max);
    }
}

static sw_code fill_tiles(sw_speed_weights *out, const sw_speed_options *o,
                          const sw_speed_store *store, int64_t cache_bytes, sw_err *err)
{
    sw_qspec spec = spec_of(store, o);
    int64_t n_groups = sw_qspec_groups(&spec, o->k_in);
    int64_t n_codes = sw_tiles_stored_bytes(spec.num, o->n_out, o->k_in), n_copies;
    int64_t n_scales = sw_tiles_scales_bytes(spec.scale_dtype, o->n_out, n_groups);
    int64_t n_params = sw_tiles_zeros_bytes(o->n_out, n_groups);
    sw_code rc;

    out->copy_bytes = (size_t)(n_codes + n_scales + (spec.is_symmetric ? 0 : n_params));
    out->n_copies = copies_for(out->copy_bytes, cache_bytes);
    n_copies = out->n_copies;
    if ((rc = SW_MEM_GET(&out->codes, n_codes * n_copies, "bench codes", err)) != SW_OK ||
        (rc = SW_MEM_GET(&out->scales, n_scales * n_copies, "bench scales", err)) != SW_OK ||
        (rc = SW_MEM_GET(&out->zeros, n_params * n_copies, "bench zeros", err)) != SW_OK)
        return rc;
    random_bytes(out->codes, (size_t)(n_codes * n_copies), 1);
    random_bytes(out->scales, (size_t)(n_scales * n_copies), 2);
    random_bytes(out->zeros, (size_t)(n_params * n_copies), 3);
    tame(out, &spec, n_codes * n_copies, n_params * n_copies);
    for (int64_t c = 0; c < n_copies; c++) {
        out->tiles[c] = (sw_tiles){
            .spec = spec, .n_out = o->n_out, .k_in = o->k_in, .n_groups = n_groups,
            .container_bits = sw_tiles_stored_bits(spec.num), .codes = out->codes + c * n_codes,
            .scales = out->scales + c * n_scales, .global_scale = 0.75f,
            .zeros = spec.is_symmetric ? NULL : out->zeros + c * n_params};
        out->weights[c] = (sw_weight){
            .n_out = o->n_out, .k_in = o->k_in, .tiles = &out->tiles[c], .act = spec.act,
            .input_scale = 0.01f};
    }
    return SW_OK;
}

sw_code sw_speed_weights_new(sw_speed_weights *out, const sw_speed_options *options, int store,
                             int64_t cache_bytes, sw_err *err)
{
    const sw_speed_store *row = &sw_speed_stores[store];
    sw_code rc;

    out->name = row->name;
    if (row->num < 0)
        rc = fill_dense(out, options, row->dense_dtype == SW_DTYPE_BF16, cache_bytes, err);
    else
        rc = fill_tiles(out, options, row, cache_bytes, err);
    if (rc != SW_OK) sw_speed_weights_free(out);
    return rc;
}

void sw_speed_weights_free(sw_speed_weights *w)
{
    sw_mem_put(w->codes);
    sw_mem_put(w->scales);
    sw_mem_put(w->zeros);
    w->codes = w->zeros = NULL;
    w->scales = NULL;
    w->n_copies = 0;
}

sw_weight sw_speed_slice(const sw_weight *w, int64_t n_tile, sw_tiles *tiles)
{
    int64_t n0 = n_tile * SW_TILE_N;
    sw_weight out = *w;

    out.n_out = sw_min_i64(SW_TILE_N, w->n_out - n0);
    if (!w->tiles) {
        size_t elem_bytes = w->dense_dtype == SW_DTYPE_F32 ? 4 : 2;
        out.dense = (const uint8_t *)w->dense + (size_t)(n0 * w->k_in) * elem_bytes;
        return out;
    }
    *tiles = *w->tiles;
    tiles->n_out = out.n_out;
    tiles->codes += n_tile * sw_tiles_k(w->k_in) * sw_tile_bytes(tiles->container_bits);
    tiles->scales = (const uint8_t *)tiles->scales + sw_tiles_scales_bytes(
        tiles->spec.scale_dtype, n_tile * SW_TILE_N, tiles->n_groups);
    if (tiles->zeros) tiles->zeros += n_tile * tiles->n_groups * SW_TILE_N;
    out.tiles = tiles;
    return out;
}
