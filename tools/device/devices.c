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
