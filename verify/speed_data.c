/* speed_data.c - see speed_data.h. */
#include "verify/speed_data.h"

#include <string.h>

#include "formats/base/size.h"

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

static sw_code fill_tiles(sw_speed_weights *out, const sw_speed_options *o, int bits,
                          int64_t cache_bytes, sw_err *err)
{
    sw_qspec spec = {.num = sw_num_by_bits(bits), .is_symmetric = !o->is_asymmetric,
                     .group_elems = o->group_elems, .scale_dtype = SW_DTYPE_F16};
    int64_t n_groups = sw_qspec_groups(&spec, o->k_in);
    int64_t n_codes = sw_tiles_codes_bytes(spec.num, o->n_out, o->k_in);
    int64_t n_params = sw_tiles_n(o->n_out) * n_groups * SW_TILE_N;
    int64_t n_copies;
    sw_code rc;

    out->copy_bytes = (size_t)(n_codes + n_params * (o->is_asymmetric ? 3 : 2));
    out->n_copies = copies_for(out->copy_bytes, cache_bytes);
    n_copies = out->n_copies;
    if ((rc = SW_MEM_GET(&out->codes, n_codes * n_copies, "bench codes", err)) != SW_OK ||
        (rc = SW_MEM_GET(&out->scales, n_params * n_copies, "bench scales", err)) != SW_OK ||
        (rc = SW_MEM_GET(&out->zeros, n_params * n_copies, "bench zeros", err)) != SW_OK)
        return rc;
    random_bytes(out->codes, (size_t)(n_codes * n_copies), 1);
    random_bytes(out->scales, (size_t)(n_params * n_copies) * sizeof *out->scales, 2);
    random_bytes(out->zeros, (size_t)(n_params * n_copies), 3);
    for (int64_t i = 0; i < n_params * n_copies; i++) {
        out->scales[i] = (uint16_t)(0x2c00u + (out->scales[i] & 0x3ffu)); /* f16 in [1/16, 1/8) */
        out->zeros[i] = (uint8_t)(out->zeros[i] & spec.num->code_max);
    }
    for (int64_t c = 0; c < n_copies; c++) {
        out->tiles[c] = (sw_tiles){
            .spec = spec, .n_out = o->n_out, .k_in = o->k_in, .n_groups = n_groups,
            .container_bits = sw_tiles_container_bits(spec.num), .codes = out->codes + c * n_codes,
            .scales = out->scales + c * n_params,
            .zeros = o->is_asymmetric ? out->zeros + c * n_params : NULL};
        out->weights[c] =
            (sw_weight){.n_out = o->n_out, .k_in = o->k_in, .tiles = &out->tiles[c]};
    }
    return SW_OK;
}

sw_code sw_speed_weights_new(sw_speed_weights *out, const sw_speed_options *options,
                             sw_speed_store store, int64_t cache_bytes, sw_err *err)
{
    static const char *const names[SW_STORE_COUNT] = {"f32", "bf16", "w4a16", "w8a16"};
    sw_code rc;

    out->name = names[store];
    if (store == SW_STORE_F32 || store == SW_STORE_BF16)
        rc = fill_dense(out, options, store == SW_STORE_BF16, cache_bytes, err);
    else
        rc = fill_tiles(out, options, store == SW_STORE_W4 ? 4 : 8, cache_bytes, err);
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
    tiles->scales += n_tile * tiles->n_groups * SW_TILE_N;
    if (tiles->zeros) tiles->zeros += n_tile * tiles->n_groups * SW_TILE_N;
    out.tiles = tiles;
    return out;
}
