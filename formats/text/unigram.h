/* unigram.h - the unigram model of sentencepiece: the pieces of a word whose scores add up to most.
 *
 * A character that no piece begins or is counts ten less than the worst piece (Kudo 2018, and what
 * both sentencepiece and Hugging Face's tokenizers have); a run of such is one unknown token, or
 * its bytes. Sums are taken in double, as the latter do.
 */
#ifndef SW_FORMATS_TEXT_UNIGRAM_H
#define SW_FORMATS_TEXT_UNIGRAM_H

#include "formats/text/characters/growth.h"
#include "formats/text/tokenizer.h"
#include "formats/text/vocab.h"

typedef struct sw_unigram_node sw_unigram_node;

typedef struct sw_unigram {
    const sw_vocab *vocab;    /* borrowed, as what follows */
    const uint32_t *byte_ids; /* [256]; NULL: no byte fallback */
    sw_unspelled *unspelled;
    uint32_t unk_id;
    double *scores;   /* [n_pieces] by id */
    uint32_t *sorted; /* [n_pieces] ids in the order of their texts */
    int64_t n_pieces;
    int64_t first_of[257]; /* of a byte: where in `sorted` the pieces that begin with it begin */
    double unk_score;
    sw_unigram_node *nodes;
    size_t nodes_capacity;
    sw_ids path; /* of one word, last first */
} sw_unigram;

/* `model` has "vocab" [[text, score], ...], of which `vocab` has the texts, and "unk_id". */
sw_code sw_unigram_parse(sw_unigram *out, const cJSON *model, const sw_vocab *vocab,
                         sw_err *err) SW_MUST_USE;
void sw_unigram_free(sw_unigram *unigram);

/* Append the ids of one word of valid UTF-8. SW_E_FORMAT: `growth` ends the search. */
sw_code sw_unigram_encode(sw_unigram *unigram, sw_ids *out, const char *word, size_t n_bytes,
                          sw_growth *growth, sw_err *err) SW_MUST_USE;

#endif
