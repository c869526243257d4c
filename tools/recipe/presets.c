/* presets.c - see presets.h. */
#include "tools/recipe/presets.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

const sw_preset sw_presets[] = {
#define SW_PRESET(name, why, families, text) {name, why, families, text},
#include "tools/recipe/presets.def"
#undef SW_PRESET
};

const int sw_n_presets = (int)(sizeof sw_presets / sizeof sw_presets[0]);

static int plain(char c)
{
    return c == '_' ? '-' : tolower((unsigned char)c);
}

const sw_preset *sw_preset_find(const char *name)
{
    for (int i = 0; i < sw_n_presets; i++) {
        const char *a = sw_presets[i].name, *b = name;

        while (*a && plain(*a) == plain(*b)) a++, b++;
        if (!*a && !*b) return &sw_presets[i];
    }
    return NULL;
}

const sw_preset *sw_preset_for(const char *model_type)
{
    const size_t n = strlen(model_type);

    for (int i = 0; i < sw_n_presets && n; i++) {
        const char *at = sw_presets[i].families;

        for (; (at = strstr(at, model_type)) != NULL; at += n)
            if ((at == sw_presets[i].families || at[-1] == ' ') && (at[n] == ' ' || !at[n]))
                return &sw_presets[i];
    }
    return NULL;
}

const char *sw_preset_name(int i)
{
    return i < sw_n_presets ? sw_presets[i].name : NULL;
}

bool sw_preset_is_name(const char *text)
{
    return !strpbrk(text, "./\\");
}
