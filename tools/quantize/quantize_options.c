/* quantize_options.c - the options of quantize and of plan, and their words. See quantize_job.h. */
#include <string.h>

#include "formats/num/pow2.h"
#include "tools/cli/names.h"
#include "tools/device/device_opt.h"
#include "tools/device/devices.h"
#include "tools/device/ranks.h"
#include "tools/quantize/quantize_job.h"
#include "tools/recipe/group_sizes.h"
#include "tools/recipe/presets.h"

typedef sw_quantize_options quantize_options;

const char *sw_name_of_bits(int i)
{
    static const char *const names[] = {"2", "3", "4", "8", NULL};
    return names[i];
}

const char *sw_name_of_order(int i)
{
    static const char *const names[SW_ORDER_COUNT + 1] = {
        [SW_ORDER_NONE] = "none", [SW_ORDER_STATIC] = "static", [SW_ORDER_GAR] = "gar"};
    return names[i];
}

const char *sw_name_of_sequential(int i)
{
    static const char *const names[SW_SEQUENTIAL_COUNT + 1] = {
        [SW_SEQUENTIAL_SITE] = "site", [SW_SEQUENTIAL_LAYER] = "layer"};
    return names[i];
}

const char *sw_name_of_kv(int i)
{
    static const char *const names[] = {"none", "fp8", "int8", NULL};
    return names[i];
}

#define AT(field) .offset = offsetof(quantize_options, field)

const sw_opt sw_quantize_rows[] = {
#include "tools/quantize/quantize_rows.def"
    SW_DEVICE_ROW(sw_quantize_options, device),
    SW_RANKS_ROW,
    SW_CMD_THREADS_ROW,
    SW_CMD_MODEL_ROW,
    SW_CMD_COMMON_ROWS,
    {0},
};

/* The same rows for `plan`, whose help only names them. */
#undef AT
#define AT(field) .offset = offsetof(quantize_options, field), .listed_by = "quantize"
#define PLAN_AT(field) .offset = offsetof(sw_plan_options, field)

/* Words of quantize's --device, then names of devices that decoding is predicted for. */
static const char *word_of_plan_device(int i)
{
    int n_words = 0;

    while (sw_device_word(n_words)) n_words++;
    return i < n_words ? sw_device_word(i) : sw_name_of_device(i - n_words);
}

const sw_opt sw_plan_rows[] = {
#include "tools/quantize/quantize_rows.def"
    {.name = "tp", .group = SW_OPT_COMMON, .kind = SW_OPT_TEXT, PLAN_AT(tp), .arg = "N,...",
     .help = "tensor-parallel degrees to check (default 1,2,4,8)"},
    {.name = "device", .group = SW_OPT_COMMON, .kind = SW_OPT_TEXT,
     .offset = offsetof(quantize_options, device), .arg = "D", .offers = word_of_plan_device,
     .help = "cuda, cuda:N or cuda:0,1: plan quantize on that device, and what of its memory the "
             "run takes; or a name (h200, h100, a100, l40s): predict its decoding speed (default "
             "h200)"},
    {.name = "device-memory", .group = SW_OPT_COMMON, .kind = SW_OPT_SIZE, PLAN_AT(device_bytes),
     .arg = "BYTES",
     .help = "with --device cuda: plan for a device with so much memory free, which need not be in "
             "this machine (default: what is free)"},
    {.name = "bandwidth", .group = SW_OPT_COMMON, .kind = SW_OPT_REAL, PLAN_AT(bandwidth),
     .arg = "GB/S", .min = 1, .max = 1e6,
     .help = "memory bandwidth of another device, instead of --device; overheads are not counted"},
    {.name = "emit-recipe", .group = SW_OPT_COMMON, .kind = SW_OPT_TEXT, PLAN_AT(emit_recipe),
     .arg = "FILE",
     .help = "write the options to FILE, as a recipe for quantize"},
    {.name = "ranks", .group = SW_OPT_RESOURCES, .kind = SW_OPT_INT,
     .offset = offsetof(sw_cmd_common, ranks), .arg = "N", .min = 1, .max = 4096,
     .help = "processes that will share the run: time and memory are then those of one of them, "
             "with --threads of its own"},
    SW_CMD_THREADS_ROW,
    SW_CMD_MODEL_ROW,
    SW_CMD_COMMON_ROWS,
    {0},
};

const sw_quantize_options sw_quantize_defaults = {SW_QUANTIZE_DEFAULTS};
