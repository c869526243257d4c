/* device_opt.h - the --device option: where a command computes. */
#ifndef SW_TOOLS_DEVICE_DEVICE_OPT_H
#define SW_TOOLS_DEVICE_DEVICE_OPT_H

#include "formats/base/progress.h"
#include "kernels/engine/spread/device_spread.h"
#include "quant/backend.h"
#include "tools/cli/opt.h"
#include "tools/device/device_list.h"

/* What the option takes, but for cuda:N: cpu, cuda, auto; NULL beyond the end. */
const char *sw_device_word(int i);

/* A row for a `const char *` field; NULL or "cpu" is the CPU. */
#define SW_DEVICE_ROW(type, field)                                                                 \
    {.name = "device", .group = SW_OPT_RESOURCES, .kind = SW_OPT_TEXT,                             \
     .offset = offsetof(type, field), .arg = "D", .offers = sw_device_word,                        \
     .help = "cpu (default), cuda: the first CUDA device and, where processes can share the "      \
             "work or a model's layers be spread, all that are like it, cuda:N, some as "          \
             "cuda:0,2, or auto: the first CUDA device if there is one, else cpu"}

/* And one for a `uint64_t` field, where a model may stream from host memory. */
#define SW_DEVICE_MEMORY_ROW(type, field)                                                          \
    {.name = "device-memory", .group = SW_OPT_RESOURCES, .kind = SW_OPT_SIZE,                      \
     .offset = offsetof(type, field), .arg = "BYTES",                                              \
     .help = "memory of each device to use at most (default: what is free); blocks of a model "    \
             "that do not fit stay in host memory and are copied in turn"}

/* *index = N of cuda:N, 0 of cuda and of auto where there is a device; -1: the CPU. SW_E_USAGE: no
 * such word. */
sw_code sw_device_option_index(int64_t *index, const char *word, sw_err *err) SW_MUST_USE;

/* *out = an opened device whose memory is used up to cap_bytes (0: what is free), or NULL for the
 * CPU. SW_E_USAGE: no such word; SW_E_CUDA (exit code 7): the device cannot be used, and why. */
sw_code sw_device_option_open(sw_device **out, const char *word, uint64_t cap_bytes,
                              sw_err *err) SW_MUST_USE;

/* The same with all of a list (NULL: none) behind that device, for models that have no room on it;
 * `devices` are of sw_run, `spreads_all` is --spread-layers. set->n 0: the CPU. A list that was
 * named has to do: what it has no room for does not stream on its first. */
sw_code sw_device_option_open_set(sw_device_set *set, const char *word, uint64_t cap_bytes,
                                  const sw_device_list *devices, bool spreads_all,
                                  sw_err *err) SW_MUST_USE;

/* The options' backend, opened on the device; progress says which device it is. Without one *gpu
 * stays NULL and the options the CPU's. */
sw_code sw_device_option_open_backend(sw_device **gpu, sw_quant_options *options, const char *word,
                                      const sw_progress *progress, sw_err *err) SW_MUST_USE;
/* Closes what that opened, also after a failure; both may be without a device. */
void sw_device_option_close_backend(sw_device *gpu, sw_quant_options *options);

#endif
