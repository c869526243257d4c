/* timeline.c - see timeline.h. */
#include "tools/quantize/timeline.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "formats/io/profile.h"

sw_code sw_timeline_begin(sw_timeline *out, sw_err *err)
{
    double start_s = sw_clock_s();

    *out = (sw_timeline){cJSON_CreateArray(), start_s, start_s};
    return out->steps ? SW_OK : SW_FAIL(err, SW_E_NOMEM, "no memory for the times of the run");
}

sw_code sw_timeline_step(sw_timeline *t, sw_err *err, const char *fmt, ...)
{
    double end_s = sw_clock_s();
    cJSON *row = cJSON_CreateObject();
    char name[80];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(name, sizeof name, fmt, args);
    va_end(args);
    if (!row || !cJSON_AddItemToArray(t->steps, row)) {
        cJSON_Delete(row);
        row = NULL;
    }
    if (!row || !cJSON_AddStringToObject(row, "step", name) ||
        !cJSON_AddNumberToObject(row, "begin_s", t->last_s - t->start_s) ||
        !cJSON_AddNumberToObject(row, "end_s", end_s - t->start_s))
        return SW_FAIL(err, SW_E_NOMEM, "no memory for the times of the run");
    t->last_s = end_s;
    return SW_OK;
}

double sw_timeline_seconds(const sw_timeline *t) { return sw_clock_s() - t->start_s; }

void sw_timeline_free(sw_timeline *t)
{
    cJSON_Delete(t->steps);
    memset(t, 0, sizeof *t);
}
