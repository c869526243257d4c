/* roof.h - what a machine can do at best, measured: reading memory, and multiplying. */
#ifndef SW_VERIFY_SPEED_ROOF_H
#define SW_VERIFY_SPEED_ROOF_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

/* "Intel(R) Xeon(R) ...", or "unknown". */
void sw_roof_cpu_name(char *out, size_t out_bytes);
/* Size of the last-level cache as Linux knows it, or a guess; sysconf is wrong on some virtual
 * machines. */
int64_t sw_roof_cache_bytes(void);

/* Read size_bytes (8-byte aligned) once with all threads. `sums` has sw_roof_read_sums words.
 * What comes back depends on every word, so that no read is optimized away. */
uint64_t sw_roof_read(const void *bytes, int64_t size_bytes, int n_threads, uint64_t *sums);
int64_t sw_roof_read_sums(int64_t size_bytes);
/* *gb_s: the median rate of reading a buffer of twice the last-level cache. */
sw_code sw_roof_memory(double *gb_s, int n_threads, sw_err *err) SW_MUST_USE;
/* *gflop_s: the median rate of OpenBLAS's sgemm at 1536 x 1536 x 1536, of at most 9 rounds after
 * one that is thrown away. Afterwards OpenBLAS has one thread. */
sw_code sw_roof_sgemm(double *gflop_s, int n_threads, int rounds, sw_err *err) SW_MUST_USE;

#endif
