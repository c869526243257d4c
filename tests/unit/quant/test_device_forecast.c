/* test_device_forecast.c - the memory of a device that a run will take, against sums by hand; what
 * is cut when there is less of it; and that what it offers as a remedy is one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "formats/file/config_text.h"
#include "kernels/solver_sizes.h"
#include "quant/backend/cuda/cuda_sizes.h"
#include "quant/run/device_forecast.h"
#include "quant/stats/site_stats.h"
#include "tests/support/toys/open_model.h"

#define MB ((int64_t)1000000)
#define GB (1000 * MB)
#define LANE_HANDLES ((int64_t)96 << 20)

static const char llama[] = "calib_data/tiny-llama", moe[] = "tests/golden/models/tiny-moe";

static bool all_selected(void *self, const sw_linear_ref *ref, const char *path)
{
    (void)self;
    (void)ref;
    (void)path;
    return true;
}

/* Of the model in a directory, by gptq, without its head. */
static sw_device_forecast forecast(const char *dir, int64_t n_seqs, int64_t seq_len, int n_ranks,
                                   int64_t cap_bytes)
{
    sw_quant_options o = sw_quant_defaults();
    const sw_calib calib = {NULL, n_seqs, seq_len};
    sw_forecast_request r = {.options = &o, .calib = &calib, .n_ranks = n_ranks,
                             .is_selected = all_selected};
    sw_device_forecast out;
    open_model m;
    sw_err err = {0};

    open_model_dir(&m, dir);
    r.model = &m.model;
    if (sw_device_forecast_new(&out, &r, cap_bytes, &err) != SW_OK) fail_msg("%s", err.text);
    open_model_close(&m);
    return out;
}

/* A layer of 256 experts of 7168 x 2048, 512 windows of 2048 tokens. */
static sw_device_forecast forecast_many_experts(sw_experts policy, int n_ranks, int64_t cap_bytes)
{
    static const char text[] =
        "{\"model_type\": \"deepseek_v3\", \"architectures\": [\"DeepseekV3ForCausalLM\"],"
        " \"hidden_size\": 7168, \"intermediate_size\": 18432, \"num_hidden_layers\": 1,"
        " \"num_attention_heads\": 128, \"num_key_value_heads\": 128, \"vocab_size\": 32000,"
        " \"n_routed_experts\": 256, \"num_experts_per_tok\": 8, \"n_shared_experts\": 1,"
        " \"moe_intermediate_size\": 2048, \"q_lora_rank\": 1536, \"kv_lora_rank\": 512,"
        " \"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64, \"v_head_dim\": 128,"
        " \"n_group\": 8, \"topk_group\": 4, \"first_k_dense_replace\": 0,"
        " \"norm_topk_prob\": true, \"routed_scaling_factor\": 2.5, \"hidden_act\": \"silu\","
        " \"rms_norm_eps\": 1e-6, \"max_position_embeddings\": 4096, \"rope_theta\": 10000}";
    sw_quant_options o = sw_quant_defaults();
    const sw_calib calib = {NULL, 512, 2048};
    sw_forecast_request r = {.options = &o, .calib = &calib, .n_ranks = n_ranks,
                             .is_selected = all_selected};
    cJSON *config = cJSON_Parse(text);
    sw_device_forecast out;
    static sw_model m;
    sw_err err = {0};

    o.experts = policy;
    r.model = &m;
    if (sw_model_read(&m, config, &err) != SW_OK ||
        sw_device_forecast_new(&out, &r, cap_bytes, &err) != SW_OK)
        fail_msg("%s", err.text);
    cJSON_Delete(config);
    return out;
}

static bool is_well(const sw_device_forecast *f)
{
    return f->has_streams && sw_device_forecast_fits(f);
}

/* 64 windows of 512 tokens of a model of 256 with an MLP of 768: the most is taken while what down
 * reads is observed. A chunk is 8 windows, so that there are 8 pieces and three sums at a time. */
static void test_parts(void **state)
{
    const int64_t n_tokens = 64 * 512, chunk = 4096, k = 768, hidden = 256;
    /* H and, of rows of the residual, W D and R; each also of what is kept back */
    const int64_t one = 2 * 8 * (k + hidden + hidden) * k, floats = one / 2;
    const int64_t watched = chunk * (2 * k + 4 * hidden + 2 * hidden + 2 * hidden);
    const sw_device_forecast f = forecast(llama, 64, 512, 1, 1000 * GB);

    (void)state;
    assert_true(is_well(&f));
    assert_string_equal(f.peak_step, "observing");
    assert_int_equal(f.n_pieces, 8);
    assert_int_equal(f.n_alive, 3);
    assert_int_equal(f.part_bytes[SW_DEVICE_STREAMS], 2 * 4 * n_tokens * hidden);
    assert_int_equal(f.part_bytes[SW_DEVICE_KEPT], 2 * n_tokens * k);
    assert_int_equal(f.part_bytes[SW_DEVICE_SUMS], 3 * one + floats + watched);
    assert_int_equal(f.part_bytes[SW_DEVICE_SOLVE], 0);
    /* q, k and v are solved beside each other */
    assert_int_equal(f.part_bytes[SW_DEVICE_HANDLES], 4 * LANE_HANDLES);
    assert_int_equal(f.n_passes, 0);
}

/* Inputs are kept only where a lot is left for the solves. */
static void test_kept(void **state)
{
    const sw_device_forecast f = forecast(llama, 64, 512, 1, 13 * GB);

    (void)state;
    assert_true(is_well(&f));
    assert_int_equal(f.part_bytes[SW_DEVICE_KEPT], 0);
}

static void test_remedies(void **state)
{
    const sw_device_forecast whole = forecast(llama, 512, 512, 1, 1000 * GB);
    const int64_t cap = whole.part_bytes[SW_DEVICE_STREAMS];
    const sw_device_forecast f = forecast(llama, 512, 512, 1, cap);
    sw_device_forecast with;

    (void)state;
    assert_false(f.has_streams);
    assert_non_null(strstr(f.why, "512 windows"));
    assert_in_range(f.samples_fit, 1, 511);
    with = forecast(llama, f.samples_fit, 512, 1, cap);
    assert_true(is_well(&with));
    with = forecast(llama, f.samples_fit + 1, 512, 1, cap);
    assert_false(is_well(&with));
    assert_in_range(f.ranks_fit, 2, 8);
    with = forecast(llama, 512, 512, (int)f.ranks_fit, cap);
    assert_true(is_well(&with));
    assert_int_equal(with.samples_fit, 0); /* nothing to remedy */
}

static void test_ranks(void **state)
{
    const sw_device_forecast one = forecast(llama, 64, 512, 1, 1000 * GB);
    const sw_device_forecast two = forecast(llama, 64, 512, 2, 1000 * GB);

    (void)state;
    assert_int_equal(2 * two.part_bytes[SW_DEVICE_STREAMS], one.part_bytes[SW_DEVICE_STREAMS]);
    assert_int_equal(two.n_pieces, one.n_pieces);
    assert_int_equal(two.n_alive, 2);
    assert_true(two.peak_bytes < one.peak_bytes);
}

/* Work of the busiest of n_ranks. */
static sw_forecast work_of(const char *dir, int n_ranks, bool has_device)
{
    sw_quant_options o = sw_quant_defaults();
    const sw_calib calib = {NULL, 64, 512};
    sw_forecast_request r = {.options = &o, .calib = &calib, .n_ranks = n_ranks,
                             .is_selected = all_selected, .has_device = has_device};
    sw_forecast out;
    open_model m;
    sw_err err = {0};

    open_model_dir(&m, dir);
    r.model = &m.model;
    if (sw_forecast_new(&out, &r, &err) != SW_OK) fail_msg("%s", err.text);
    open_model_close(&m);
    return out;
}

/* Rows of its four sites that the busiest of three ranks solves: of 512, 256, 1536 and 256 in six
 * layers. In slabs of 64 on processors; on a device every linear is one piece. */
static void test_work_of_ranks(void **state)
{
    static const double rows[2][4] = {{192, 128, 512, 128}, {256, 256, 768, 256}};

    (void)state;
    for (int has_device = 0; has_device < 2; has_device++) {
        const sw_forecast f = work_of(llama, 3, has_device != 0);
        const double *r = rows[has_device];
        const double want = 6 * (256.0 * 256 * (r[0] + r[1] + r[2]) + 768.0 * 768 * r[3]);

        assert_true(f.solve_units == want);
        assert_true(f.strength_units == want);
    }
    assert_true(work_of(llama, 1, true).solve_units == work_of(llama, 1, false).solve_units);
    /* experts go to their owners: 3 of 8 to the first of three, and rows of the rest are cut */
    assert_true(work_of(moe, 3, false).solve_units < 0.4 * work_of(moe, 1, false).solve_units);
    assert_true(work_of(moe, 3, false).solve_units > work_of(moe, 1, false).solve_units / 3);
}

/* Experts are taken in groups as less is left, which shows in passes over the text. */
static void test_experts(void **state)
{
    const sw_device_forecast f = forecast(moe, 64, 512, 1, 1000 * GB);
    int64_t cap_bytes = f.peak_bytes;
    sw_device_forecast small;
    open_model m;

    (void)state;
    open_model_dir(&m, moe);
    assert_true(f.has_streams);
    assert_int_equal(f.n_passes, 2); /* what gate and up read, and what down reads */
    assert_int_equal(f.n_experts_at_a_time, m.model.n_experts);
    do {
        cap_bytes -= 10 * MB;
        small = forecast(moe, 64, 512, 1, cap_bytes);
    } while (small.has_streams && small.n_experts_at_a_time == m.model.n_experts);
    assert_true(small.has_streams);
    assert_true(small.n_passes > 2);
    assert_true(small.peak_bytes < f.peak_bytes);
    open_model_close(&m);
}

/* What depends on what is left. */
static void test_cuts(void **state)
{
    open_model m;

    (void)state;
    assert_int_equal(sw_cuda_lanes_in(0, 0), 1);
    assert_int_equal(sw_cuda_lanes_in((int64_t)12 << 30, 0), 3);
    assert_int_equal(sw_cuda_lanes_in((int64_t)12 << 30, (int64_t)2 << 30), 2);
    assert_int_equal(sw_cuda_lanes_in((int64_t)1 << 40, 0), SW_SOLVER_LANES);
    open_model_dir(&m, llama);
    assert_int_equal(sw_cuda_weighing_slot(&m.model, 0, SW_SITE_DOWN_IN, 768, 256), SW_SLOT_DOWN);
    assert_int_equal(sw_cuda_weighing_slot(&m.model, 0, SW_SITE_DOWN_IN, 512, 256), SW_SLOT_COUNT);
    assert_int_equal(sw_cuda_weighing_slot(&m.model, 0, SW_SITE_O_IN, 256, 256), SW_SLOT_COUNT);
    /* of 512 windows of 2048 tokens with 14336 inputs, 30 GB, what leaves room for solves */
    assert_int_equal(sw_cuda_kept_windows(80 * GB, 512, 2 * 2048 * 14336, 14336), 512);
    assert_int_equal(sw_cuda_kept_windows(39 * GB, 512, 2 * 2048 * 14336, 14336), 256);
    assert_int_equal(sw_cuda_kept_windows(22 * GB, 512, 2 * 2048 * 14336, 14336), 0);
    /* experts of 1.2 GB beside solves of 768 inputs */
    assert_true(sw_cuda_may_stay(20 * GB, 12 * GB / 10, 768));
    assert_false(sw_cuda_may_stay(12 * GB, 12 * GB / 10, 768));
    assert_false(sw_cuda_may_stay(20 * GB, 12 * GB / 10, 20000));
    assert_true(sw_cuda_may_keep(&m.model, 0, SW_SITE_O_IN));
    assert_false(sw_cuda_may_keep(&m.model, 0, SW_SITE_ATTN_IN));
    assert_int_equal(sw_cuda_batch_seqs(&m.model, 8, 512, 64, GB), 8); /* no experts: a chunk */
    open_model_close(&m);
    open_model_dir(&m, moe);
    assert_int_equal(sw_cuda_batch_seqs(&m.model, 8, 512, 64, 1000 * GB), 64);
    assert_int_equal(sw_cuda_batch_seqs(&m.model, 8, 512, 20, 1000 * GB), 20);
    assert_int_equal(sw_cuda_batch_seqs(&m.model, 8, 512, 64, MB), 8);
    open_model_close(&m);
}

/* A weight of 64 x 128 with groups of 128, counted array by array. */
static void test_solve(void **state)
{
    const sw_solve_size plain = {.n_out = 64, .k_in = 128, .n_groups = 1};
    sw_solve_size gptq = plain;
    const int64_t n = 64, k = 128;
    const int64_t rounding = n * k * (4 + 8 + 1) + n * (4 + 4) + 8 * k;
    const int64_t figures = 3 * 8 * n * k + 4 * 8 * n + 8 * k;
    const int64_t sweep = n * k * (8 + 1) + 8 * n * 128 + 4 * n;

    (void)state;
    assert_int_equal(sw_solve_bytes(&plain, SW_SOLVER_WORK_BYTES), rounding);
    gptq.has_factor = gptq.is_gptq = true;
    assert_int_equal(sw_solve_bytes(&gptq, SW_SOLVER_WORK_BYTES), rounding + figures + sweep);
    gptq.has_shift = gptq.refines = true; /* lifts; systems of one scale a row */
    assert_int_equal(sw_solve_bytes(&gptq, SW_SOLVER_WORK_BYTES),
                     rounding + figures + sweep + 8 * n * k + n * (8 + 8 + 8 + 8 + 4));
    assert_int_equal(sw_solver_rows_in(SW_SOLVER_WORK_BYTES, 100000, 40 * 28672), 4096);
    assert_int_equal(sw_solver_rows_in(SW_LANE_BYTES, 100000, 40 * 28672), 1024);
    assert_int_equal(sw_solver_rows_in(1, 100000, 1000), SW_SOLVER_PRODUCT_ROWS);
    assert_int_equal(sw_solver_rows_in(SW_SOLVER_WORK_BYTES, 100, 1000), 100);
    assert_int_equal(sw_solve_system_rows(100, 16), 100);
    assert_int_equal(sw_solve_system_rows(4096, 224), 4096);  /* 10698 in 4 GB */
    assert_int_equal(sw_solve_system_rows(4096, 448), 2048);  /* 2674: whole pieces */
    assert_int_equal(sw_solve_system_rows(4096, 896), 512);   /* 668: a part that divides one */
    assert_int_equal(sw_solve_system_rows(4096, 1 << 20), 1); /* not even one */
    assert_int_equal(sw_target_form_bytes(64, k, false, SW_LANE_BYTES), n * k * (4 * 8 + 4));
    assert_int_equal(sw_target_form_bytes(64, k, true, SW_LANE_BYTES), n * k * (5 * 8 + 4));
}

static const sw_qspec *with_outliers(void *self, const sw_linear_ref *ref, const char *path)
{
    static sw_qspec spec;

    (void)self;
    (void)path;
    spec = sw_quant_defaults().spec;
    spec.n_outliers = ref->slot == SW_SLOT_DOWN ? 8 : 0;
    return &spec;
}

/* One linear that the device cannot solve keeps all blocks on the CPU, as placement.c has it. */
static void test_outliers(void **state)
{
    sw_quant_options o = sw_quant_defaults();
    const sw_calib calib = {NULL, 64, 512};
    sw_forecast_request r = {.options = &o, .calib = &calib, .is_selected = all_selected,
                             .spec_of = with_outliers};
    sw_device_forecast f;
    open_model m;
    sw_err err = {0};

    (void)state;
    open_model_dir(&m, llama);
    r.model = &m.model;
    assert_int_equal(sw_device_forecast_new(&f, &r, 1000 * GB, &err), SW_OK);
    assert_false(f.solves);
    assert_false(f.has_streams);
    assert_non_null(strstr(f.why, "outliers"));
    assert_int_equal(f.samples_fit, 0);
    open_model_close(&m);
}

/* Who may be solved there is known without a device. */
static void test_can(void **state)
{
    sw_qspec spec = sw_quant_defaults().spec;

    (void)state;
    assert_true(sw_solver_can(&spec));
    spec.n_outliers = 4;
    assert_false(sw_solver_can(&spec));
    spec.n_outliers = 0;
    spec.scale_rows = SW_ROWS_ALL;
    assert_false(sw_solver_can(&spec));
    spec.scale_rows = 1;
    spec.scale_dtype = SW_DTYPE_F8_E4M3;
    assert_false(sw_solver_can(&spec)); /* of integers */
    spec.num = &sw_nums[SW_NUM_E2M1];
    assert_true(sw_solver_can(&spec));
}

/* Experts are solved eight at a time, so passes over some of them take eights; a piece of the text
 * goes into the sums that are there, but not where an expert sees all tokens. */
static void test_passes_fill_lanes(void **state)
{
    const int64_t cap = 149 * GB;
    const sw_device_forecast one = forecast_many_experts(SW_EXPERTS_SHRINK, 1, cap);

    (void)state;
    assert_true(is_well(&one));
    assert_int_equal(one.n_alive, 3);
    assert_int_equal(one.n_experts_at_a_time, 16);
    assert_int_equal(one.n_passes, 256 / 16 + 2);
    for (int n_ranks = 2; n_ranks <= 4; n_ranks *= 2) {
        const sw_device_forecast some = forecast_many_experts(SW_EXPERTS_ROUTED, n_ranks, cap);

        assert_true(is_well(&some));
        assert_int_equal(some.n_experts_at_a_time % (SW_SOLVER_LANES * n_ranks), 0);
    }
    /* what every expert would read of every token takes a piece's sum beside the others */
    assert_true(sw_experts_go_on(SW_EXPERTS_SHRINK, &sw_backend_cuda));
    assert_false(sw_experts_go_on(SW_EXPERTS_ALL, &sw_backend_cuda));
    assert_false(sw_experts_go_on(SW_EXPERTS_SHRINK, &sw_backend_cpu));
}

/* 128256 tokens of 4096: a table of 1.05 GB, where the rows of 512 windows are 17 GB. */
static void test_table_of_tokens(void **state)
{
    const int64_t vocab = 128256, hidden = 4096, n = 512 * 2048;
    const int64_t bytes = 2 * vocab * hidden + 4 * n;

    (void)state;
    assert_int_equal(sw_cuda_look_up_bytes(vocab, hidden, n), bytes);
    assert_true(sw_cuda_looks_up(bytes, vocab, hidden, n));
    assert_false(sw_cuda_looks_up(bytes - 1, vocab, hidden, n));
    assert_false(sw_cuda_looks_up(100 * GB, vocab, hidden, 32 * 2000)); /* rows are less */
    assert_true(sw_cuda_looks_up(100 * GB, vocab, hidden, 32 * 2048));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts),    cmocka_unit_test(test_kept),
        cmocka_unit_test(test_remedies), cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_work_of_ranks),
        cmocka_unit_test(test_experts),  cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_solve),    cmocka_unit_test(test_can),
        cmocka_unit_test(test_outliers), cmocka_unit_test(test_passes_fill_lanes),
        cmocka_unit_test(test_table_of_tokens)};

    return cmocka_run_group_tests_name("memory of a device", tests, NULL, NULL);
}
