/* doctor.c - see doctor.h: the list of findings. */
#include "tools/doctor/doctor.h"

#include <stdarg.h>
#include <stdio.h>

const char *sw_health_name(sw_health health)
{
    static const char *const names[SW_HEALTH_COUNT] = {"ok", "warning", "fault"};

    return names[health];
}

sw_finding *sw_doctor_add(sw_doctor *d, const char *name, const char *fmt, ...)
{
    sw_finding *f = &d->at[d->n < SW_FINDINGS_MAX ? d->n++ : SW_FINDINGS_MAX - 1];
    va_list args;

    f->name = name;
    va_start(args, fmt);
    (void)vsnprintf(f->text, sizeof f->text, fmt, args);
    va_end(args);
    for (char *p = f->text; *p; p++) /* names come from outside */
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?';
    d->n_of[SW_HEALTH_OK]++;
    return f;
}

void sw_doctor_mark(sw_doctor *d, sw_finding *f, sw_health health, const char *fmt, ...)
{
    va_list args;

    if (health <= f->health) return;
    d->n_of[f->health]--;
    d->n_of[health]++;
    f->health = health;
    va_start(args, fmt);
    (void)vsnprintf(f->remedy, sizeof f->remedy, fmt, args);
    va_end(args);
}
