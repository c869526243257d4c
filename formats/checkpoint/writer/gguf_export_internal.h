/* gguf_export_internal.h - what the files that write a GGUF share. Not for others. */
#ifndef SW_FORMATS_CHECKPOINT_WRITER_GGUF_EXPORT_INTERNAL_H
#define SW_FORMATS_CHECKPOINT_WRITER_GGUF_EXPORT_INTERNAL_H

#include "formats/checkpoint/writer/gguf_export.h"
#include "formats/file/gguf.h"
#include "formats/gguf/gguf_names.h"

/* What a tensor is written in, or the nearest type that its rows are whole blocks of. */
sw_block_type sw_gguf_export_type(const sw_gguf_name *name, const sw_gguf_options *o);
/* SW_E_UNSUPPORTED: it would be rounded twice, to `type`; `asked` is what its blocks were to be. */
sw_code sw_gguf_export_check(const sw_checkpoint *source, const sw_gguf_name *name,
                             sw_block_type type, sw_block_type asked,
                             sw_err *err) SW_MUST_USE;
/* Encode and write one tensor, or one expert of it. */
sw_code sw_gguf_export_put(sw_gguf_writer *w, sw_gguf_report *report, const sw_checkpoint *source,
                           const sw_gguf_name *name, sw_block_type type, const sw_gguf_options *o,
                           sw_err *err) SW_MUST_USE;

/* The factor of a weight of NVFP4, of which experts in one tensor have one each. */
sw_code sw_gguf_declare_factor(sw_gguf_writer *w, const sw_gguf_name *name,
                               sw_err *err) SW_MUST_USE;
sw_code sw_gguf_put_factor(sw_gguf_writer *w, const sw_gguf_name *name, float factor,
                           sw_err *err) SW_MUST_USE;

/* All of a source that is a GGUF itself, up to the commit. */
sw_code sw_gguf_write_again(sw_gguf_writer *w, sw_gguf_report *report, const sw_checkpoint *source,
                            const sw_gguf_names *names, const sw_gguf_options *o,
                            sw_err *err) SW_MUST_USE;

#endif
