/* fuzz_config.c - hostile config.json files.
 *
 * What is refused must leave the output alone and say why; what is accepted must be a model whose
 * sizes, names and rotary frequencies the rest of the program can use without another check.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/model/model.h"

#define LINEARS_MAX 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void insist(int holds)
{
    if (!holds) abort();
}

static void check_layer(const sw_model *m, int64_t layer)
{
    sw_linear_ref refs[LINEARS_MAX];
    const int64_t n = sw_model_linears(m, layer, refs, LINEARS_MAX);
    char path[256];
    int n_ops;

    insist(sw_model_ops(m, layer, &n_ops) && n_ops > 0);
    insist(n >= 1);
    for (int64_t i = 0; i < n && i < LINEARS_MAX; i++) {
        insist(refs[i].n_out > 0 && refs[i].k_in > 0);
        insist(refs[i].n_out <= INT64_MAX / refs[i].k_in / (int64_t)sizeof(double));
        insist(sw_model_slot_path(path, m, layer, refs[i].slot, refs[i].expert));
        insist(strlen(path) < sizeof path - 1);
    }
}

static void check_rope(const sw_model *m, const sw_rope *rope)
{
    const int64_t dim = rope->dim ? rope->dim : m->rope_dim;
    float *inv_freq = NULL, scale = 0;

    insist(SW_MEM_GET(&inv_freq, dim / 2, "frequencies", NULL) == SW_OK);
    for (int i = 0; i < 2; i++) {
        sw_rope_frequencies(inv_freq, &scale, m, rope, i ? 2 * m->max_positions : 1);
        insist(isfinite(scale));
        for (int64_t k = 0; k < dim / 2; k++)
            insist(isfinite(inv_freq[k]) && inv_freq[k] >= 0);
    }
    sw_mem_put(inv_freq);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sw_model m = {.hidden = -77};
    cJSON *config = NULL;
    sw_err err = {0};

    if (sw_json_parse(&config, (const char *)data, size, &sw_json_caps_config, "config.json",
                      &err) != SW_OK)
        return 0;
    if (sw_model_read(&m, config, &err) == SW_OK) {
        insist(m.n_heads % m.n_kv_heads == 0 && m.head_dim % 2 == 0 && m.n_eos <= SW_EOS_MAX);
        insist(m.n_experts_used <= m.n_experts);
        insist(m.rope_dim > 0 && m.rope_dim % 2 == 0 && m.rope_dim <= m.head_dim);
        insist(isfinite(m.attention_scale) && m.attention_scale > 0 && isfinite(m.embed_scale));
        insist(m.attention_cap >= 0 && m.logits_cap >= 0 && m.first_position_row >= 0);
        insist(m.sliding_window >= 0 && m.v_head_dim > 0);
        check_layer(&m, 0);
        check_layer(&m, m.n_layers - 1);
        check_rope(&m, &m.rope);
        if (m.has_window_rope) check_rope(&m, &m.window_rope);
    } else {
        insist(m.hidden == -77 && err.text[0]);
    }
    cJSON_Delete(config);
    return 0;
}
