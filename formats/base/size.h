/* size.h - size arithmetic that cannot wrap, and little-endian loads and stores.
 *
 * Sizes come from files, so every product and sum is checked. Depends on nothing.
 */
#ifndef SW_FORMATS_BASE_SIZE_H
#define SW_FORMATS_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* *out = a * b resp. a + b; false (and *out untouched) when that does not fit. */
static inline bool sw_mul_u64(uint64_t *out, uint64_t a, uint64_t b)
{
    uint64_t product;
    if (__builtin_mul_overflow(a, b, &product)) return false;
    *out = product;
    return true;
}

static inline bool sw_add_u64(uint64_t *out, uint64_t a, uint64_t b)
{
    uint64_t sum;
    if (__builtin_add_overflow(a, b, &sum)) return false;
    *out = sum;
    return true;
}

static inline int64_t sw_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t sw_round_up(int64_t a, int64_t b) { return sw_ceil_div(a, b) * b; }
static inline int64_t sw_min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline uint64_t sw_min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline int64_t sw_max_i64(int64_t a, int64_t b) { return a > b ? a : b; }

/* Byte order is fixed here and nowhere else; the compilers turn these into plain moves. */
static inline uint16_t sw_load_le16(const void *p)
{
    const unsigned char *b = (const unsigned char *)p;
    return (uint16_t)(b[0] | (b[1] << 8));
}

static inline uint32_t sw_load_le32(const void *p)
{
    const unsigned char *b = (const unsigned char *)p;
    return (uint32_t)b[0] | ((uint32_t)b[1] << 8) | ((uint32_t)b[2] << 16) | ((uint32_t)b[3] << 24);
}

static inline uint64_t sw_load_le64(const void *p)
{
    const unsigned char *b = (const unsigned char *)p;
    return (uint64_t)sw_load_le32(b) | ((uint64_t)sw_load_le32(b + 4) << 32);
}

static inline void sw_store_le16(void *p, uint16_t v)
{
    unsigned char *b = (unsigned char *)p;
    b[0] = (unsigned char)v;
    b[1] = (unsigned char)(v >> 8);
}

static inline void sw_store_le32(void *p, uint32_t v)
{
    sw_store_le16(p, (uint16_t)v);
    sw_store_le16((unsigned char *)p + 2, (uint16_t)(v >> 16));
}

static inline void sw_store_le64(void *p, uint64_t v)
{
    sw_store_le32(p, (uint32_t)v);
    sw_store_le32((unsigned char *)p + 4, (uint32_t)(v >> 32));
}

#ifdef __cplusplus
}
#endif
#endif
