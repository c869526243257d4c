/* warp.c - what lanes of a warp tell each other: see emulate.h. Each meets the others of its mask
 * with what it asks, and the last one answers all.
 */
#include "tests/emulate/emulate.h"

typedef struct question {
    uint64_t value, answer;
    int from;
} question;

static question *of(void *const lanes[EMU_WARP], int lane) { return lanes[lane]; }

/* From a lane that does not take part comes what no kernel may use. */
static void shuffle_all(void *const lanes[EMU_WARP])
{
    for (int lane = 0; lane < EMU_WARP; lane++) {
        question *q = of(lanes, lane);

        if (q) q->answer = of(lanes, q->from) ? of(lanes, q->from)->value : ~(uint64_t)0;
    }
}

uint64_t emu_shuffle(uint32_t mask, uint64_t value, int from)
{
    question q = {value, 0, from & (EMU_WARP - 1)};

    emu_meet(mask, "a shuffle", &q, shuffle_all, false);
    return q.answer;
}

static void ballot_all(void *const lanes[EMU_WARP])
{
    uint32_t set = 0;

    for (int lane = 0; lane < EMU_WARP; lane++)
        if (of(lanes, lane) && of(lanes, lane)->value) set |= 1u << lane;
    for (int lane = 0; lane < EMU_WARP; lane++)
        if (of(lanes, lane)) of(lanes, lane)->answer = set;
}

uint32_t emu_ballot(uint32_t mask, bool is_set)
{
    question q = {is_set, 0, 0};

    emu_meet(mask, "a vote", &q, ballot_all, false);
    return (uint32_t)q.answer;
}

static void reduce_all(void *const lanes[EMU_WARP])
{
    uint32_t all = 0;
    bool is_first = true;

    for (int lane = 0; lane < EMU_WARP; lane++) {
        const question *q = of(lanes, lane);
        const uint32_t v = q ? (uint32_t)q->value : 0;

        if (!q) continue;
        if (is_first) all = v;
        else if (q->from == '+') all += v;
        else if (q->from == 'u') all = v > all ? v : all;
        else all = (int32_t)v > (int32_t)all ? v : all;
        is_first = false;
    }
    for (int lane = 0; lane < EMU_WARP; lane++)
        if (of(lanes, lane)) of(lanes, lane)->answer = all;
}

uint32_t emu_reduce(uint32_t mask, uint32_t value, char how)
{
    question q = {value, 0, how};

    emu_meet(mask, "a reduction", &q, reduce_all, false);
    return (uint32_t)q.answer;
}

static void match_all(void *const lanes[EMU_WARP])
{
    for (int lane = 0; lane < EMU_WARP; lane++)
        for (int other = 0; of(lanes, lane) && other < EMU_WARP; other++)
            if (of(lanes, other) && of(lanes, other)->value == of(lanes, lane)->value)
                of(lanes, lane)->answer |= 1u << other;
}

uint32_t emu_match(uint32_t mask, uint64_t value)
{
    question q = {value, 0, 0};

    emu_meet(mask, "a match", &q, match_all, false);
    return (uint32_t)q.answer;
}
