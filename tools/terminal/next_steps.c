/* next_steps.c - see next_steps.h. */
#include "tools/terminal/next_steps.h"

#include <stdio.h>
#include <string.h>

#include "formats/checkpoint/hub_cache.h"

#define ID_BYTES (SW_HUB_ID_BYTES + SW_HUB_REVISION_BYTES + 1)

/* A snapshot of the Hub's cache by its id, which is what people type; any other word as it is. */
static const char *short_of(char text[ID_BYTES], const char *word)
{
    char dir[SW_PATH_BYTES];
    sw_hub_id id;
    sw_err ignored = {0};

    if (!sw_hub_origin(&id, word, false) || sw_hub_find(dir, &id, &ignored) != SW_OK ||
        strcmp(dir, word) != 0)
        return word;
    (void)snprintf(text, ID_BYTES, "%s@%s", id.repo, id.revision);
    return text;
}

/* A control byte, which could end the line or move the cursor, becomes '?'. */
static void put_word(const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_./@%+=:,-";
    const bool is_plain = *word && strspn(word, plain) == strlen(word);

    (void)fputs(is_plain ? " " : " '", stdout);
    for (; *word; word++) {
        const bool is_control = (unsigned char)*word < ' ' || *word == 127;
        if (*word == '\'')
            (void)fputs("'\\''", stdout);
        else
            (void)fputc(is_control ? '?' : *word, stdout);
    }
    if (!is_plain) (void)fputc('\'', stdout);
}

void sw_next_step(sw_next_steps *next, const char *what_for, const char *const *words)
{
    if (next->is_silent) return;
    (void)fputs(next->n++ ? "            swage" : "next        swage", stdout);
    for (; *words; words++) {
        char text[ID_BYTES];

        put_word(short_of(text, *words));
    }
    (void)printf("  # %s\n", what_for);
}
