/* clocks.c - what each thread has seen of each other: see emulate.h.
 *
 * A vector of times for each thread of the resident blocks, with an entry for each thread of its
 * cluster and for each mbarrier there, whose entry stands for what the copy engine brings. Who
 * releases gives its vector away with its own time; who acquires takes the later of both. So order
 * goes on from thread to thread, whichever way they met.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/emulate/emulate.h"

static uint32_t *times; /* [who][entries], where who counts over all resident blocks */
static uint32_t n_of_block, n_entries, cluster_blocks;

void emu_clock_begin(int n_blocks, int cluster, int n_threads)
{
    free(times);
    times = NULL;
    if (n_blocks == 0) return;
    cluster_blocks = (uint32_t)cluster;
    n_of_block = (uint32_t)n_threads + EMU_MBARRIERS_MAX;
    n_entries = n_of_block * cluster_blocks;
    times = calloc((size_t)n_blocks * n_of_block * n_entries, sizeof *times);
    if (!times) emu_fault("no memory for clocks");
}

bool emu_has_clocks(void) { return times != NULL; }

static uint32_t index_of(int block_no, int id)
{
    return (uint32_t)block_no * n_of_block + (uint32_t)id;
}

uint32_t emu_clock_me(void) { return index_of(emu_block, emu_id); }

uint32_t emu_clock_mbarrier(int block_no, int slot)
{
    return index_of(block_no, (int)n_of_block - EMU_MBARRIERS_MAX + slot);
}

bool emu_clock_is_engine(uint32_t who)
{
    return who % n_of_block >= n_of_block - EMU_MBARRIERS_MAX;
}

void emu_clock_name(uint32_t who, char text[64])
{
    const uint32_t id = who % n_of_block, rank = who / n_of_block % cluster_blocks;

    if (emu_clock_is_engine(who))
        snprintf(text, 64, "the copy engine, for mbarrier %u of rank %u,",
                 id - (n_of_block - EMU_MBARRIERS_MAX), rank);
    else snprintf(text, 64, "thread %u of rank %u", id, rank);
}

static uint32_t *row(uint32_t who) { return times + (size_t)who * n_entries; }

bool emu_clock_has(uint32_t who, uint32_t time)
{
    const uint32_t me = emu_clock_me();

    return who == me || row(me)[who % n_entries] > time;
}

static void take_later(uint32_t *to, const uint32_t *from)
{
    for (uint32_t i = 0; i < n_entries; i++) to[i] = from[i] > to[i] ? from[i] : to[i];
}

void emu_clock_merge(uint32_t **into, const uint32_t *from)
{
    if (!times || !from) return;
    if (!*into) *into = calloc(n_entries, sizeof **into);
    if (!*into) emu_fault("no memory for clocks");
    take_later(*into, from);
}

static void release_of(uint32_t **into, uint32_t who)
{
    row(who)[who % n_entries] = ++emu_now;
    emu_clock_merge(into, row(who));
}

void emu_clock_release(uint32_t **into)
{
    if (times) release_of(into, emu_clock_me());
}

uint32_t emu_clock_released(void) { return row(emu_clock_me())[emu_clock_me() % n_entries]; }

void emu_clock_acquire(int id, const uint32_t *from)
{
    if (times && from) take_later(row(index_of(emu_block, id)), from);
}

void emu_clock_note(uint32_t **into, uint32_t who)
{
    if (!times) return;
    if (!*into) *into = calloc(n_entries, sizeof **into);
    if (!*into) emu_fault("no memory for clocks");
    (*into)[who % n_entries] = ++emu_now;
}

void emu_clock_meet(int first_block, int n_blocks)
{
    const uint32_t n_threads = n_of_block - EMU_MBARRIERS_MAX;
    uint32_t *all = NULL;

    if (!times) return;
    for (uint32_t i = 0; i < (uint32_t)n_blocks * n_threads; i++)
        release_of(&all, index_of(first_block + (int)(i / n_threads), (int)(i % n_threads)));
    for (uint32_t i = 0; i < (uint32_t)n_blocks * n_threads; i++)
        take_later(row(index_of(first_block + (int)(i / n_threads), (int)(i % n_threads))), all);
    free(all);
}

void emu_clock_meet_lanes(int warp, uint32_t mask)
{
    uint32_t *all = NULL;

    for (int lane = 0; times && lane < EMU_WARP; lane++)
        if (mask >> lane & 1) release_of(&all, index_of(emu_block, warp * EMU_WARP + lane));
    for (int lane = 0; times && lane < EMU_WARP; lane++)
        if (mask >> lane & 1) take_later(row(index_of(emu_block, warp * EMU_WARP + lane)), all);
    free(all);
}
