/* next_steps.c - see next_steps.h. */
#include "tools/terminal/next_steps.h"

#include <stdio.h>
#include <string.h>

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
    for (; *words; words++) put_word(*words);
    (void)printf("  # %s\n", what_for);
}
