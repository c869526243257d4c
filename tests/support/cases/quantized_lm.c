/* quantized_lm.c - see quantized_dir.h. */
#include "tests/support/cases/quantized_dir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#define MUST(call)                                      \
    do {                                                \
        sw_err e_text = {0}, *err = &e_text;            \
        if ((call) != SW_OK) fail_msg("%s", err->text); \
    } while (0)

static void *take(quantized_lm *to, int64_t size_bytes)
{
    uint8_t *taken = NULL;

    MUST(SW_ARENA_TAKE(&taken, &to->arena, size_bytes + 64, err));
    return taken + (64 - (uintptr_t)taken % 64) % 64; /* as vector loads like it */
}

static sw_code put(void *self, const sw_linear_ref *ref, const char *path, const sw_qtensor *q,
                   const sw_solve_report *report, sw_err *err)
{
    quantized_lm *to = self;
    sw_weight *w = sw_block_weight(&to->m.lm.blocks[ref->layer], ref->slot, ref->expert);
    const sw_num *num = q->spec.num;
    sw_tiles *t = take(to, sizeof *t);
    uint8_t *codes = take(to, sw_tiles_stored_bytes(num, q->n_out, q->k_in));
    void *scales = take(to, sw_tiles_scales_bytes(q->spec.scale_dtype, q->n_out, q->n_groups));
    uint8_t *zeros = q->zeros ? take(to, sw_tiles_zeros_bytes(q->n_out, q->n_groups)) : NULL;

    (void)path;
    (void)report;
    *t = (sw_tiles){.spec = q->spec, .n_out = q->n_out, .k_in = q->k_in, .n_groups = q->n_groups,
                    .container_bits = sw_tiles_stored_bits(num), .codes = codes,
                    .scales = scales, .zeros = zeros, .global_scale = q->global_scale,
                    .input_scale = q->input_scale};
    w->dense = NULL;
    w->tiles = t;
    w->act = q->spec.act;
    w->input_scale = q->input_scale;
    return sw_tiles_pack_stored(codes, scales, zeros, q, err);
}

static bool is_selected(void *self, const sw_linear_ref *ref, const char *path)
{
    (void)self;
    (void)path;
    return ref->slot != SW_SLOT_ROUTER && ref->slot != SW_SLOT_HEAD;
}

void quantized_lm_open(quantized_lm *out, const char *dir, const sw_qspec *spec,
                       const sw_calib *calib)
{
    const sw_quant_sink sink = {.self = out, .put = put, .is_selected = is_selected};
    sw_quant_options options = sw_quant_defaults();

    memset(out, 0, sizeof *out);
    open_model_dir(&out->m, dir);
    options.algo = sw_algo_find("rtn");
    options.spec = *spec;
    options.n_threads = 4;
    MUST(sw_quant_run(&out->m.model, out->m.st, calib, &options, &sink, NULL, err));
}

static void widen(quantized_lm *q, sw_weight *w)
{
    const sw_tiles *from = w->tiles;
    const int bits = from ? sw_tiles_container_bits(from->spec.num) : 0;

    if (!from || from->container_bits == bits) return;
    sw_tiles *to = take(q, sizeof *to);
    uint8_t *codes = take(q, sw_tiles_codes_bytes(from->spec.num, from->n_out, from->k_in));

    sw_tiles_widen(codes, from);
    *to = *from;
    to->codes = codes;
    to->container_bits = bits;
    w->tiles = to;
}

void quantized_lm_widen(quantized_lm *q)
{
    for (int64_t l = 0; l < q->m.model.n_layers; l++)
        for (int s = 0; s < SW_SLOT_COUNT; s++) widen(q, &q->m.lm.blocks[l].linear[s]);
}

void quantized_lm_close(quantized_lm *q)
{
    open_model_close(&q->m);
    sw_arena_free(&q->arena);
}

void quantized_lm_drop_acts(quantized_lm *q)
{
    const sw_model *m = &q->m.model;

    for (int64_t l = 0; l < m->n_layers; l++) {
        sw_block *b = &q->m.lm.blocks[l];

        for (int s = 0; s < SW_SLOT_COUNT; s++) b->linear[s].act = (sw_act){0};
        for (int i = 0; i < 3 && b->experts[i]; i++)
            for (int64_t x = 0; x < m->n_experts; x++) b->experts[i][x].act = (sw_act){0};
    }
}
