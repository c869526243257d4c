/* writer_kv.c - scales of a cache of codes, written beside the linears: "<attention>.k_scale" and
 * "<attention>.v_scale", F32 [1] each, for every layer that has attention. */
#include <string.h>

#include "formats/base/size.h"
#include "formats/checkpoint/kv_stored.h"
#include "formats/checkpoint/writer/writer_internal.h"
#include "formats/num/half.h"

static const char *const suffixes[2] = {"k_scale", "v_scale"};

static sw_code kv_name(char name[SW_PART_NAME_BYTES], const sw_ckpt_writer *w, int64_t layer,
                       int which, sw_err *err)
{
    char path[256];

    if (!sw_model_attention_path(path, &w->source->model, layer))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: keys and values are cached in a common form, "
                       "which has no scales of each", w->source->model.arch->name);
    return sw_part_name(name, path, suffixes[which], err);
}

void sw_writer_drop_kv(sw_ckpt_writer *w)
{
    const sw_checkpoint *source = w->source;

    if (!w->qconfig.has_new_kv && sw_kv_may_copy(source, w->dialect, w->qconfig.kv_num)) return;
    for (int64_t i = 0; i < 2 * source->model.n_layers; i++) {
        const sw_st_tensor *t = sw_kv_stored_scale(source, i / 2, (int)(i % 2));

        if (!t) continue;
        w->claim_of[t - sw_st_at(source->st, 0)] = SW_DROPPED;
        w->claimed_bytes += t->view.size_bytes;
        w->n_dropped_kv++;
    }
}

void sw_ckpt_writer_say_kv(const sw_ckpt_writer *w, const sw_progress *progress)
{
    if (!w->n_dropped_kv || w->qconfig.has_new_kv) return;
    sw_progress_note(progress, "%lld scales of a KV cache in %s stay behind: %s has no place that "
                     "says what they are for, of every layer", (long long)w->n_dropped_kv,
                     sw_kv_stored_num(w->source)->name, w->dialect->name);
}

sw_code sw_writer_declare_kv(sw_ckpt_writer *w, sw_err *err)
{
    static const int64_t one = 1;
    char name[SW_PART_NAME_BYTES];
    sw_code rc = SW_OK;

    if (!w->qconfig.kv_num || !w->qconfig.has_new_kv) return SW_OK;
    if (!w->dialect->holds_kv_scales)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: has no place for the scales of a quantized "
                       "cache; use --format compressed-tensors or fp8", w->dialect->name);
    if (!sw_dialect_holds_kv(w->dialect, w->qconfig.kv_num))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: scales of a cache are for e4m3, which its "
                       "config does not say; for %s use --format compressed-tensors",
                       w->dialect->name, w->qconfig.kv_num->name);
    for (int64_t i = 0; i < 2 * w->source->model.n_layers && rc == SW_OK; i++)
        if (sw_model_has_attention(&w->source->model, i / 2) &&
            (rc = kv_name(name, w, i / 2, (int)(i % 2), err)) == SW_OK)
            rc = sw_st_writer_declare(w->st, name, SW_DTYPE_F32, 1, &one, err);
    return rc;
}

sw_code sw_ckpt_writer_put_kv(sw_ckpt_writer *w, int64_t layer, float k_scale, float v_scale,
                              sw_err *err)
{
    const float scales[2] = {k_scale, v_scale};
    char name[SW_PART_NAME_BYTES];
    uint8_t bytes[4];
    sw_code rc = SW_OK;

    for (int i = 0; i < 2 && rc == SW_OK; i++) {
        sw_store_le32(bytes, sw_f32_bits(scales[i]));
        if ((rc = kv_name(name, w, layer, i, err)) != SW_OK ||
            (rc = sw_st_writer_put(w->st, name, bytes, sizeof bytes, err)) != SW_OK)
            return rc;
        rc = sw_resume_note(&w->resume, name, bytes, sizeof bytes, err);
        if (rc == SW_OK) w->encoded_bytes += sizeof bytes;
    }
    return rc;
}
