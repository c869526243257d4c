/* sample_file.h - samples on their way to a token or text file. */
#ifndef SW_TOOLS_CALIBRATE_SAMPLE_FILE_H
#define SW_TOOLS_CALIBRATE_SAMPLE_FILE_H

#include "formats/text/tokenizer.h"

typedef struct sw_sample_file {
    sw_ids ids;  /* prompt and new tokens of every sample */
    char *text;
    size_t text_bytes, text_room;
} sw_sample_file;

/* Bytes per id by the name's ending: 2 for .u16, 4 for .u32, 0 for text. */
int sw_sample_file_id_bytes(const char *path);
/* Ids and text (specials left out, a blank line between samples) of one more sample. */
sw_code sw_sample_file_add(sw_sample_file *file, const sw_tokenizer *tok, const sw_ids *prompt,
                           const sw_ids *sample, sw_err *err) SW_MUST_USE;
/* SW_E_UNSUPPORTED: an id beyond 65535 for .u16. SW_E_USAGE: a file is there and not replaced. */
sw_code sw_sample_file_write(const sw_sample_file *file, const char *path, bool may_replace,
                             sw_err *err) SW_MUST_USE;
void sw_sample_file_free(sw_sample_file *file); /* accepts a zeroed one */

#endif
