/* key_digits.h - the order of keys by their scores, and how the largest are found digit by digit.
 *
 * Scores become integers that are ordered as they are, their ranks. The smallest rank that is
 * chosen, the bound, is found from its highest digit on: of the ranks that agree with it so far,
 * the largest digit is taken that as many reach as are still wanted. Then all ranks above the bound
 * are chosen and, in the order of the keys, as many that are equal to it as are wanted still. So a
 * walk over the keys may go in pieces of any size, and needs no room but a count for each digit.
 *
 * Radix select as in Alabi, Blanchard, Gordon and Steinbach, Fast k-selection algorithms for
 * graphics processing units (2012), section 4. Pure functions that both engines use; read by
 * compilers of C and of CUDA.
 */
#ifndef SW_KERNELS_ENGINE_SPARSE_KEY_DIGITS_H
#define SW_KERNELS_ENGINE_SPARSE_KEY_DIGITS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define SW_KEY_FN static inline __host__ __device__
#else
#define SW_KEY_FN static inline
#endif

#define SW_KEY_DIGIT_BITS 8
#define SW_KEY_DIGITS 256    /* that there are */
#define SW_KEY_FIRST_SHIFT 24 /* of the highest digit; then 16, 8, 0 */

/* What a head adds to a key's score. What is no number stays none. */
SW_KEY_FN float sw_key_share(float weight, float product)
{
    return weight * (product < 0.0f ? 0.0f : product);
}

/* The sign's bit is turned, and of negative numbers all others too. Adding zero makes both zeros
 * one; what is no number has a place like any other. */
SW_KEY_FN uint32_t sw_key_rank(float score)
{
    const float sum = score + 0.0f;
    uint32_t bits;

    memcpy(&bits, &sum, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* What is known of the choice among the keys of a query. */
typedef struct sw_key_bound {
    uint32_t rank;   /* its digits that are known, the others 0 */
    uint32_t wanted; /* keys still to be chosen among those that agree with them; 1 at least */
} sw_key_bound;

SW_KEY_FN uint32_t sw_key_digit(uint32_t rank, int shift)
{
    return rank >> shift & (SW_KEY_DIGITS - 1);
}

/* Whether all digits above the one at `shift` are those of the bound. */
SW_KEY_FN bool sw_key_agrees(uint32_t rank, sw_key_bound bound, int shift)
{
    return shift == SW_KEY_FIRST_SHIFT || (rank ^ bound.rank) >> (shift + SW_KEY_DIGIT_BITS) == 0;
}

/* Whether a digit is the bound's: so many ranks that agree have it or a larger one (n_reach), so
 * many a larger one (n_above). True of one digit. */
SW_KEY_FN bool sw_key_is_digit(sw_key_bound bound, uint32_t n_reach, uint32_t n_above)
{
    return n_above < bound.wanted && bound.wanted <= n_reach;
}

SW_KEY_FN sw_key_bound sw_key_take_digit(sw_key_bound bound, uint32_t digit, int shift,
                                         uint32_t n_above)
{
    bound.rank |= digit << shift;
    bound.wanted -= n_above;
    return bound;
}

/* With all digits known: whether a key is chosen, of keys before it n_equal having the bound's own
 * rank. */
SW_KEY_FN bool sw_key_is_in(sw_key_bound bound, uint32_t rank, uint32_t n_equal)
{
    return rank > bound.rank || (rank == bound.rank && n_equal < bound.wanted);
}

/* How many keys before it are, of which n_above have a larger rank than the bound's. */
SW_KEY_FN uint32_t sw_key_place(sw_key_bound bound, uint32_t n_above, uint32_t n_equal)
{
    return n_above + (n_equal < bound.wanted ? n_equal : bound.wanted);
}

#endif
