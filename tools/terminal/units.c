/* units.c - see units.h.
 *
 * Three digits at least: 99.4 MB but 100 MB, and 999.5 kB is 1.0 MB already.
 */
#include "tools/terminal/units.h"

#include <math.h>
#include <stdio.h>

void sw_term_bytes(char out[16], double n_bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    size_t unit = 0;

    while (n_bytes >= 999.5 && unit + 1 < sizeof units / sizeof units[0]) {
        n_bytes /= 1000;
        unit++;
    }
    (void)snprintf(out, 16, n_bytes < 99.5 && unit ? "%.1f %s" : "%.0f %s", n_bytes, units[unit]);
}

void sw_term_seconds(char out[24], double seconds)
{
    const double minutes = ceil(seconds / 60);

    if (seconds < 90)
        (void)snprintf(out, 24, "%.0f s", ceil(seconds));
    else if (minutes < 120)
        (void)snprintf(out, 24, "%.0f min", minutes);
    else
        (void)snprintf(out, 24, "%.0f h %.0f min", floor(minutes / 60), fmod(minutes, 60));
}
