/* w4a16_many.c - how more than 64 tokens are cut where all tiles of both rows of W4A16 can run:
 * what leaves the busiest multiprocessor the least to do, by a count that was fitted to 1756 times
 * of an H200 (tests/bench/w4a16-tokens.txt). */
#include "kernels/cuda/gemm/weight_only/w4a16_many.h"
#include "kernels/cuda/gemm/weight_only/weight_only_kernels.h"

#define SPLIT_MAX 8
#define FIRST_ROUNDS_MAX 3 /* of more the last, which is not full, is little */
#define REST_SPLIT_MAX 3 /* sums of more CTAs take longer than they gain in a part of a product */

/* A problem, its stages and a device. Work is counted in products of a token and a channel over a
 * stage of inputs, some 22 picoseconds. */
typedef struct many {
    const sw_cuda_gemm *p;
    int64_t n_stages;
    int n_sms;
} many;

typedef struct choice {
    int64_t work;
    int tile, split;
    struct sw_cuda_rest rest;
} choice;

/* Of a stage: its products, which take longer each the more there are; channels to bring and
 * convert; tokens to bring. A CTA that shares its multiprocessor waits a little less. */
static int64_t work_of_stage(const sw_cuda_tile *tile, bool shares)
{
    int64_t c = tile->n_channels, t = tile->n_tokens, products = c * t;
    int64_t work = products + (products * products >> 17) + 64 * c + 48 * t;

    return shares ? work * 15 / 16 : work;
}

static int64_t n_blocks_of(const many *a, const sw_cuda_tile *tile, int64_t n_out)
{
    return sw_cuda_up(n_out, tile->n_channels) * sw_cuda_up(a->p->m, tile->n_tokens);
}

/* CTAs that a split of k may have: one a multiprocessor; of these, clusters of more than two can
 * use about 6 in 7, since each must lie in one GPC. */
static int64_t most_ctas(int split, int n_sms)
{
    return split == 1 ? INT64_MAX : split == 2 ? n_sms : n_sms - n_sms / 7;
}

/* By w4a16_split_k: a round of CTAs takes 1.8 us beside its stages and 0.09 ns a sum of its tile,
 * since sums are written when no stages are computed; each CTA that adds to a sum takes 0.7 us. */
static int64_t work_split(const many *a, const sw_cuda_tile *tile, int64_t n_ctas, int split)
{
    bool shares = tile->per_sm > 1 && n_ctas > a->n_sms;
    int64_t stages = sw_cuda_up(a->n_stages, split) * work_of_stage(tile, shares);
    int64_t sums = (int64_t)tile->n_channels * tile->n_tokens;

    return sw_cuda_up(n_ctas, a->n_sms) * (stages + (5 << 14) + 4 * sums) + split * (1 << 15);
}

/* By w4a16_persistent, whose CTAs copy ahead: rounds, and two thirds of one where halves follow.
 * Halves of blocks alone have their start and end to themselves, 1.1 us. */
static int64_t work_staying(const many *a, const sw_cuda_tile *tile, int64_t n_rounds,
                            bool has_halves)
{
    int64_t round = a->n_stages * work_of_stage(tile, false) * 15 / 16;
    int64_t halves = round * 2 / 3 + (n_rounds == 0) * (3 << 14);

    return n_rounds * (round + (6 << 14)) + has_halves * halves + (1 << 15);
}

/* Those for more than 64 tokens, and of 64 that of two CTAs a multiprocessor, for two blocks. */
static bool is_for_many(const sw_cuda_gemm *p, int tile)
{
    const sw_cuda_tile *t = &sw_w4a16_tiles[tile];
    bool is_half = t->n_tokens == 64 && t->per_sm > 1 && p->m <= 128;

    return t->is_scaled && (is_half || t->n_tokens > 64) && sw_w4a16_can_run(p, tile);
}

static void try_splits(choice *best, const many *a, int tile, int64_t n_blocks, int split_max)
{
    for (int split = 1; split <= split_max && split <= a->n_stages; split++) {
        int64_t work, n_ctas = n_blocks * split;

        if (n_ctas > most_ctas(split, a->n_sms)) continue;
        work = work_split(a, &sw_w4a16_tiles[tile], n_ctas, split);
        if (work < best->work) *best = (choice){work, tile, split, {0}};
    }
}

/* Whole rounds of a tile and one round of another. */
static void try_parts(choice *best, const many *a, const sw_cuda_tile *t, int tile, bool stays)
{
    int64_t n_out = a->p->tiles.n_out, by_token = sw_cuda_up(a->p->m, t->n_tokens);
    int64_t n_rounds = n_blocks_of(a, t, n_out) / a->n_sms, n_blocks = n_rounds * a->n_sms;
    int64_t from = n_blocks / by_token * t->n_channels;
    int64_t first = stays ? work_staying(a, t, n_rounds, false) : work_split(a, t, n_blocks, 1);
    choice rest = {.work = best->work - first};

    if (from == 0 || from >= n_out || n_rounds > FIRST_ROUNDS_MAX) return;
    for (int other = 0; other < sw_w4a16_n_tiles && rest.work > 0; other++) {
        int64_t left = n_blocks_of(a, &sw_w4a16_tiles[other], n_out - from);

        if (left <= a->n_sms && is_for_many(a->p, other))
            try_splits(&rest, a, other, left, REST_SPLIT_MAX);
    }
    if (rest.split == 0) return;
    *best = (choice){first + rest.work, tile, 1,
                     {from, sw_cuda_kernel_find("w4a16_split_k"), rest.tile, rest.split}};
}

/* Of two launches the work must be a 32nd less: by as much the count misjudges them. */
static choice two_launches(const choice *one)
{
    return (choice){.work = one->work - one->work / 32};
}

static choice best_split(const many *a)
{
    choice one = {.work = INT64_MAX}, two;

    for (int tile = 0; tile < sw_w4a16_n_tiles; tile++)
        if (is_for_many(a->p, tile))
            try_splits(&one, a, tile,
                       n_blocks_of(a, &sw_w4a16_tiles[tile], a->p->tiles.n_out), SPLIT_MAX);
    two = two_launches(&one);
    for (int tile = 0; tile < sw_w4a16_n_tiles; tile++)
        if (is_for_many(a->p, tile)) try_parts(&two, a, &sw_w4a16_tiles[tile], tile, false);
    return two.split ? two : one;
}

/* Pairs are left to the row. */
static choice best_staying(const many *a)
{
    choice one = {.work = INT64_MAX}, two;

    for (int tile = 0; tile < sw_w4a16_persistent_n_tiles; tile++) {
        nwl_blocks b = sw_w4a16_persistent_blocks_of(a->p, tile, a->n_sms);
        int64_t work = work_staying(a, &sw_w4a16_persistent_tiles[tile],
                                    sw_cuda_up(b.whole, b.slots), b.all > b.whole);

        if (!b.is_paired && work < one.work) one = (choice){work, tile, 1, {0}};
    }
    two = two_launches(&one);
    for (int tile = 0; tile < sw_w4a16_persistent_n_tiles; tile++)
        if (!sw_w4a16_persistent_blocks_of(a->p, tile, a->n_sms).is_paired)
            try_parts(&two, a, &sw_w4a16_persistent_tiles[tile], tile, true);
    return two.split ? two : one;
}

/* Tiles of 192 channels are for the weights that the rest are for, and for no others. */
bool sw_w4a16_are_many(const sw_cuda_gemm *p)
{
    int tile = 0;

    while (tile + 1 < sw_w4a16_n_tiles && sw_w4a16_tiles[tile].n_channels != 192) tile++;
    return p->m > 64 && sw_w4a16_can_run(p, tile);
}

static int kernel_by(bool stays)
{
    return sw_cuda_kernel_find(stays ? "w4a16_persistent" : "w4a16_split_k");
}

/* Returns the work. */
static int64_t count(sw_cuda_plan *out, const sw_cuda_gemm *p, const sw_cuda_device *device,
                     bool stays)
{
    const many a = {p, sw_cuda_up(p->tiles.k_in, SW_WEIGHT_ONLY_STAGE_K), device->n_sms};
    const choice best = stays ? best_staying(&a) : best_split(&a);

    *out = (sw_cuda_plan){.kernel = kernel_by(stays), .tile = best.tile, .split = best.split,
                          .device = *device, .overlap = true, .rest = best.rest};
    return best.work;
}

bool sw_w4a16_stays(sw_cuda_counted *counted, const sw_cuda_gemm *p, const sw_cuda_device *device)
{
    sw_cuda_plan staying, split;

    if (!counted->is_there) {
        int64_t work = count(&staying, p, device, true);

        counted->best = work < count(&split, p, device, false) ? staying : split;
        counted->is_there = true;
    }
    return counted->best.kernel == kernel_by(true);
}

void sw_w4a16_plan_many(sw_cuda_plan *out, const sw_cuda_gemm *p, const sw_cuda_device *device,
                        bool stays, const sw_cuda_counted *counted)
{
    if (counted->is_there && counted->best.kernel == kernel_by(stays)) *out = counted->best;
    else count(out, p, device, stays);
}
