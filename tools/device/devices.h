/* devices.h - devices that decoding speed is predicted for. */
#ifndef SW_TOOLS_DEVICE_DEVICES_H
#define SW_TOOLS_DEVICE_DEVICES_H

typedef struct sw_device_cost {
    double us, gb_s; /* per product, and for its bytes; gb_s 0: not measured */
} sw_device_cost;

typedef struct sw_device_figures {
    const char *name;
    double nominal_gb_s;
    sw_device_cost dense16, int4;
} sw_device_figures;

extern const sw_device_figures sw_device_figures_table[]; /* ends with a NULL name */
const char *sw_name_of_device(int i);
const sw_device_figures *sw_device_figures_find(const char *name); /* NULL when unknown */

#endif
