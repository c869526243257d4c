/* like_devices.h - which CUDA devices of this host share a run that asks for all of them. */
#ifndef SW_TOOLS_DEVICE_LIKE_DEVICES_H
#define SW_TOOLS_DEVICE_LIKE_DEVICES_H

#include "kernels/device.h"

/* out [n] = the positions of those that are like the first: of its name, compute capability and
 * memory. Returns how many; 0 of none. Work is cut evenly, so one that is slower would be waited
 * for, and one with less memory would refuse its part. */
int sw_like_devices(int *out, const sw_device_info *infos, int n);

/* The same of this host's devices, out [at most n_max]; *n_other: how many are unlike the first. A
 * process of its own looks, since one that has spoken to the driver cannot start ranks any more.
 * Returns 0 where there is no device, or it cannot be asked. */
int sw_like_devices_here(int *out, int n_max, int *n_other);

#endif
