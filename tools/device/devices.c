/* devices.c - see devices.h and devices.def. */
#include "tools/device/devices.h"

#include <stddef.h>
#include <string.h>

const sw_device_figures sw_device_figures_table[] = {
#define SW_DEVICE(name, nominal, us16, rate16, us4, rate4) \
    {name, nominal, {us16, rate16}, {us4, rate4}},
#include "tools/device/devices.def"
#undef SW_DEVICE
    {0},
};

const char *sw_name_of_device(int i) { return sw_device_figures_table[i].name; }

const sw_device_figures *sw_device_figures_find(const char *name)
{
    for (const sw_device_figures *d = sw_device_figures_table; d->name; d++)
        if (!strcmp(d->name, name)) return d;
    return NULL;
}

double sw_device_product_s(const sw_device_cost *cost, double nominal_gb_s, double bytes)
{
    return cost && cost->gb_s > 0 ? 1e-6 * cost->us + bytes / (1e9 * cost->gb_s)
                                  : bytes / (1e9 * nominal_gb_s);
}
