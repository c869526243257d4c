/* scheme_text.c - a scheme in words, for reports. See decode_spec.h. */
#include <stdio.h>

#include "verify/decoders/decode_spec.h"

/* Which weights share a scale. */
static void scope_text(char *out, size_t size, const sw_spec_scheme *s)
{
    long long group = (long long)s->group_elems, rows = (long long)s->scale_rows;

    if (rows < 0)
        (void)snprintf(out, size, "per tensor");
    else if (rows > 1)
        (void)snprintf(out, size, "blocks of %lld x %lld", rows, group);
    else if (group)
        (void)snprintf(out, size, "group %lld", group);
    else
        (void)snprintf(out, size, "per channel");
}

void sw_spec_scheme_text(char *out, size_t size, const sw_spec_scheme *s)
{
    char scope[56], kind[40];

    if (s->blocks && s->bits > 8) {
        (void)snprintf(out, size, "%s", s->blocks);
        return;
    }
    scope_text(scope, sizeof scope, s);
    if (s->exponent_bits)
        (void)snprintf(kind, sizeof kind, "%d bits (e%dm%d)", s->bits, s->exponent_bits,
                       s->mantissa_bits);
    else
        (void)snprintf(kind, sizeof kind, "%d bits", s->bits);
    (void)snprintf(out, size, "%s%s%s%s, %s%s", s->blocks ? s->blocks : "",
                   s->blocks ? " (most), " : "", s->mixed ? "mixed; most " : "", kind, scope,
                   s->exponent_bits ? "" : s->is_symmetric ? ", symmetric" : ", asymmetric");
}
