/* cuda_half.c - see cuda_half.h. */
#include "quant/backend/cuda/cuda_half.h"

/* The operations of a half, and how many. */
static const sw_op *ops_of(int *n, const sw_model *m, int64_t layer, sw_half half)
{
    int n_ops, middle, begin;
    const sw_op *ops = sw_model_ops(m, layer, &n_ops);

    middle = sw_ops_of_attention(ops, n_ops);
    begin = half == SW_HALF_MLP ? middle : 0;
    *n = (half == SW_HALF_ATTENTION ? middle : n_ops) - begin;
    return ops + begin;
}

/* Of the first linear that reads a site, or n. */
static int find_linear(const sw_op *ops, int n, sw_site site)
{
    int at = 0;

    while (at < n && !(ops[at].kind == SW_OP_LINEAR && ops[at].site == site)) at++;
    return at;
}

bool sw_cuda_half_only_adds(const sw_model *m, int64_t layer, sw_half half, sw_site site)
{
    int n;
    const sw_op *ops = ops_of(&n, m, layer, half);
    const int at = find_linear(ops, n, site);

    return m->residual_scale == 1 && n - at == 2 && ops[at + 1].kind == SW_OP_ADD &&
           ops[at + 1].dst == SW_BUF_X && ops[at + 1].src == ops[at].dst;
}

bool sw_cuda_half_leaves_stream(const sw_model *m, int64_t layer, sw_half half, sw_site site)
{
    int n;
    const sw_op *ops = ops_of(&n, m, layer, half);
    const int at = find_linear(ops, n, site);

    for (int i = 0; i < at; i++)
        if (ops[i].dst == SW_BUF_X) return false;
    return at < n && !sw_model_side_width(m);
}
