/* pt_read.h - checkpoints of PyTorch (torch.save since version 1.6) as tables of tensors.
 *
 * An archive: <name>/data.pkl says which tensors there are, <name>/data/<key> are their storages.
 * Tensors that lie dense in their storage are views of the mapped file; those that do not (turned,
 * cut out by columns, at an odd address) are copied into a nameless file.
 */
#ifndef SW_FORMATS_FILE_PT_READ_H
#define SW_FORMATS_FILE_PT_READ_H

#include "formats/file/st_internal.h"
#include "formats/io/spill.h"

#define SW_PT_INDEX_NAME "pytorch_model.bin.index.json"
#define SW_PT_SINGLE_NAME "pytorch_model.bin"

/* Everything in *out lives in `arena`, points into `bytes` or into *copies, which is made when
 * a tensor needs it and closed by the caller. SW_E_FORMAT, SW_E_UNSUPPORTED begin with `what`. */
sw_code sw_pt_part_parse(sw_st_part *out, sw_spill *copies, sw_arena *arena, const void *bytes,
                         size_t n_bytes, int32_t shard, const char *what,
                         sw_err *err) SW_MUST_USE;

#endif
