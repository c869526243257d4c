/* ring.h - bytes from one process to another through memory that both have mapped.
 *
 * One ring per ordered pair of ranks: SW_RING_SLOTS slots that the sender fills and the receiver
 * empties, each in order, so that neither needs a lock. A message is cut into slots; the first one
 * of a message tells its size. Nothing here waits: who finds a ring full or empty waits at his
 * bell, which the other side rings after every slot.
 */
#ifndef SW_QUANT_TEAM_RING_H
#define SW_QUANT_TEAM_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SW_RING_SLOTS 8 /* a power of two: the counts below run over */
#define SW_RING_SLOT_BYTES ((size_t)128 << 10) /* a ring stays in the second-level cache */

typedef struct sw_ring {
    _Alignas(64) atomic_uint n_written; /* slots, since the beginning */
    _Alignas(64) atomic_uint n_read;
    _Alignas(64) uint64_t message_bytes[SW_RING_SLOTS]; /* of the message that a slot belongs to */
    _Alignas(64) uint8_t slots[SW_RING_SLOTS][SW_RING_SLOT_BYTES];
} sw_ring;

typedef struct sw_bell {
    _Alignas(64) atomic_uint n_rung;
    atomic_uint is_awaited;
} sw_bell;

/* One message on its way; begins with n_moved 0, and is over when is_over. */
typedef struct sw_ring_message {
    size_t n_bytes, n_moved;
    bool is_over;
} sw_ring_message;

/* The next slot of a message from `data`. false: the ring is full. */
bool sw_ring_put(sw_ring *ring, sw_ring_message *message, const uint8_t *data);
/* The next slot into `data`; false: the ring is empty. *sent_bytes: what the sender says the
 * message has. Where that is not n_bytes, nothing is taken. */
bool sw_ring_take(sw_ring *ring, sw_ring_message *message, uint8_t *data, uint64_t *sent_bytes);

void sw_bell_ring(sw_bell *bell);
/* Read before looking at rings. */
unsigned sw_bell_count(sw_bell *bell);
/* Until it rings once more than `seen` times, or for wait_ms. */
void sw_bell_wait(sw_bell *bell, unsigned seen, int wait_ms);

#endif
