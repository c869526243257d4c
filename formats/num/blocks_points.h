/* blocks_points.h - the lattice points of the IQ1, IQ2 and IQ3 types, packed. For blocks_grid.c.
 *
 * A point of eight elements with three levels is the number sum(digit_i 3^i), i = 0..7; one of four
 * elements with eight levels is sum(digit_i 8^i), i = 0..3. Digits count levels from the lowest.
 */
#ifndef SW_FORMATS_NUM_BLOCKS_POINTS_H
#define SW_FORMATS_NUM_BLOCKS_POINTS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Eight elements, three levels. IQ1_M has the points of IQ1_S. */
extern const uint16_t sw_iq2_xxs_points[256];
extern const uint16_t sw_iq2_xs_points[512];
extern const uint16_t sw_iq2_s_points[1024];
extern const uint16_t sw_iq1_s_points[2048];
/* Four elements, eight levels. */
extern const uint16_t sw_iq3_xxs_points[256];
extern const uint16_t sw_iq3_s_points[512];

#ifdef __cplusplus
}
#endif
#endif
