/* hub_snapshot.h - is a snapshot in the Hub's cache all there? Inside hub_cache.c. */
#ifndef SW_FORMATS_CHECKPOINT_HUB_SNAPSHOT_H
#define SW_FORMATS_CHECKPOINT_HUB_SNAPSHOT_H

#include "formats/io/file.h"

/* `snapshot` is a directory of `repo_dir`, which has the blobs. SW_E_IO names what is missing, the
 * first in name order, with the command that completes it: a file behind a link, a shard of an
 * index, the weights; or a download that has begun and was not finished. */
sw_code sw_hub_snapshot_check(const char *snapshot, const char *repo_dir, const char *repo,
                              const char *commit, sw_err *err) SW_MUST_USE;

#endif
