/* copy.c - asynchronous copies of threads (cp.async): see emulate.h.
 *
 * A copy is made when its thread waits for it, as late as it may be: who reads too early finds
 * memory that nobody wrote.
 */
#include <string.h>

#include "tests/emulate/emulate.h"

#define COPIES_MAX 512 /* of a thread, under way */

typedef struct copy {
    unsigned char *to;
    const unsigned char *from;
    uint32_t group;
    int n_bytes, n_there;
} copy;

typedef struct queue {
    copy copies[COPIES_MAX];
    int n;
    uint32_t group; /* that is not committed */
} queue;

static queue queues[EMU_BLOCKS_MAX][EMU_THREADS_MAX];

static queue *mine(void) { return &queues[emu_block][emu_id]; }

void emu_copy(void *to, const void *from, int n_bytes, int n_there)
{
    queue *q = mine();

    if ((uintptr_t)to % (unsigned)n_bytes || (n_there && (uintptr_t)from % (unsigned)n_bytes))
        emu_fault("a copy of %d bytes from or to an address that is no multiple of it", n_bytes);
    if (q->n == COPIES_MAX) emu_fault("more than %d copies under way", COPIES_MAX);
    q->copies[q->n++] = (copy){to, from, q->group, n_bytes, n_there};
}

void emu_copy_commit(void) { mine()->group++; }

static void make_copy(const copy *c)
{
    if (c->n_there) emu_read(c->from, (size_t)c->n_there);
    emu_write(c->to, (size_t)c->n_bytes);
    if (c->n_there) memcpy(c->to, c->from, (size_t)c->n_there);
    memset(c->to + c->n_there, 0, (size_t)(c->n_bytes - c->n_there));
}

void emu_copy_wait(int n_left)
{
    queue *q = mine();
    int n = 0;

    for (int i = 0; i < q->n; i++) {
        const copy *c = &q->copies[i];

        if ((int32_t)(q->group - c->group) > n_left) make_copy(c);
        else q->copies[n++] = *c;
    }
    q->n = n;
}

void emu_copy_forget(int n_blocks)
{
    for (int i = 0; i < n_blocks; i++)
        for (int id = 0; id < EMU_THREADS_MAX; id++) queues[i][id].n = 0;
}
