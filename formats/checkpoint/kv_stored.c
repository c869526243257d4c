/* kv_stored.c - see kv_stored.h. */
#include "formats/checkpoint/kv_stored.h"

#include <stdio.h>

static const char *const suffixes[2] = {"k_scale", "v_scale"};

const sw_num *sw_kv_stored_num(const sw_checkpoint *ckpt)
{
    return ckpt->qconfig.kv_num ? ckpt->qconfig.kv_num : &sw_nums[SW_NUM_E4M3];
}

const sw_st_tensor *sw_kv_stored_scale(const sw_checkpoint *ckpt, int64_t layer, int which)
{
    char path[256], name[300];

    if (!sw_model_attention_path(path, &ckpt->model, layer)) return NULL;
    (void)snprintf(name, sizeof name, "%s.%s", path, suffixes[which]);
    return sw_st_find(ckpt->st, name);
}

static bool has_all(const sw_checkpoint *source)
{
    const sw_model *m = &source->model;

    for (int64_t layer = 0; layer < m->n_layers; layer++)
        if (sw_model_has_attention(m, layer) && (!sw_kv_stored_scale(source, layer, 0) ||
                                                 !sw_kv_stored_scale(source, layer, 1)))
            return false;
    return m->n_layers > 0;
}

const sw_num *sw_kv_kept_num(const sw_checkpoint *source, const sw_dialect *target)
{
    const sw_num *num = sw_kv_stored_num(source);

    return sw_dialect_holds_kv(target, num) && has_all(source) ? num : NULL;
}

bool sw_kv_may_copy(const sw_checkpoint *source, const sw_dialect *target, const sw_num *named)
{
    const sw_num *num = sw_kv_stored_num(source);

    if (target->holds_kv_scales) return named == num;
    return num == &sw_nums[SW_NUM_E4M3];
}
