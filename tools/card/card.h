/* card.h - the model card of an output: what it is, how it was made, what serves it.
 *
 * Markdown with the metadata by which the Hugging Face Hub files a model (its documentation of
 * model cards): base_model, base_model_relation, license, library_name, pipeline_tag, tags. The
 * same output has the same card: no time, machine or path is in it.
 */
#ifndef SW_TOOLS_CARD_CARD_H
#define SW_TOOLS_CARD_CARD_H

#include "tools/card/front_matter.h"
#include "verify/base/report.h"

typedef struct sw_card {
    const sw_checkpoint *ckpt;       /* the quantized one, opened */
    const cJSON *manifest;           /* its manifest, or NULL */
    const cJSON *sources; /* what has its "hub" and "origin": the manifest once it is finished */
    const sw_load_findings *loaders; /* of it */
    const char *scheme;              /* "4 bits, group 128, symmetric" */
    const char *own_name;            /* the card's: README.md, or SWAGE.md beside another one */
    sw_front_matter front;           /* of the source's card */
    const sw_report *report;         /* what was measured, or NULL */
} sw_card;

/* The whole card; freed by sw_mem_put. */
sw_code sw_card_text(char **out, const sw_card *card, sw_err *err) SW_MUST_USE;

/* For sw_ckpt_writer_at_end: the card of what lies in `work_dir`, made from `source`, and its name
 * in manifest["card"]. README.md, or SWAGE.md where the source's own README.md comes along. */
sw_code sw_card_put(cJSON *manifest, const cJSON *sources, const sw_checkpoint *source,
                    const char *work_dir, sw_err *err) SW_MUST_USE;

/* The card of a checkpoint that was judged, with the report's figures, as a file at `path`.
 * SW_E_USAGE: it exists and may_replace is false, or it is one of the checkpoint's own files. */
sw_code sw_card_of_report(const char *path, const sw_report *report, bool may_replace,
                          sw_err *err) SW_MUST_USE;

#endif
