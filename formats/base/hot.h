/* hot.h - mark a plain C loop that deserves the widest vectors the machine has.
 *
 * SW_HOT compiles a function once per instruction set and lets the loader choose. With
 * -ffp-contract=off every version rounds alike, so the result does not depend on the choice.
 * Sanitizers and portable builds get the plain version only.
 */
#ifndef SW_FORMATS_BASE_HOT_H
#define SW_FORMATS_BASE_HOT_H

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(SW_NO_SIMD) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define SW_HOT __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#else
#define SW_HOT
#endif

#endif
