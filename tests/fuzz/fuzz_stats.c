/* fuzz_stats.c - any bytes as a statistics file: refused with a message, or every number is sound.
 *
 * Hashes would stop nearly every input at the door. So when the first byte is odd the rest is not
 * a file but what one is made of, and the file is built around it, with true hashes:
 *   u8 1, u16 n, n bytes of directory (raw), the frames.
 * An even first byte is followed by a whole file.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "formats/base/size.h"
#include "quant/run/pipeline.h"
#include "quant/stats/stats.h"

#define RAW_BYTES_MAX ((uint64_t)1 << 20)

#define MUST(condition)            \
    do {                           \
        if (!(condition)) abort(); \
    } while (0)

/* The file around a directory and frames; its size in *n. */
static uint8_t *build(const uint8_t *data, size_t size, size_t *n)
{
    size_t n_directory = size < 2 ? 0 : sw_load_le16(data), room, frame;
    const uint8_t *frames;
    char digest[SW_SHA256_HEX_BYTES];
    uint8_t *out;

    if (size < 2) return NULL;
    data += 2;
    size -= 2;
    if (n_directory > size) n_directory = size;
    frames = data + n_directory;
    size -= n_directory;
    room = SW_ZPACK_MAGIC_BYTES + size + ZSTD_compressBound(n_directory) + SW_ZPACK_TRAILER_BYTES;
    if (!(out = malloc(room))) return NULL;
    memcpy(out, SW_ZPACK_MAGIC, SW_ZPACK_MAGIC_BYTES);
    memcpy(out + SW_ZPACK_MAGIC_BYTES, frames, size);
    *n = SW_ZPACK_MAGIC_BYTES + size;
    frame = ZSTD_compress(out + *n, room - *n, data, n_directory, 1);
    MUST(!ZSTD_isError(frame) && sw_sha256_hex(digest, data, n_directory, NULL) == SW_OK);
    sw_store_le64(out + *n + frame, *n);
    sw_store_le64(out + *n + frame + 8, frame);
    sw_store_le64(out + *n + frame + 16, n_directory);
    memcpy(out + *n + frame + 24, digest, SW_SHA256_HEX_BYTES - 1);
    *n += frame + SW_ZPACK_TRAILER_BYTES;
    return out;
}

static void check_tensors(const sw_zpack *z, size_t size)
{
    for (int64_t i = 0; i < sw_zpack_count(z); i++) {
        const sw_zpack_tensor *t = sw_zpack_at(z, i);
        uint64_t want = 0;
        sw_err err = {0};
        uint8_t *raw;
        sw_code rc;
        MUST(i == 0 || strcmp(sw_zpack_at(z, i - 1)->name, t->name) < 0);
        MUST(sw_zpack_find(z, t->name) == t);
        MUST(t->frame_offset >= SW_ZPACK_MAGIC_BYTES && t->frame_offset <= size);
        MUST(t->frame_bytes <= size - t->frame_offset);
        MUST(sw_shape_bytes(&want, t->dtype, t->n_dims, t->shape, NULL) == SW_OK);
        MUST(want == t->raw_bytes);
        if (t->raw_bytes > RAW_BYTES_MAX) continue;
        MUST((raw = malloc((size_t)t->raw_bytes + 1)) != NULL);
        rc = sw_zpack_load(raw, z, t, &err);
        MUST(rc == SW_OK || (rc == SW_E_FORMAT && !strncmp(err.text, "fuzz: ", 6)));
        free(raw);
    }
}

/* How large the inputs of such a model get, and the windows of its text. */
static void check_ranges(const sw_zpack *z, const sw_model *model)
{
    static sw_range range;
    const sw_site_scales none = {.scale = {NULL}};
    sw_stats_windows windows = {.ids = NULL};
    sw_kv_range kv;
    sw_err err = {0};
    sw_code rc = sw_stats_read_range(&range, z, model, 0, SW_SITE_ATTN_IN, &none, &err);

    MUST(rc == SW_OK ? range.amax >= 0 && isfinite(range.amax) && range.counts[7] >= 0
                     : rc == SW_E_FORMAT && err.text[0]);
    err = (sw_err){0};
    rc = sw_stats_read_kv(&kv, z, 0, &err);
    MUST(rc == SW_OK ? kv.k_amax >= 0 && kv.v_amax >= 0 : rc == SW_E_FORMAT && err.text[0]);
    err = (sw_err){0};
    rc = sw_stats_windows_read(&windows, z, model, SW_STATS_PROBES, "fuzz", &err);
    MUST(rc == SW_OK || ((rc == SW_E_FORMAT || rc == SW_E_USAGE || rc == SW_E_NOMEM) &&
                         err.text[0] && !windows.ids));
    for (int64_t i = 0; i < windows.calib.n_seqs * windows.calib.seq_len; i++)
        MUST(windows.calib.ids[i] < model->vocab);
    for (int64_t i = 0; i < windows.calib.n_seqs; i++) MUST(windows.parts[i] & SW_STATS_PROBES);
    sw_stats_windows_free(&windows);
}

/* What a model of two channels would be solved from. */
static void check_stats(const sw_zpack *z)
{
    static sw_model model;
    sw_quant_options o = sw_quant_defaults();

    model.arch = sw_arch_find("qwen3_moe");
    model.hidden = model.intermediate = model.moe_intermediate = model.head_dim = 2;
    model.n_heads = model.n_kv_heads = model.n_layers = model.sparse_step = 1;
    model.n_experts = model.n_experts_used = 2;
    model.vocab = 100;
    check_ranges(z, &model);
    (void)!sw_stats_check(z, "model", &model, SW_EXPERTS_SHRINK, NULL);
    for (int site = 0; site < SW_SITE_COUNT; site++) {
        sw_site_stats stats;
        sw_err err = {0};
        if (site != SW_SITE_ATTN_IN && site != SW_SITE_O_IN && site != SW_SITE_MLP_IN &&
            site != SW_SITE_DOWN_IN)
            continue;
        if (sw_stats_read(&stats, z, &model, 0, (sw_site)site, &o, &err) != SW_OK) {
            MUST(err.code == SW_E_FORMAT && err.text[0]);
            continue;
        }
        for (int i = 0; stats.site[site].h && i < 4; i++)
            MUST(isfinite(stats.site[site].h[i]));
        MUST(!stats.site[site].h || stats.site[site].h[0] >= 0);
        sw_site_stats_free(&stats);
        if (site != SW_SITE_MLP_IN && site != SW_SITE_DOWN_IN) continue;
        if (sw_stats_read_experts(&stats, z, &model, 0, (sw_site)site, &o, 0, 2, &err) != SW_OK) {
            MUST(err.code == SW_E_FORMAT && err.text[0]);
            continue;
        }
        for (int64_t e = 0; e < 2; e++)
            MUST(stats.experts[e].n_tokens >= 0 && stats.experts[e].in.weight <= 1);
        sw_site_stats_free(&stats);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *built = NULL;
    const uint8_t *file;
    sw_zpack *z = NULL;
    sw_err err = {0};
    size_t n;
    sw_code rc;

    if (size < 1) return 0;
    file = data + 1;
    n = size - 1;
    if (data[0] % 2) {
        if (!(built = build(file, n, &n))) return 0;
        file = built;
    }
    if ((rc = sw_zpack_open_bytes(&z, file, n, "fuzz", &err)) == SW_OK) {
        check_tensors(z, n);
        (void)sw_zpack_meta(z, "kind");
        check_stats(z);
        sw_zpack_close(z);
    } else {
        MUST(rc == SW_E_FORMAT && err.code == rc && !strncmp(err.text, "fuzz: ", 6) && !z);
    }
    free(built);
    return 0;
}
