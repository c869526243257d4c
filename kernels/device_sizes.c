/* device_sizes.c - see device_sizes.h. Each sum follows the function of kernels/cuda/engine that it
 * names.
 */
#include "kernels/device_sizes.h"

#include "formats/base/size.h"

const sw_column_group sw_column_groups[SW_COLUMN_GROUPS] = {
    {SW_BUF_QKV, {SW_BUF_Q, SW_BUF_K, SW_BUF_V}, 3},
    {SW_BUF_GATE_UP, {SW_BUF_G, SW_BUF_U}, 2},
    {SW_BUF_KV_A, {SW_BUF_LATENT, SW_BUF_K_ROPE}, 2},
    {SW_BUF_SHARED_GATE_UP, {SW_BUF_SHARED_G, SW_BUF_SHARED_U}, 2},
};

bool sw_buf_is_in_group(int buf)
{
    for (int g = 0; g < SW_COLUMN_GROUPS; g++) {
        if (buf == (int)sw_column_groups[g].whole) return true;
        for (int i = 0; i < sw_column_groups[g].n_parts; i++)
            if (buf == (int)sw_column_groups[g].parts[i]) return true;
    }
    return false;
}

bool sw_column_group_is_apart(const sw_model *m, sw_buf whole)
{
    for (int64_t l = 0; whole == SW_BUF_QKV && l < m->n_layers; l++) {
        int n_ops;
        const sw_op *ops = sw_model_ops(m, l, &n_ops);

        for (int i = 0; i < n_ops; i++)
            if (ops[i].kind == SW_OP_SPLIT_GROUPS) return true;
    }
    return false;
}

/* What mixers alone read, in elements of 2 bytes: rows may be of any width, with some elements
 * between them. */
int64_t sw_device_row_stride(int buf, int64_t width)
{
    static const bool may_pad[SW_BUF_COUNT] = {
        [SW_BUF_MIX] = true, [SW_BUF_MIX_GROUPED] = true, [SW_BUF_MIX_BA] = true,
        [SW_BUF_MIX_B] = true, [SW_BUF_MIX_A] = true,
    };

    return may_pad[buf] ? sw_round_up(width, SW_DEVICE_ROW_ALIGN) : width;
}

/* take_buffers of cuda_engine.c: BF16 elements of a token in all buffers. */
static int64_t buffer_elems(const sw_model *m)
{
    int64_t sum = 0;

    for (int g = 0; g < SW_COLUMN_GROUPS; g++) {
        const sw_column_group *group = &sw_column_groups[g];
        int64_t width = 0;

        for (int i = 0; i < group->n_parts; i++) width += sw_model_buf_width(m, group->parts[i]);
        sum += width;
        if (width && sw_column_group_is_apart(m, group->whole))
            sum += sw_model_buf_width(m, group->whole);
    }
    for (int b = 0; b < SW_BUF_COUNT; b++) {
        const int64_t width = b == SW_BUF_N ? m->hidden : sw_model_buf_width(m, (sw_buf)b);

        if (b != SW_BUF_X && !sw_buf_is_in_group(b)) sum += sw_device_row_stride(b, width);
    }
    return sum;
}

/* sw_device_moe_new: logits; choices and shares; rows, outputs and gates by expert; sums. */
static int64_t moe_bytes(const sw_model *m)
{
    const int64_t n_used = m->n_experts_used, wide = m->moe_intermediate, hidden = m->moe_hidden;
    int64_t bytes = 4 * m->n_experts + n_used * (4 * 4 + 2 * hidden + 2 * hidden + 4 * wide) +
                    4 * hidden;

    if (m->router == SW_ROUTER_INPUT) bytes += 4 * n_used + 2 * hidden;
    return m->n_experts ? bytes : 0;
}

/* take_angles of cuda_engine.c, of one rope. */
static int64_t angle_bytes(const sw_model *m, const sw_rope *rope)
{
    return 2 * 4 * ((rope->dim ? rope->dim : m->rope_dim) / 2);
}

int64_t sw_device_scratch_bytes(const sw_model *m, int64_t max_tokens, int64_t max_seq)
{
    const int64_t positions =
        m->n_position_rows ? sw_min_i64(max_seq, m->max_positions) : max_seq;
    int64_t a_token = 2 * buffer_elems(m) + 4 * sw_model_side_width(m) + moe_bytes(m);
    int64_t a_position = m->rope_dim ? angle_bytes(m, &m->rope) : 0;

    if (m->has_window_rope) a_position += angle_bytes(m, &m->window_rope);
    if (m->hyper_rounds) a_token += 4 * m->n_copies * (m->n_copies + 1);
    return SW_CUBLASLT_WORK_BYTES + max_tokens * a_token + positions * a_position;
}

/* Norms are small beside linears. */
int64_t sw_device_layer_bytes(const sw_model *m, int64_t layer, bool with_experts)
{
    sw_slot kept[SW_KEPT_MAX];
    const int n_kept = sw_model_kept_linears(m, layer, kept, SW_KEPT_MAX);
    int64_t elems = 0, n_out, k_in;
    int n_ops;
    const sw_op *ops = sw_model_ops(m, layer, &n_ops);

    for (int i = 0; i < n_kept; i++) {
        sw_model_slot_shape(m, layer, kept[i], &n_out, &k_in);
        elems += n_out * k_in;
    }
    for (int i = 0; i < n_ops; i++) {
        if (ops[i].kind != SW_OP_LINEAR) continue;
        sw_model_slot_shape(m, layer, ops[i].slot, &n_out, &k_in);
        elems += n_out * k_in;
    }
    for (int i = 0; i < 3 && with_experts && sw_model_is_sparse(m, layer); i++)
        if (m->arch->expert_names[i]) elems += m->n_experts * m->moe_hidden * m->moe_intermediate;
    return 2 * elems;
}
