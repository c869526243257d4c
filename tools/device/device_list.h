/* device_list.h - which devices of a host a run takes: `cuda` all that are like the first,
 * `cuda:0,2` those, any other word none of its own.
 *
 * sw_device_list_choose is a function of the word and of what is there, so that it can be tested
 * without a device.
 */
#ifndef SW_TOOLS_DEVICE_DEVICE_LIST_H
#define SW_TOOLS_DEVICE_DEVICE_LIST_H

#include "kernels/device.h"

#define SW_DEVICES_MAX 64           /* of one run on one host; what lies beyond is not looked at */
#define SW_DEVICES_LEFT_BYTES 512

typedef struct sw_device_list {
    int items[SW_DEVICES_MAX]; /* N of cuda:N, in the order in which ranks take them */
    int n;
    bool is_all;               /* the word was `cuda`, whatever there is */
    char left[SW_DEVICES_LEFT_BYTES]; /* a note on devices that are left out and why, or "" */
} sw_device_list;

/* The numbers of a word such as cuda:0,2; none of any other word (cuda:1 is left to who opens it),
 * or of NULL. SW_E_USAGE: what is no number, one too many, a device that is named twice. */
sw_code sw_device_list_parse(sw_device_list *out, const char *word, sw_err *err) SW_MUST_USE;
/* *list, as parsed, is held against the n_there devices of this host, cuda:0 first. is_all: filled
 * with those of the name, compute capability and memory of the first (to a twentieth: drivers keep
 * some of it). SW_E_CUDA: a number beyond. Without any device it stays as it is. */
sw_code sw_device_list_choose(sw_device_list *list, const char *word, const sw_device_info *there,
                              int n_there, sw_err *err) SW_MUST_USE;

/* Whether models of so many bytes, which have no room on every device of the list, have room on all
 * of them together: then one process spreads them, where otherwise each device would have a process
 * of its own. cap_bytes: of each device at most, 0: all it has. n_bytes 0 (not known): no. */
bool sw_device_list_spreads(const sw_device_list *list, const sw_device_info *there, int n_there,
                            int64_t cap_bytes, int64_t n_bytes);

/* Fills `there` [SW_DEVICES_MAX] and returns how many there are. */
int sw_devices_look(sw_device_info *there);
/* The same by a process that ends with it: who forks afterwards may not have met the driver before.
 * 0 also when that process fails. */
int sw_devices_look_apart(sw_device_info *there);

#endif
