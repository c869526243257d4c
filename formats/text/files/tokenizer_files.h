/* tokenizer_files.h - the tokenizer of a model directory, in whatever files it comes.
 *
 * tokenizer.json where it is; else what can be made into one: vocab.json with merges.txt,
 * tokenizer.model of sentencepiece, tekken.json, in this order.
 */
#ifndef SW_FORMATS_TEXT_FILES_TOKENIZER_FILES_H
#define SW_FORMATS_TEXT_FILES_TOKENIZER_FILES_H

#include <stdbool.h>

#include "formats/io/file.h"

/* The file that sw_tokenizer_files_make would read or, if it is of a kind that is only known by
 * name, refuse, in `path`; false: there is none. */
bool sw_tokenizer_files_find(char path[SW_PATH_BYTES], const char *dir);

/* tokenizer.json made of those files, freed by sw_mem_put. SW_E_FORMAT, SW_E_IO with the file;
 * SW_E_UNSUPPORTED: there is nothing that can be read, or not in this form; names the remedy. */
sw_code sw_tokenizer_files_make(char **json, size_t *n_bytes, const char *dir,
                                sw_err *err) SW_MUST_USE;

#endif
