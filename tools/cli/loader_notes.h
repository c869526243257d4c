/* loader_notes.h - what engines would make of a checkpoint that was just written, in passing. */
#ifndef SW_TOOLS_CLI_LOADER_NOTES_H
#define SW_TOOLS_CLI_LOADER_NOTES_H

#include "formats/base/progress.h"
#include "verify/loaders/loaders.h"

/* A note for each rule by which an engine would refuse or misread it; the limits stay for inspect
 * and verify, and so does that tiles are nobody else's, which whoever writes them knows. */
void sw_loader_notes(const sw_load_findings *findings, const sw_progress *progress);

#endif
