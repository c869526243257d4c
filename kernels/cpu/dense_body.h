/* dense_body.h - dense weights, and float panels of any weight, against activations.
 *
 * Included once per instruction set, after tiles_body.h. Every sum is a vector of partial sums
 * over k, added up at the end: rows of W are contiguous in k, so nothing is ever transposed.
 */

/* y [n_tokens, n_rows] (+)= the lane sums of `sum`. Constants: n_rows, n_tokens. */
V_INLINE void put_sums(float *y, int64_t y_stride, vec sum[4][SW_GEMM_TOKENS_MAX], int n_tokens,
                       int64_t n_valid, bool is_added)
{
#pragma GCC unroll 8 /* else the accumulators go through memory */
    for (int m = 0; m < n_tokens; m++) {
        four sums = v_sum4(sum[0][m], sum[1][m], sum[2][m], sum[3][m]), before;
        float *to = y + m * y_stride;

        if (n_valid >= 4) {
            if (is_added) {
                memcpy(&before, to, sizeof before);
                sums = before + sums;
            }
            memcpy(to, &sums, sizeof sums);
            continue;
        }
        for (int64_t n = 0; n < n_valid; n++) to[n] = is_added ? to[n] + sums[n] : sums[n];
    }
}

/* `next` is fetched ahead: two rows, x_stride apart, of the tokens that come after these. */
V_INLINE void dot_rows(float *y, int64_t y_stride, const float *x, int64_t x_stride, int n_tokens,
                       const float *w, int64_t ld, int64_t n_valid, int64_t k, bool is_added,
                       const float *next)
{
    vec sum[4][SW_GEMM_TOKENS_MAX];

    for (int r = 0; r < 4; r++)
        for (int m = 0; m < n_tokens; m++) sum[r][m] = v_zero();
    for (int64_t at = 0; at < k; at += V_LANES) {
        vec row[4];

        __builtin_prefetch(next + at);
        __builtin_prefetch(next + x_stride + at);
        for (int r = 0; r < 4; r++) row[r] = v_load(w + r * ld + at);
        for (int m = 0; m < n_tokens; m++) {
            vec in = v_load(x + m * x_stride + at);

            for (int r = 0; r < 4; r++) sum[r][m] = v_fma(row[r], in, sum[r][m]);
        }
    }
    put_sums(y, y_stride, sum, n_tokens, n_valid, is_added);
}

typedef void (*dot_fn)(float *y, int64_t y_stride, const float *x, int64_t x_stride,
                       const float *panel, int64_t ld, int64_t n_rows, int64_t k, bool is_added);
#define DOT(n_tokens)                                                                         \
    static void dot_##n_tokens(float *y, int64_t y_stride, const float *x, int64_t x_stride,  \
                               const float *panel, int64_t ld, int64_t n_rows, int64_t k,     \
                               bool is_added)                                                 \
    {                                                                                         \
        for (int64_t n = 0; n < n_rows; n += 4)                                               \
            dot_rows(y + n, y_stride, x, x_stride, n_tokens, panel + n * ld, ld, n_rows - n, k, \
                     is_added, x + (n_tokens + n / 2 % n_tokens) * x_stride);                  \
    }
#if V_LANES == 16
DOT(1) DOT(2) DOT(3) DOT(4) DOT(5) DOT(6)
static const dot_fn dots[] = {dot_1, dot_2, dot_3, dot_4, dot_5, dot_6};
#else
DOT(1) DOT(2) DOT(3)
static const dot_fn dots[] = {dot_1, dot_2, dot_3};
#endif
#define GEMM_TOKENS ((int)(sizeof dots / sizeof *dots))

static void dot_panel(float *y, int64_t y_stride, const float *x, int64_t x_stride, int n_tokens,
                      const float *panel, int64_t ld, int64_t n_rows, int64_t k, bool is_added)
{
    dots[n_tokens - 1](y, y_stride, x, x_stride, panel, ld, n_rows, k, is_added);
}

V_INLINE vec load_dense(const void *src, int64_t at, sw_dtype dtype)
{
    if (dtype == SW_DTYPE_F32) return v_load((const float *)src + at);
    if (dtype == SW_DTYPE_BF16) return v_from_bf16((const uint16_t *)src + at);
    return v_from_f16((const uint16_t *)src + at);
}

static size_t dense_bytes(sw_dtype dtype) { return dtype == SW_DTYPE_F32 ? 4 : 2; }

/* Bytes of the element `at` of a dense array. */
static const uint8_t *dense_at(const void *src, int64_t at, sw_dtype dtype)
{
    return (const uint8_t *)src + (size_t)at * dense_bytes(dtype);
}

V_INLINE void decode_run(float *dst, const void *src, sw_dtype dtype, int64_t n)
{
    for (int64_t k = 0; k < n; k += V_LANES) v_store(dst + k, load_dense(src, k, dtype));
}

static void decode_whole(float *dst, const void *src, sw_dtype dtype, int64_t n)
{
    if (dtype == SW_DTYPE_F32) decode_run(dst, src, SW_DTYPE_F32, n);
    else if (dtype == SW_DTYPE_BF16) decode_run(dst, src, SW_DTYPE_BF16, n);
    else decode_run(dst, src, SW_DTYPE_F16, n);
}

static void decode_dense(float *dst, const void *src, sw_dtype dtype, int64_t n)
{
    int64_t whole = n / 64 * 64;
    float last[64] = {0};

    decode_whole(dst, src, dtype, whole);
    if (whole == n) return;
    memcpy(last, dense_at(src, whole, dtype), (size_t)(n - whole) * dense_bytes(dtype));
    decode_whole(dst + whole, last, dtype, 64);
}

/* bf16 comes two to a word, so the even inputs of 2 * V_LANES stand before the odd ones. */
static void to_dense_order(float *dst, const float *x, sw_dtype dtype, int64_t n)
{
    int64_t padded = sw_round_up(n, 64);

    memset(dst + n / 64 * 64, 0, (size_t)(padded - n / 64 * 64) * sizeof *dst);
    if (dtype != SW_DTYPE_BF16) {
        memcpy(dst, x, (size_t)n * sizeof *dst);
        return;
    }
    for (int64_t k = 0; k < n; k++) {
        int64_t in = k % (2 * V_LANES);
        dst[k - in + in % 2 * V_LANES + in / 2] = x[k];
    }
}

/* 2 * V_LANES inputs of four rows. */
V_INLINE void dense_step(vec sum[4][SW_GEMM_TOKENS_MAX], const void *const rows[4], int64_t at,
                         const float *x, int64_t x_stride, int n_tokens, sw_dtype dtype)
{
    for (int r = 0; r < 4; r++) {
        vec a, b;

        if (dtype == SW_DTYPE_BF16) {
            words w = w_load((const uint16_t *)rows[r] + at);
            a = v_lower_bf16(w);
            b = v_upper_bf16(w);
        } else {
            a = load_dense(rows[r], at, dtype);
            b = load_dense(rows[r], at + V_LANES, dtype);
        }
        for (int m = 0; m < n_tokens; m++) {
            const float *in = x + m * x_stride;

            sum[r][m] = v_fma(a, v_load(in), sum[r][m]);
            sum[r][m] = v_fma(b, v_load(in + V_LANES), sum[r][m]);
        }
    }
}

/* Four rows against n_tokens; the last partial 64 inputs go through a padded copy, since the row
 * may end where its mapping ends. */
V_INLINE void dense_rows(float *y, int64_t y_stride, const float *x, int64_t x_stride, int n_tokens,
                         const void *first, sw_dtype dtype, int64_t n_valid, int64_t k)
{
    int64_t whole = k / 64 * 64;
    vec sum[4][SW_GEMM_TOKENS_MAX];
    const void *rows[4], *tails[4];
    float last[4][64] = {{0}};

    for (int r = 0; r < 4; r++) {
        rows[r] = dense_at(first, sw_min_i64(r, n_valid - 1) * k, dtype);
        tails[r] = last[r];
        for (int m = 0; m < n_tokens; m++) sum[r][m] = v_zero();
    }
    for (int64_t at = 0; at < whole; at += 2 * V_LANES)
        dense_step(sum, rows, at, x + at, x_stride, n_tokens, dtype);
    if (whole < k) {
        for (int r = 0; r < 4; r++)
            memcpy(last[r], dense_at(rows[r], whole, dtype),
                   (size_t)(k - whole) * dense_bytes(dtype));
        for (int64_t at = 0; at < 64; at += 2 * V_LANES)
            dense_step(sum, tails, at, x + whole + at, x_stride, n_tokens, dtype);
    }
    put_sums(y, y_stride, sum, n_tokens, n_valid, false);
}

typedef void (*dense_fn)(float *y, int64_t y_stride, const float *x, int64_t x_stride,
                         const void *rows, int64_t n_rows, int64_t k);
#define DENSE(dtype, n_tokens)                                                              \
    static void dense_##dtype##_##n_tokens(float *y, int64_t y_stride, const float *x,      \
                                           int64_t x_stride, const void *rows,              \
                                           int64_t n_rows, int64_t k)                       \
    {                                                                                       \
        for (int64_t n = 0; n < n_rows; n += 4)                                             \
            dense_rows(y + n, y_stride, x, x_stride, n_tokens,                              \
                       dense_at(rows, n * k, SW_DTYPE_##dtype), SW_DTYPE_##dtype, n_rows - n, \
                       k);                                                                  \
    }
#define DENSES(n_tokens) DENSE(F32, n_tokens) DENSE(BF16, n_tokens) DENSE(F16, n_tokens)
#define DENSE_ROW(n_tokens) {dense_F32_##n_tokens, dense_BF16_##n_tokens, dense_F16_##n_tokens}
DENSES(1) DENSES(2) DENSES(3) DENSES(4)
static const dense_fn denses[][3] = {DENSE_ROW(1), DENSE_ROW(2), DENSE_ROW(3), DENSE_ROW(4)};
#define GEMV_DENSE_TOKENS ((int)(sizeof denses / sizeof *denses))

static void gemv_dense(float *y, int64_t y_stride, const float *x, int64_t x_stride, int n_tokens,
                       const void *rows, sw_dtype dtype, int64_t n_rows, int64_t k)
{
    int column = dtype == SW_DTYPE_F32 ? 0 : dtype == SW_DTYPE_BF16 ? 1 : 2;

    denses[n_tokens - 1][column](y, y_stride, x, x_stride, rows, n_rows, k);
}

const sw_cpu_ops V_NAME(sw_cpu_ops) = {
    .gemv_tokens = GEMV_TOKENS,
    .gemv_dense_tokens = GEMV_DENSE_TOKENS,
    .gemm_tokens = GEMM_TOKENS,
    .to_tile_order = to_tile_order,
    .gemv_takes = gemv_takes,
    .gemv_tiles = gemv_tiles,
    .decode_tiles = decode_tiles,
    .dot_panel = dot_panel,
    .decode_dense = decode_dense,
    .to_dense_order = to_dense_order,
    .gemv_dense = gemv_dense,
};
