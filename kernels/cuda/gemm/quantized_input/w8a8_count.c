/* w8a8_count.c - how products of 8-bit inputs are cut: what leaves the busiest multiprocessor the
 * least to do, by a count that was fitted to 13,000 times of an H200
 * (tests/bench/h200-bytes-plans.txt). */
#include "kernels/cuda/gemm/quantized_input/w8a8_count.h"
#include "kernels/cuda/gemm/quantized_input/w8a8_rows.h"

#define SPLIT_K "w8a8_split_k"
#define TWO_CTAS "w8a8_two_ctas"
#define PERSISTENT "w8a8_persistent"

/* Plans that were timed: of pairs up to so many tokens, fewer of those that have tokens as rows,
 * and a shorter k of those of 64 of them a CTA, which lose some hundredths where it is longer; of
 * blocks of 256 tokens from so many on, and in two launches from so many tokens and channels on.
 */
#define PAIRS_TOKENS_MIN 17
#define PAIRS_TOKENS_MAX 1024
#define ROWS_TOKENS_MAX 256
#define FEW_ROWS_K_MAX 16384
#define STAYING_TOKENS_MIN 97
#define PARTS_TOKENS_MIN 64
#define PARTS_CHANNELS_MIN 6144
#define SPLIT_MAX 8
#define FIRST_ROUNDS_MAX 3 /* of more the last, which is not full, is little */

/* Starting before X is quantized gains up to a tenth of few tokens or a short k, and costs some
 * hundredths else. */
#define EARLY_TOKENS_MAX 128
#define EARLY_K_MAX 4096

/* ns, the same for all kinds. */
#define ROUND_NS 1600        /* of a round of CTAs, beside its stages */
#define STAYING_ROUND_NS 1130 /* the same where CTAs stay and copy ahead */
#define STORE_NS 67          /* to store 1024 sums of a tile */
#define PAIR_ADD_NS 70       /* to add as many of the other CTA of a pair */
#define SPLIT_ADD_NS 60      /* and of each other CTA that splits k */
#define CLUSTER_NS 110       /* of a cluster of more than two CTAs */
#define MEET_NS 3595         /* of clusters that share a block */
#define LAUNCH_NS 2795       /* of a second launch */

/* Kinds of weights and inputs that were timed. */
enum { FP8, W8A8, BLOCKS, W4A8, W4AFP8, N_TIMED };

/* ns of a stage of 128 inputs where a CTA has a multiprocessor for itself; 0: no such kind. Tiles
 * whose rows are tokens are of two short runs (cuda-lab-log.md), by what they took beside what they
 * compete with, which took up to a quarter more than counted. */
static const struct {
    const char *kernel, *tile;
    int ns[N_TIMED];
} stages[] = {
    /*                         FP8  W8A8 BLOCKS W4A8 W4AFP8 */
    {SPLIT_K, "t16_c128",     {496, 438,  509, 307,  457}},
    {SPLIT_K, "t32_c128",     {492, 517,  601, 414,  524}},
    {SPLIT_K, "t64_c128",     {561, 572,  629, 551,  674}},
    {SPLIT_K, "t128_c128",    {512, 515,  701, 605,  623}},
    {SPLIT_K, "t256_c128",    {984, 737, 1327, 958, 1035}},
    {SPLIT_K, "t16_deep",     {275, 302,  400, 310,  363}},
    {SPLIT_K, "t32_deep",     {395, 420,  402, 310,  395}},
    {SPLIT_K, "t64_deep",     {350, 346,  444, 459,  539}},
    {TWO_CTAS, "w128_c128",   {375, 401,  472, 514,  494}},
    {TWO_CTAS, "k64_c64",     {283, 317,  338, 296,  335}},
    {TWO_CTAS, "x128_c64",    {258, 289,  321, 344,  408}},
    {TWO_CTAS, "x128_c128",   {416, 434,  502, 548,  539}},
    {TWO_CTAS, "k128_c64",    {256, 282,  333, 371,  442}},
    {TWO_CTAS, "k128_c128",   {436, 454,  512, 518,  519}},
    {TWO_CTAS, "r64_c64",     {  0,   0,  204,   0,    0}},
    {TWO_CTAS, "r64_c96",     {  0,   0,  328,   0,    0}},
    {TWO_CTAS, "r64_c160",    {  0,   0,  520,   0,    0}},
    {TWO_CTAS, "r64_c224",    {  0,   0,  700,   0,    0}},
    {TWO_CTAS, "r64_c320",    {  0,   0, 1060,   0,    0}},
    {TWO_CTAS, "r128_c64",    {  0,   0,  257,   0,    0}},
    {TWO_CTAS, "r128_c80",    {  0,   0,  340,   0,    0}},
    {TWO_CTAS, "r128_c160",   {  0,   0,  625,   0,    0}},
    {TWO_CTAS, "r128_c224",   {  0,   0,  940,   0,    0}},
    {TWO_CTAS, "v128_c64",    {  0,   0,  250,   0,    0}},
    {TWO_CTAS, "v128_c96",    {  0,   0,  360,   0,    0}},
    {TWO_CTAS, "v128_c160",   {  0,   0,  617,   0,    0}},
    {PERSISTENT, "t256_c128", {647, 630,  741, 934,  860}},
};
#define N_STAGES (int)(sizeof stages / sizeof *stages)

static int stage_ns(const char *kernel, const char *tile, int kind)
{
    for (int i = 0; i < N_STAGES; i++)
        if (strcmp(stages[i].kernel, kernel) == 0 && strcmp(stages[i].tile, tile) == 0)
            return stages[i].ns[kind];
    return 0; /* there is none */
}

/* Two CTAs side by side take five eighths of what they take one after the other. */
static int64_t side_by_side(int64_t ns) { return ns * 5 / 4; }

/* A tile that can run a problem, and which CTAs or clusters it cuts it into: as many for each
 * `channels` of them. `units` run at a time, or pairs of them. */
typedef struct cut {
    int kernel, tile, split;
    const sw_cuda_tile *t;
    int64_t channels, per_channels, units, n_stages, shared_stages;
    int stage_ns;
    bool stays, adds_pairs;
} cut;

typedef struct problem {
    const sw_cuda_gemm *p;
    int n_sms, timed_as, n_cuts; /* timed_as: a column of `stages` */
    cut cuts[N_STAGES * SPLIT_MAX];
} problem;

typedef struct choice {
    int64_t ns;
    const cut *first, *rest;
    int64_t from;
} choice;

static int timed_as(const sw_cuda_gemm *p)
{
    static const int of_kinds[] = {
        [W8A8_INT8] = W8A8,     [W8A8_INT4] = W4A8,         [W8A8_E4M3] = FP8,
        [W8A8_INT4_SYM] = W4A8, [W8A8_INT4_E4M3] = W4AFP8,
    };
    w8a8_kind kind = sw_w8a8_kind_of(p);

    return kind == W8A8_E4M3 && sw_w8a8_is_grouped(p) ? BLOCKS : of_kinds[kind];
}

/* CTAs of a split that find places: clusters of more than two can use about 6 in 7, since each must
 * lie in one GPC, and those of seven with two CTAs a multiprocessor 3 in 4. */
static int64_t places(int n_sms, int split, int per_sm)
{
    if (split <= 2) return n_sms;
    return split == 7 && per_sm > 1 ? n_sms - n_sms / 4 : n_sms - n_sms / 7;
}

static void cut_split(cut *c, const problem *a)
{
    c->channels = c->t->n_channels;
    c->per_channels = c->split * sw_cuda_up(a->p->m, c->t->n_tokens);
    c->units = places(a->n_sms, c->split, c->t->per_sm);
    c->n_stages = sw_cuda_up(c->n_stages, c->split);
}

static void cut_pairs(cut *c, const problem *a)
{
    const int shared = sw_w8a8_two_ctas_shared(c->tile);
    int64_t by_token = sw_cuda_up(a->p->m, c->t->n_tokens);

    c->channels = c->t->n_channels * (shared == SW_A8P_X ? 2 : 1);
    c->per_channels = 2 * (shared == SW_A8P_W ? sw_cuda_up(by_token, 2) : by_token);
    c->units = a->n_sms;
    c->adds_pairs = shared == SW_A8P_K;
    if (c->adds_pairs) c->n_stages = sw_cuda_up(c->n_stages, 2);
}

/* By single CTAs bytes were not timed: their stages are those of the same tile that splits k. */
static void cut_staying(cut *c, const problem *a)
{
    const w8a8_blocks b = sw_w8a8_persistent_blocks(a->p, a->n_sms);

    c->channels = c->t->n_channels * b.cluster;
    c->per_channels = b.by_token;
    c->units = b.n_clusters;
    c->shared_stages = b.shared_stages;
    c->stays = true;
    if (b.cluster == 1 && a->p->tiles.container_bits == 8)
        c->stage_ns = stage_ns(SPLIT_K, c->t->name, a->timed_as);
}

/* CTAs of few tokens are for few: so many side by side were timed. */
static int64_t most_by_token(const sw_cuda_tile *t)
{
    if (t->n_tokens >= 128) return INT64_MAX;
    return t->n_tokens < 32 ? 2 : t->n_tokens < 64 ? 3 : 4;
}

/* Tokens as rows: up to 64 with as many a CTA, above with 128. */
static bool pairs_are_timed(const cut *c, const problem *a)
{
    const int64_t m = a->p->m;

    if (m < PAIRS_TOKENS_MIN) return false;
    if (!sw_w8a8_two_ctas_has_rows(c->tile)) return m <= PAIRS_TOKENS_MAX;
    if (c->t->n_tokens < 128) return m <= c->t->n_tokens && a->p->tiles.k_in <= FEW_ROWS_K_MAX;
    return m > 64 && m <= ROWS_TOKENS_MAX;
}

static bool is_timed(const cut *c, const problem *a)
{
    int64_t m = a->p->m, by_token = sw_cuda_up(m, c->t->n_tokens);
    int64_t n_ctas = c->per_channels * sw_cuda_up(a->p->tiles.n_out, c->channels);

    if (c->stays) return m >= STAYING_TOKENS_MIN;
    if (strcmp(sw_cuda_kernels[c->kernel].name, TWO_CTAS) == 0)
        return pairs_are_timed(c, a);
    if (c->t->n_tokens > 2 * sw_cuda_up(m, 16) * 16 || by_token > most_by_token(c->t)) return false;
    return c->split == 1 || n_ctas <= 2 * (int64_t)a->n_sms;
}

static void add_cuts(problem *a, int stage, int kernel, int tile)
{
    const bool splits = strcmp(stages[stage].kernel, SPLIT_K) == 0;
    const int64_t n_stages = sw_cuda_up(a->p->tiles.k_in, SW_W8A8_STAGE_K);

    for (int split = 1; split <= (splits ? SPLIT_MAX : 1) && split <= n_stages; split++) {
        cut *c = &a->cuts[a->n_cuts];

        *c = (cut){.kernel = kernel, .tile = tile, .split = split, .n_stages = n_stages,
                   .t = &sw_cuda_kernels[kernel].tiles[tile],
                   .stage_ns = stages[stage].ns[a->timed_as]};
        if (splits) cut_split(c, a);
        else if (strcmp(stages[stage].kernel, TWO_CTAS) == 0) cut_pairs(c, a);
        else cut_staying(c, a);
        a->n_cuts += is_timed(c, a);
    }
}

static void find_cuts(problem *a, const sw_cuda_gemm *p, const sw_cuda_device *device)
{
    a->p = p;
    a->n_sms = device->n_sms;
    a->timed_as = timed_as(p);
    a->n_cuts = 0;
    for (int i = 0; i < N_STAGES; i++) {
        const int kernel = sw_cuda_kernel_find(stages[i].kernel);
        const sw_cuda_kernel *k = &sw_cuda_kernels[kernel];

        for (int tile = 0; tile < *k->n_tiles; tile++)
            if (strcmp(k->tiles[tile].name, stages[i].tile) == 0 && k->can_run(p, tile))
                add_cuts(a, i, kernel, tile);
    }
}

/* Whole rounds, and half of one where clusters share its blocks. */
static int64_t ns_staying(const cut *c, int64_t n_units, int64_t store_ns)
{
    const w8a8_rounds r = sw_w8a8_rounds_of(n_units, c->units, c->shared_stages);
    int64_t run = c->n_stages * c->stage_ns, ns;

    ns = sw_cuda_up(r.n_whole, c->units) * (run + STAYING_ROUND_NS) + store_ns;
    return n_units > r.n_whole ? ns + run / 2 + STAYING_ROUND_NS + MEET_NS : ns;
}

/* What the busiest multiprocessor takes for n_out channels. Where two CTAs fit one, both of a split
 * of two are put there, even if others are empty. */
static int64_t ns_of(const cut *c, int64_t n_out)
{
    int64_t n_units = sw_cuda_up(n_out, c->channels) * c->per_channels;
    int64_t sums = (int64_t)c->t->n_tokens * c->t->n_channels, run = c->n_stages * c->stage_ns;
    int64_t store_ns = sums * (STORE_NS + (c->adds_pairs ? PAIR_ADD_NS : 0)) / 1024;
    int64_t at_once = c->units * c->t->per_sm, left = n_units % at_once, ns;

    if (c->stays) return ns_staying(c, n_units, store_ns);
    if (c->t->per_sm == 1) ns = sw_cuda_up(n_units, at_once) * (run + ROUND_NS + store_ns);
    else {
        ns = sw_cuda_up(n_units, at_once) * (side_by_side(run) + ROUND_NS + store_ns);
        if (left > 0 && left <= c->units && c->split != 2) ns -= side_by_side(run) - run;
    }
    return ns + (c->split - 1) * sums * SPLIT_ADD_NS / 1024 + (c->split > 2 ? CLUSTER_NS : 0);
}

/* Channels that fill whole rounds, or half a one where clusters share blocks; 0: there are too few
 * of them, or the last is of little weight. */
static int64_t whole_channels(const cut *c, int64_t n_out)
{
    const int parts = c->shared_stages > 0 ? 2 : 1;
    int64_t n_rounds = n_out / c->channels * c->per_channels * parts / c->units, from;

    if (n_rounds > FIRST_ROUNDS_MAX * parts) return 0;
    from = c->units * n_rounds / parts / c->per_channels * c->channels / 128 * 128;
    return from < n_out ? from : 0;
}

static void try_parts(choice *best, const problem *a, const cut *first)
{
    int64_t n_out = a->p->tiles.n_out, from = whole_channels(first, n_out), ns;

    if (from == 0) return;
    ns = ns_of(first, from) + LAUNCH_NS;
    for (int i = 0; i < a->n_cuts && ns < best->ns; i++) {
        const cut *rest = &a->cuts[i];
        int64_t n_units = sw_cuda_up(n_out - from, rest->channels) * rest->per_channels, all;

        if (n_units > rest->units * rest->t->per_sm) continue;
        all = ns + ns_of(rest, n_out - from);
        if (all < best->ns) *best = (choice){all, first, rest, from};
    }
}

/* By one kernel, or by any in one launch or two: of two the count must be a 32nd less, since by as
 * much it misjudges them. */
static choice best_of(const problem *a, int kernel)
{
    const int64_t n_out = a->p->tiles.n_out;
    choice one = {.ns = INT64_MAX}, two = {0};

    for (int i = 0; i < a->n_cuts; i++) {
        int64_t ns = ns_of(&a->cuts[i], n_out);

        if ((kernel < 0 || a->cuts[i].kernel == kernel) && ns < one.ns)
            one = (choice){.ns = ns, .first = &a->cuts[i]};
    }
    two.ns = one.ns - one.ns / 32;
    if (kernel < 0 && a->p->m >= PARTS_TOKENS_MIN && n_out >= PARTS_CHANNELS_MIN)
        for (int i = 0; i < a->n_cuts; i++) try_parts(&two, a, &a->cuts[i]);
    return two.first ? two : one;
}

bool sw_w8a8_is_counted(const sw_cuda_gemm *p)
{
    return p->m > 32 || p->tiles.container_bits == 4 || sw_w8a8_is_grouped(p);
}

/* By the kernel of this index, or by any. With none that was timed the kernel is -1. */
static sw_cuda_plan plan_by(const sw_cuda_gemm *p, const sw_cuda_device *device, int kernel)
{
    sw_cuda_plan plan = {.kernel = -1, .split = 1, .device = *device, .overlap = true};
    problem a;
    choice best;

    find_cuts(&a, p, device);
    best = best_of(&a, kernel);
    plan.starts_early = p->m <= EARLY_TOKENS_MAX || p->tiles.k_in <= EARLY_K_MAX;
    if (!best.first) return plan; /* asked for by name where it was not timed */
    plan.kernel = best.first->kernel;
    plan.tile = best.first->tile;
    plan.split = best.first->split;
    if (best.rest)
        plan.rest = (struct sw_cuda_rest){best.from, best.rest->kernel, best.rest->tile,
                                          best.rest->split};
    return plan;
}

static const sw_cuda_plan *count_once(sw_cuda_counted *counted, const sw_cuda_gemm *p,
                                      const sw_cuda_device *device)
{
    if (!counted->is_there) *counted = (sw_cuda_counted){true, plan_by(p, device, -1)};
    return &counted->best;
}

bool sw_w8a8_count_suits(const sw_cuda_gemm *p, const sw_cuda_device *device, const char *kernel,
                         sw_cuda_counted *counted)
{
    return sw_w8a8_is_counted(p) &&
           count_once(counted, p, device)->kernel == sw_cuda_kernel_find(kernel);
}

void sw_w8a8_count_plan(sw_cuda_plan *out, const sw_cuda_gemm *p, const sw_cuda_device *device,
                        const char *kernel, sw_cuda_counted *counted)
{
    const int at = sw_cuda_kernel_find(kernel);
    const sw_cuda_plan *best = count_once(counted, p, device);

    *out = best->kernel == at ? *best : plan_by(p, device, at);
}
