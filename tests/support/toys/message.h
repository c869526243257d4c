/* message.h - bytes that ranks send each other, for the tests of teams. */
#ifndef SW_TESTS_SUPPORT_TOYS_MESSAGE_H
#define SW_TESTS_SUPPORT_TOYS_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Repeats after 2^37 bytes alone, so that no slot or piece is like another. */
static inline uint8_t message_byte(int from, int message, size_t at)
{
    return (uint8_t)((uint64_t)(at + 1) * 2654435761u >> 29 ^ (uint64_t)(31 * from + message));
}

/* data [n]: message number `message` of rank `from`; and is it still that? */
static inline void message_fill(uint8_t *data, size_t n, int from, int message)
{
    for (size_t i = 0; i < n; i++) data[i] = message_byte(from, message, i);
}

static inline bool message_is_whole(const uint8_t *data, size_t n, int from, int message)
{
    for (size_t i = 0; i < n; i++)
        if (data[i] != message_byte(from, message, i)) return false;
    return true;
}

#endif
