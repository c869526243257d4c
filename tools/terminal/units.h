/* units.h - quantities as text for people. Every size that the program shows is written here.
 *
 * Shown sizes are decimal: 1 kB is 1000 bytes, as on a disk's label and on the pages of the Hub.
 * Sizes that are given say what they mean: K, M, G, T and KiB, MiB, GiB, TiB are powers of 1024,
 * kB, MB, GB, TB powers of 1000 (sw_opt_size).
 */
#ifndef SW_TOOLS_TERMINAL_UNITS_H
#define SW_TOOLS_TERMINAL_UNITS_H

/* For the help of the program. */
#define SW_UNITS_HELP                                                                              \
    "Sizes are shown in powers of 1000 (kB, MB, GB). Where you give one, K, M, G, T and KiB,\n"   \
    "MiB, GiB, TiB are powers of 1024, and kB, MB, GB, TB powers of 1000.\n"

/* "1.5 GB"; always terminated. */
void sw_term_bytes(char out[16], double n_bytes);
/* "45 s", "3 min", "2 h 10 min", rounded up; always terminated. */
void sw_term_seconds(char out[24], double seconds);

#endif
