/* engine_key_choose.cu - the keys of the largest ranks. See engine_chosen.h; the method and its
 * source are in sparse/key_digits.h.
 *
 * A block to a query. Threads are neighbouring keys, and go over all of them once for each digit,
 * to count, and once more to write; so a text may be of any length. Counts are integers, whose
 * sums do not depend on the order in which they are added up.
 */
#include "kernels/cuda/ops/engine_key_choose.cuh"
#include "kernels/cuda/ops/engine_launch.cuh"

#define N_THREADS 512
#define N_WARPS (N_THREADS / 32)

struct choose_state {
    uint32_t counts[SW_KEY_DIGITS + 1]; /* of a digit, then of it and larger ones; the last is 0 */
    uint32_t digit;
    uint32_t n_above[N_WARPS], n_equal[N_WARPS];
};

/* One more of a digit for each lane that has one; of lanes with the same the first adds. */
static __device__ void count_digit(uint32_t *s_counts, uint32_t digit, bool is_counted)
{
    const uint32_t alike = __match_any_sync(~0u, is_counted ? digit : SW_KEY_DIGITS);

    if (is_counted && (int)(threadIdx.x % 32) == __ffs((int)alike) - 1)
        atomicAdd(s_counts + digit, (uint32_t)__popc(alike));
}

static __device__ void count_digits(choose_state &s, const uint32_t *ranks, int64_t n,
                                    sw_key_bound bound, int shift)
{
    for (int i = (int)threadIdx.x; i <= SW_KEY_DIGITS; i += N_THREADS) s.counts[i] = 0;
    __syncthreads();
    for (int64_t at = 0; at < n; at += N_THREADS) {
        const int64_t key = at + threadIdx.x;
        const uint32_t rank = key < n ? ranks[key] : 0;

        count_digit(s.counts, sw_key_digit(rank, shift),
                    key < n && sw_key_agrees(rank, bound, shift));
    }
    __syncthreads();
}

/* Each count becomes the sum of it and of those of larger digits. */
static __device__ void sum_counts(uint32_t *s_counts)
{
    const int i = (int)threadIdx.x;

    for (int step = 1; step < SW_KEY_DIGITS; step *= 2) {
        const uint32_t more = i + step < SW_KEY_DIGITS ? s_counts[i + step] : 0;

        __syncthreads();
        if (i < SW_KEY_DIGITS) s_counts[i] += more;
        __syncthreads();
    }
}

static __device__ sw_key_bound next_digit(choose_state &s, sw_key_bound bound, int shift)
{
    const int i = (int)threadIdx.x;

    sum_counts(s.counts);
    if (i < SW_KEY_DIGITS && sw_key_is_digit(bound, s.counts[i], s.counts[i + 1]))
        s.digit = (uint32_t)i;
    __syncthreads();
    bound = sw_key_take_digit(bound, s.digit, shift, s.counts[s.digit + 1]);
    __syncthreads(); /* all have read */
    return bound;
}

/* What warps before this one have counted, or (all of them) every warp. */
static __device__ uint32_t sum_warps(const uint32_t *s_parts, int n_warps)
{
    uint32_t sum = 0;

    for (int w = 0; w < n_warps; w++) sum += s_parts[w];
    return sum;
}

/* Keys into their places, N_THREADS at a time. */
static __device__ void put_chosen(choose_state &s, int32_t *out, const uint32_t *ranks, int64_t n,
                                  sw_key_bound bound)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t before = (1u << lane) - 1;
    uint32_t n_above = 0, n_equal = 0;

    for (int64_t at = 0; at < n; at += N_THREADS) {
        const int64_t key = at + threadIdx.x;
        const uint32_t rank = key < n ? ranks[key] : 0;
        const uint32_t above = __ballot_sync(~0u, key < n && rank > bound.rank);
        const uint32_t equal = __ballot_sync(~0u, key < n && rank == bound.rank);

        if (lane == 0) {
            s.n_above[warp] = (uint32_t)__popc(above);
            s.n_equal[warp] = (uint32_t)__popc(equal);
        }
        __syncthreads();
        const uint32_t my_above = n_above + sum_warps(s.n_above, warp) + __popc(above & before);
        const uint32_t my_equal = n_equal + sum_warps(s.n_equal, warp) + __popc(equal & before);

        if (key < n && sw_key_is_in(bound, rank, my_equal))
            out[sw_key_place(bound, my_above, my_equal)] = (int32_t)key;
        n_above += sum_warps(s.n_above, N_WARPS);
        n_equal += sum_warps(s.n_equal, N_WARPS);
        __syncthreads();
    }
}

/* grid (queries) */
static __global__ void __launch_bounds__(N_THREADS) swk_key_choose(sw_choice_args a)
{
    __shared__ choose_state s;
    const int64_t row = blockIdx.x, t = a.row0 + row;
    const uint32_t *ranks = a.ranks + row * a.capacity;
    int32_t *out = a.chosen.d + t * a.chosen.stride;
    sw_key_bound bound = {0, (uint32_t)a.top_k};

    sw_begin();
    const int64_t n = sw_keys_before(a, t);

    if (n <= a.top_k) {
        for (int64_t i = threadIdx.x; i < a.top_k; i += N_THREADS) out[i] = i < n ? (int32_t)i : -1;
        return;
    }
    for (int shift = SW_KEY_FIRST_SHIFT; shift >= 0; shift -= SW_KEY_DIGIT_BITS) {
        count_digits(s, ranks, n, bound, shift);
        bound = next_digit(s, bound, shift);
    }
    put_chosen(s, out, ranks, n, bound);
}

extern "C" sw_code sw_cuda_key_choose(const sw_choice_args *a, sw_launch how, sw_err *err)
{
    return sw_start("choice of keys", swk_key_choose, (unsigned)a->n, N_THREADS, 0, how, err, *a);
}
