/* devices.c - see devices.h and devices.def. */
#include "tools/devices.h"

#include <stddef.h>
#include <string.h>

const sw_device sw_devices[] = {
#define SW_DEVICE(name, nominal, us16, rate16, us4, rate4) \
    {name, nominal, {us16, rate16}, {us4, rate4}},
#include "tools/devices.def"
#undef SW_DEVICE
    {0},
};

const char *sw_name_of_device(int i) { return sw_devices[i].name; }

const sw_device *sw_device_find(const char *name)
{
    for (const sw_device *d = sw_devices; d->name; d++)
        if (!strcmp(d->name, name)) return d;
    return NULL;
}
