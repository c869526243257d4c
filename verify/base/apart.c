/* apart.c - see apart.h. */
#include "verify/base/apart.h"

#include <stdio.h>
#include <string.h>

#define DIGITS_MAX 17 /* which tell any two doubles apart */

sw_apart sw_apart_digits(double have, double limit, int digits)
{
    sw_apart a;

    do {
        (void)snprintf(a.have, sizeof a.have, "%.*g", digits, have);
        (void)snprintf(a.limit, sizeof a.limit, "%.*g", digits, limit);
    } while (!strcmp(a.have, a.limit) && digits++ < DIGITS_MAX);
    return a;
}

/* Numbers too large, or too close, for so many places are told apart by their digits. */
sw_apart sw_apart_places(double have, double limit, int places)
{
    sw_apart a;
    int n;

    do {
        n = snprintf(a.have, sizeof a.have, "%.*f", places, have);
        if (n >= (int)sizeof a.have) break;
        n = snprintf(a.limit, sizeof a.limit, "%.*f", places, limit);
        if (n >= (int)sizeof a.limit) break;
    } while (!strcmp(a.have, a.limit) && places++ < DIGITS_MAX);
    if (n < (int)sizeof a.have && strcmp(a.have, a.limit) != 0) return a;
    return sw_apart_digits(have, limit, 6);
}
