/* device_list.c - see device_list.h. */
#include "tools/device/device_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/opt.h"

#define CUDA "cuda"
#define INDEX_MAX 1023
#define MEMORY_SHARE 20 /* alike: memory differs by less than such a part */
#define WORK_SHARE 10   /* of a device is for more than weights: rows, workspaces, the driver */

static sw_code add(sw_device_list *list, int64_t index, const char *word, sw_err *err)
{
    for (int i = 0; i < list->n; i++)
        if (list->items[i] == index)
            return SW_FAIL(err, SW_E_USAGE, "--device %s: cuda:%d is named twice", word,
                           (int)index);
    list->items[list->n++] = (int)index;
    return SW_OK;
}

sw_code sw_device_list_parse(sw_device_list *out, const char *word, sw_err *err)
{
    char number[8];
    int64_t index = 0;
    sw_code rc = SW_OK;

    *out = (sw_device_list){.is_all = word && !strcmp(word, CUDA)};
    if (!word || strncmp(word, CUDA ":", strlen(CUDA ":")) != 0 || !strchr(word, ',')) return SW_OK;
    for (const char *at = word + strlen(CUDA ":"); at && rc == SW_OK;) {
        const char *comma = strchr(at, ',');
        const size_t n = comma ? (size_t)(comma - at) : strlen(at);

        if (out->n == SW_DEVICES_MAX || n >= sizeof number)
            return SW_FAIL(err, SW_E_USAGE, "--device %s: a list of at most %d devices, such as "
                           "cuda:0,1", word, SW_DEVICES_MAX);
        memcpy(number, at, n);
        number[n] = '\0';
        rc = sw_opt_int(&index, number, 0, INDEX_MAX, "--device cuda:N,...", err);
        if (rc == SW_OK) rc = add(out, index, word, err);
        at = comma ? comma + 1 : NULL;
    }
    return rc;
}

/* --- what is there --- */

static const char *difference(const sw_device_info *a, const sw_device_info *b)
{
    if (strcmp(a->name, b->name) != 0) return "name";
    if (a->arch != b->arch) return "compute capability";
    return llabs(a->total_bytes - b->total_bytes) > a->total_bytes / MEMORY_SHARE ? "memory" : NULL;
}

/* Grows the note; a device that does not fit it is left out all the same. */
static void leave(sw_device_list *list, const sw_device_info *first, const sw_device_info *info,
                  const char *why)
{
    const size_t used = strlen(list->left);
    char about[160];

    (void)snprintf(about, sizeof about, "cuda:%d (%.60s, %lld MB: another %s than cuda:%d)",
                   info->index, info->name, (long long)(info->total_bytes >> 20), why,
                   first->index);
    if (used + strlen(about) + 3 > sizeof list->left) return;
    (void)snprintf(list->left + used, sizeof list->left - used, "%s%s", used ? ", " : "", about);
}

static void take_alike(sw_device_list *list, const sw_device_info *there, int n_there)
{
    list->n = 0;
    list->left[0] = '\0';
    for (int i = 0; i < n_there && list->n < SW_DEVICES_MAX; i++) {
        const char *why = difference(&there[0], &there[i]);

        if (why)
            leave(list, &there[0], &there[i], why);
        else
            list->items[list->n++] = there[i].index;
    }
}

sw_code sw_device_list_choose(sw_device_list *list, const char *word, const sw_device_info *there,
                              int n_there, sw_err *err)
{
    if (n_there < 1) return SW_OK;
    if (list->is_all) take_alike(list, there, n_there);
    for (int i = 0; i < list->n; i++)
        if (list->items[i] >= n_there)
            return SW_FAIL(err, SW_E_CUDA, "--device %s: there is no cuda:%d; this machine has "
                           "cuda:0 to cuda:%d", word, list->items[i], n_there - 1);
    return SW_OK;
}

bool sw_device_list_spreads(const sw_device_list *list, const sw_device_info *there, int n_there,
                            int64_t cap_bytes, int64_t n_bytes)
{
    int64_t least = INT64_MAX, sum = 0;

    for (int i = 0; i < list->n; i++) {
        int64_t room;

        if (list->items[i] >= n_there) return false;
        room = there[list->items[i]].total_bytes;
        if (cap_bytes && cap_bytes < room) room = cap_bytes;
        room -= room / WORK_SHARE;
        sum += room;
        if (room < least) least = room;
    }
    return list->n > 1 && n_bytes > least && n_bytes <= sum;
}
