/* corpus.h - calibration and evaluation input: text files, or token files.
 *
 * By extension: .safetensors (one integer tensor, preferably "input_ids"), .u16 and .u32
 * (raw little-endian ids), .jsonl (one chat or text a line, chat_format.h), anything else is
 * UTF-8 text for the tokenizer. Several files are joined in the order given; so are the lines of a
 * chat file, each with the special tokens that its template writes and with nothing in between.
 */
#ifndef SW_FORMATS_TEXT_CORPUS_H
#define SW_FORMATS_TEXT_CORPUS_H

#include "formats/base/hash.h"
#include "formats/base/json.h"
#include "formats/base/progress.h"
#include "formats/io/file.h"
#include "formats/text/chat/chat_format.h"
#include "formats/text/tokenizer.h"

typedef struct sw_corpus {
    sw_ids ids;
    char sha256[SW_SHA256_HEX_BYTES]; /* of the ids as little-endian u32 */
    sw_unspelled unspelled;           /* of all texts; the first of them is in the file below */
    char unspelled_in[SW_PATH_BYTES];
    const sw_chat_format *chat; /* borrowed; renders the lines of .jsonl files; or NULL */
    char template_sha256[SW_SHA256_HEX_BYTES]; /* of what rendered them; "" where nothing did */
} sw_corpus;

/* Append one file. `tok` may be NULL when only token files are given; text then is SW_E_USAGE.
 * SW_E_FORMAT: an id at or beyond vocab_size (says which and where), odd byte counts, bad UTF-8. */
sw_code sw_corpus_add(sw_corpus *corpus, sw_tokenizer *tok, int64_t vocab_size, const char *path,
                      sw_err *err) SW_MUST_USE;
/* true when any of the files is of chats, so that `chat` is of use. */
bool sw_corpus_needs_chat(const char *const *paths, int64_t n_paths);
/* true when any of the files is text. */
bool sw_corpus_needs_tokenizer(const char *const *paths, int64_t n_paths);
sw_code sw_corpus_finish(sw_corpus *corpus, sw_err *err) SW_MUST_USE; /* fills sha256 */
/* A note on what the tokenizer has no token for; nothing when there is no such character. */
void sw_corpus_note(const sw_corpus *corpus, const sw_progress *progress);
/* The same as a member "unspelled", and "chat_template_sha256" where chats were rendered; false: no
 * memory. */
bool sw_corpus_add_note(cJSON *object, const sw_corpus *corpus);
void sw_corpus_free(sw_corpus *corpus);

#endif
