/* manifest.h - what went into a checkpoint and what came out, by name, size and SHA-256.
 *
 * Names are base names and nothing tells a time, a machine or a process: the same inputs give
 * the same manifest anywhere.
 */
#ifndef SW_FORMATS_CHECKPOINT_MANIFEST_H
#define SW_FORMATS_CHECKPOINT_MANIFEST_H

#include "formats/base/hash.h"
#include "formats/checkpoint/checkpoint.h"
#include "formats/checkpoint/side_files.h"

/* {"inputs": what is read of the source, "left_behind": entries of it that are not taken along,
 * "origin": {"command", "inputs", "transforms", "origin"} of the source's own manifest, where it
 * has one}. Reads every byte of the inputs. Freed by cJSON_Delete. */
sw_code sw_manifest_sources(cJSON **out, const sw_checkpoint *source,
                            const sw_dir_list *source_list, const sw_progress *progress,
                            sw_err *err) SW_MUST_USE;

/* manifest.json in `work_dir`: `given` (or NULL) plus the members of `sources` (appended to those
 * that given has; of a GGUF also "cast") and "outputs" (everything in work_dir so far; `written`
 * may know digests). */
sw_code sw_manifest_write(const cJSON *given, const cJSON *sources, const char *work_dir,
                          const sw_st_writer *written, sw_err *err) SW_MUST_USE;

/* SW_E_USAGE when out_dir is the source directory, lies inside it, or holds it: writing there
 * would change or remove what is being read. out_dir need not exist. */
sw_code sw_paths_keep_apart(const char *source_dir, const char *out_dir, sw_err *err) SW_MUST_USE;

/* One hash for a model, so that what was measured on it is not used for another. */

/* SHA-256 over config.json, printed in one way, and over name, dtype, shape and SHA-256 of every
 * tensor, in name order. How tensors are spread over files does not matter. */
sw_code sw_checkpoint_identity(char out[SW_SHA256_HEX_BYTES], const sw_checkpoint *checkpoint,
                               sw_err *err) SW_MUST_USE;

#endif
