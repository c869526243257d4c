/* size_sums.h - the sizes of channels (channels.h) of a text's pieces, added over ranks.
 *
 * Part of sums.h: means are sums of floats, so they keep the order of the pieces too.
 */
#ifndef SW_QUANT_STATS_SIZE_SUMS_H
#define SW_QUANT_STATS_SIZE_SUMS_H

#include "quant/stats/sums.h"

/* All sizes that the sums have, over the whole text: those of a site at every rank, those of an
 * expert at its owner. Every rank calls it, with its pieces summed. SW_E_NOMEM. */
sw_code sw_sizes_gather(sw_sums *sums, struct sw_team *team, sw_err *err) SW_MUST_USE;

#endif
