/* hub_cache.h - models by id, "org/name" or "org/name@revision", in the Hugging Face Hub's cache.
 *
 *   CACHE/models--org--name/refs/REVISION       a commit as text
 *                          /snapshots/COMMIT/   links to ../../blobs/DIGEST
 *                          /blobs/              and what is not finished: DIGEST.incomplete
 *
 * CACHE is $HF_HUB_CACHE, else $HF_HOME/hub, else $XDG_CACHE_HOME/huggingface/hub, else
 * ~/.cache/huggingface/hub, as the tools of the Hub have it. Nothing is ever downloaded here.
 */
#ifndef SW_FORMATS_CHECKPOINT_HUB_CACHE_H
#define SW_FORMATS_CHECKPOINT_HUB_CACHE_H

#include <stdbool.h>

#include "formats/io/file.h"

#define SW_HUB_PART_MAX 96 /* bytes of an organization or of a name, by the rules of the Hub */
#define SW_HUB_ID_BYTES (2 * SW_HUB_PART_MAX + 2)
#define SW_HUB_REVISION_BYTES 256

typedef struct sw_hub_id {
    char repo[SW_HUB_ID_BYTES];           /* "org/name" */
    char revision[SW_HUB_REVISION_BYTES]; /* a branch, a tag, a commit or its beginning */
} sw_hub_id;

/* true when `text` is an id by the Hub's rules, so that no folder made of it can lie outside of the
 * cache. Without a revision that is "main". */
bool sw_hub_id_parse(sw_hub_id *out, const char *text);

/* Where the cache is, there or not. SW_E_IO: no variable says it. */
sw_code sw_hub_cache_dir(char out[SW_PATH_BYTES], sw_err *err) SW_MUST_USE;

/* The snapshot's directory. SW_E_IO: it is not in the cache, or parts of it are missing, which are
 * named; the message ends with the command that downloads it. SW_E_USAGE: `id->revision` begins
 * several commits. SW_E_FORMAT: the cache names something that is no commit. */
sw_code sw_hub_find(char out[SW_PATH_BYTES], const sw_hub_id *id, sw_err *err) SW_MUST_USE;

/* The id and the commit of a model directory, or of a GGUF, that lies in a cache, however the path
 * leads there. false: it does not. */
bool sw_hub_origin(sw_hub_id *out, const char *path, bool is_file);

#endif
