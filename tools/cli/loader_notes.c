/* loader_notes.c - see loader_notes.h. */
#include "tools/cli/loader_notes.h"

#include <string.h>

void sw_loader_notes(const sw_load_findings *findings, const sw_progress *progress)
{
    for (int64_t i = 0; i < findings->n; i++) {
        const sw_load_rule *rule = findings->at[i].rule;
        char text[SW_LOAD_TEXT_BYTES];
        if (rule->effect == SW_LOAD_LIMITED || !strcmp(rule->id, "swage-only")) continue;
        sw_progress_note(progress, "%s", sw_load_text(text, &findings->at[i]));
    }
}
