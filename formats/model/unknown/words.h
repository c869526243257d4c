/* words.h - what a part of a tensor's name, n bytes between two dots, says of the module; inside
 * formats/model/unknown. The tables are in words.c.
 */
#ifndef SW_FORMATS_MODEL_UNKNOWN_WORDS_H
#define SW_FORMATS_MODEL_UNKNOWN_WORDS_H

#include <stdbool.h>
#include <stddef.h>

/* A list of layers: "layers", "h", "blocks". */
bool sw_word_is_list(const char *part, size_t n);
/* Beside the decoder: "vision_tower", "mtp". */
bool sw_word_is_other(const char *part, size_t n);
/* A matrix of a layer that stays in floats: "router", "shared_expert_gate". */
bool sw_word_is_kept(const char *part, size_t n);

#endif
