/* speed_opt.c - see speed_opt.h. */
#include "tools/cli/speed_opt.h"

#include <string.h>

sw_code sw_int_between(int64_t *out, const char *begin, const char *end, const char *what,
                       sw_err *err)
{
    char word[24];
    size_t n = (size_t)(end - begin);

    if (n >= sizeof word)
        return SW_FAIL(err, SW_E_USAGE, "%s: a number of %zu digits", what, n);
    memcpy(word, begin, n);
    word[n] = '\0';
    return sw_opt_int(out, word, 1, INT32_MAX, what, err);
}

sw_code sw_int_list(int64_t *out, int *n_out, int max, const char *text, const char *what,
                    sw_err *err)
{
    int n = 0;

    for (const char *at = text;;) {
        const char *end = at + strcspn(at, ",");
        sw_code rc;

        if (n == max) return SW_FAIL(err, SW_E_USAGE, "%s: more than %d values", what, max);
        if ((rc = sw_int_between(&out[n++], at, end, what, err)) != SW_OK) return rc;
        if (!*end) break;
        at = end + 1;
    }
    *n_out = n;
    return SW_OK;
}
