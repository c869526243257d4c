/* mbarrier.c - barriers in shared memory that count arrivals and bytes of copies: see emulate.h.
 *
 * What counts is kept beside, by the address; the eight bytes in shared memory are written once,
 * by the init, so that who comes before it is seen is found. Source: PTX ISA, mbarrier.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/emulate/emulate.h"
#include "tests/emulate/hopper.h"

typedef struct emu_mbarrier {
    uint32_t at; /* in its block */
    int block, slot;
    uint32_t n_awaited, n_missing, phase;
    int64_t n_bytes; /* that are announced and did not come */
    uint32_t *arrived, *completed; /* clocks of who arrived, and did before the latest end */
    bool is_known; /* in all blocks of the cluster */
} emu_mbarrier;

static emu_mbarrier all[EMU_BLOCKS_MAX][EMU_MBARRIERS_MAX];
static int n_of[EMU_BLOCKS_MAX];

void emu_mbarriers_begin(void)
{
    for (int i = 0; i < n_of[emu_block]; i++) {
        free(all[emu_block][i].arrived);
        free(all[emu_block][i].completed);
    }
    n_of[emu_block] = 0;
}

void emu_mbarriers_known(int first_block, int n_blocks)
{
    for (int i = first_block; i < first_block + n_blocks; i++)
        for (int j = 0; j < n_of[i]; j++) all[i][j].is_known = true;
}

static emu_mbarrier *find(int block, uint32_t at)
{
    for (int i = 0; i < n_of[block]; i++)
        if (all[block][i].at == at) return &all[block][i];
    return NULL;
}

static int block_of(uint32_t address)
{
    return address >> 24 ? emu_block_of_rank((address >> 24) - 1) : emu_block;
}

emu_mbarrier *emu_mbarrier_at(uint32_t address)
{
    emu_mbarrier *b = find(block_of(address), address & 0xffffff);

    if (!b) emu_fault("no mbarrier has been made at %08x", address);
    if (!b->is_known) emu_shared_peek(emu_shared_pointer(address), 8);
    return b;
}

uint32_t emu_mbarrier_clock(const emu_mbarrier *b) { return emu_clock_mbarrier(b->block, b->slot); }

/* Whether all arrived and all bytes came, with which the next phase begins. */
static void complete(emu_mbarrier *b)
{
    if (b->n_missing || b->n_bytes) return;
    b->phase++;
    b->n_missing = b->n_awaited;
    emu_clock_note(&b->arrived, emu_mbarrier_clock(b));
    emu_clock_merge(&b->completed, b->arrived);
    emu_wake(b);
}

void emu_mbarrier_brought(emu_mbarrier *b, uint32_t n_bytes)
{
    b->n_bytes -= n_bytes;
    complete(b);
}

static void arrive(emu_mbarrier *b)
{
    if (b->n_missing == 0)
        emu_fault("one more arrives at the mbarrier at %u than the %u that it awaits", b->at,
                  b->n_awaited);
    b->n_missing--;
    emu_clock_release(&b->arrived);
    complete(b);
}

/* ---- instructions ---- */

void emu_mbarrier_init(const emu_operand *op)
{
    const uint32_t at = (uint32_t)op[0].in, n = (uint32_t)op[1].in;
    emu_mbarrier *b = find(emu_block, at);

    if (at % 8 || n == 0 || n >= 1u << 20) emu_fault("an mbarrier at %u of %u arrivals", at, n);
    if (!b) {
        if (n_of[emu_block] == EMU_MBARRIERS_MAX) emu_fault("too many mbarriers");
        b = &all[emu_block][n_of[emu_block]];
        *b = (emu_mbarrier){.at = at, .block = emu_block, .slot = n_of[emu_block]++};
    }
    b->n_awaited = b->n_missing = n;
    b->phase = 0;
    b->n_bytes = 0;
    b->is_known = false;
    emu_write(emu_shared_pointer(at), 8);
    memset(emu_shared_pointer(at), 0, 8);
}

void emu_mbarrier_arrive(const emu_operand *op) { arrive(emu_mbarrier_at((uint32_t)op[0].in)); }

void emu_mbarrier_expect(const emu_operand *op)
{
    emu_mbarrier *b;

    if (!emu_is_lane_elected()) return;
    b = emu_mbarrier_at((uint32_t)op[0].in);
    b->n_bytes += (uint32_t)op[1].in;
    arrive(b);
}

/* Of this thread's copies, which are made as it arrives. */
void emu_mbarrier_arrive_copied(const emu_operand *op)
{
    emu_copy_commit();
    emu_copy_wait(0);
    arrive(emu_mbarrier_at((uint32_t)op[0].in));
}

void emu_mbarrier_wait(const emu_operand *op)
{
    emu_mbarrier *b = emu_mbarrier_at((uint32_t)op[0].in);
    const uint32_t parity = (uint32_t)op[1].in;

    if (parity > 1) emu_fault("a parity of %u", parity);
    while ((b->phase & 1) == parity) emu_wait_mbarrier(b, "an mbarrier");
    emu_clock_acquire(emu_id, b->completed);
}
