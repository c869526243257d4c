/* progress.c - see progress.h. */
#include "formats/base/progress.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

void sw_progress_step(const sw_progress *progress, const char *stage, int64_t done, int64_t total)
{
    if (progress && progress->step) progress->step(progress->self, stage, done, total);
}

void sw_progress_item(const sw_progress *progress, const char *name)
{
    if (progress && progress->item) progress->item(progress->self, name);
}

void sw_progress_note(const sw_progress *progress, const char *fmt, ...)
{
    char text[SW_ERR_TEXT_BYTES];
    va_list args;

    if (!progress || !progress->note) return;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    progress->note(progress->self, text);
}

sw_progress sw_progress_kept(const sw_progress *progress)
{
    sw_progress kept = progress ? *progress : (sw_progress){0};

    kept.is_cancelled = NULL;
    return kept;
}

sw_code sw_progress_check(const sw_progress *progress, sw_err *err)
{
    if (progress && progress->is_cancelled && progress->is_cancelled(progress->self))
        return SW_FAIL(err, SW_E_CANCELLED, "interrupted; nothing was written");
    return SW_OK;
}
