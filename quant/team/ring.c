/* ring.c - see ring.h. A count is published after what it counts, and read before. */
#include "quant/team/ring.h"

#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SPINS 64 /* a slot is copied in about 10 us, a sleep costs about as much */

static size_t in_this_slot(const sw_ring_message *m)
{
    const size_t left = m->n_bytes - m->n_moved;

    return left < SW_RING_SLOT_BYTES ? left : SW_RING_SLOT_BYTES;
}

static void advance(sw_ring_message *m, size_t n)
{
    m->n_moved += n;
    m->is_over = m->n_moved == m->n_bytes;
}

bool sw_ring_put(sw_ring *ring, sw_ring_message *message, const uint8_t *data)
{
    const unsigned at = atomic_load_explicit(&ring->n_written, memory_order_relaxed);
    const size_t n = in_this_slot(message);

    if (at - atomic_load_explicit(&ring->n_read, memory_order_acquire) == SW_RING_SLOTS)
        return false;
    ring->message_bytes[at % SW_RING_SLOTS] = message->n_bytes;
    if (n) memcpy(ring->slots[at % SW_RING_SLOTS], data + message->n_moved, n);
    atomic_store_explicit(&ring->n_written, at + 1, memory_order_release);
    advance(message, n);
    return true;
}

bool sw_ring_take(sw_ring *ring, sw_ring_message *message, uint8_t *data, uint64_t *sent_bytes)
{
    const unsigned at = atomic_load_explicit(&ring->n_read, memory_order_relaxed);
    const size_t n = in_this_slot(message);

    if (atomic_load_explicit(&ring->n_written, memory_order_acquire) == at) return false;
    *sent_bytes = ring->message_bytes[at % SW_RING_SLOTS];
    if (*sent_bytes != message->n_bytes) return true;
    if (n) memcpy(data + message->n_moved, ring->slots[at % SW_RING_SLOTS], n);
    atomic_store_explicit(&ring->n_read, at + 1, memory_order_release);
    advance(message, n);
    return true;
}

/* A ring's count is published before n_rung, and is_awaited before the kernel compares n_rung: one
 * of the two sides sees the other. */
void sw_bell_ring(sw_bell *bell)
{
    (void)atomic_fetch_add(&bell->n_rung, 1);
    if (atomic_load(&bell->is_awaited))
        (void)syscall(SYS_futex, &bell->n_rung, FUTEX_WAKE, 1, NULL, NULL, 0);
}

unsigned sw_bell_count(sw_bell *bell) { return atomic_load(&bell->n_rung); }

void sw_bell_wait(sw_bell *bell, unsigned seen, int wait_ms)
{
    const struct timespec limit = {.tv_sec = wait_ms / 1000,
                                   .tv_nsec = (long)(wait_ms % 1000) * 1000000};

    for (int i = 0; i < SPINS; i++)
        if (atomic_load(&bell->n_rung) != seen) return;
    atomic_store(&bell->is_awaited, 1);
    (void)syscall(SYS_futex, &bell->n_rung, FUTEX_WAIT, seen, &limit, NULL, 0);
    atomic_store(&bell->is_awaited, 0);
}
