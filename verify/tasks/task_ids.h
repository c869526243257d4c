/* task_ids.h - what of an item a model is asked: token ids, and which of them are judged. */
#ifndef SW_VERIFY_TASKS_TASK_IDS_H
#define SW_VERIFY_TASKS_TASK_IDS_H

#include "formats/model/model.h"
#include "formats/text/tokenizer.h"
#include "verify/tasks/task_file.h"

#define SW_TASK_MORE_TOKENS 8 /* that a generation may have beyond those of the answer */

/* One choice: ids[0 .. n), of which those from `first` on are the choice's own. */
typedef struct sw_task_sequence {
    uint32_t *ids;
    int64_t n, first;
    int64_t n_bytes; /* of the choice as the file has it: what acc_norm divides by */
    int64_t max_new; /* of a generation: tokens to be written, else 0 */
    int64_t run;     /* of the item: the sequence whose inputs begin with these, itself as a rule */
} sw_task_sequence;

typedef struct sw_task_encoder {
    sw_tokenizer *tok;
    const sw_model *model;
    bool with_bos;
    int64_t max_tokens; /* of a sequence; what is too long loses its beginning */
    int64_t n_cut;      /* how many did */
} sw_task_encoder;

/* All sequences of an item into `out` [n_choices], in `arena`. As the common harness does it:
 * blanks at the end of the query go to the choice, both are encoded as one text, and the choice has
 * the ids behind as many as the query alone has. Behind an empty query the BOS token, or the end
 * token, comes first. Of a generation the sequence is the prompt. SW_E_FORMAT: a text that does not
 * encode; SW_E_UNSUPPORTED: a choice without a token of its own. */
sw_code sw_task_encode(sw_task_sequence *out, sw_task_encoder *encoder, const sw_task *task,
                       int64_t item, sw_arena *arena, sw_err *err) SW_MUST_USE;

#endif
