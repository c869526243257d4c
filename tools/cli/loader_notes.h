/* loader_notes.h - notes on how engines would load a checkpoint that was just written. */
#ifndef SW_TOOLS_CLI_LOADER_NOTES_H
#define SW_TOOLS_CLI_LOADER_NOTES_H

#include "formats/base/progress.h"
#include "verify/loaders/loaders.h"

/* Print a note for each rule by which an engine would refuse or misread it. SW_LOAD_LIMITED is left
 * to inspect and verify; so is the rule that only Swage reads Swage tiles. */
void sw_loader_notes(const sw_load_findings *findings, const sw_progress *progress);

#endif
