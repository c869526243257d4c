/* apart.h - a figure beside its limit, with as many digits as tell the two apart.
 *
 * "0.05, want at most 0.05" says nothing. Both figures of a message get the same digits, those that
 * its writer asks for and more where they would look alike.
 */
#ifndef SW_VERIFY_BASE_APART_H
#define SW_VERIFY_BASE_APART_H

#define SW_APART_BYTES 32

typedef struct sw_apart {
    char have[SW_APART_BYTES], limit[SW_APART_BYTES];
} sw_apart;

/* Significant digits, at least `digits`, as %g prints them. Equal numbers stay alike. */
sw_apart sw_apart_digits(double have, double limit, int digits);
/* Digits behind the point, at least `places`, as %f prints them. */
sw_apart sw_apart_places(double have, double limit, int places);

#endif
