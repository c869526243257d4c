/* carrier.h - what carries arrays of a place between the ranks of a run, made once and kept.
 *
 * Windows that devices copy from take milliseconds to make and to open, and arrays move several
 * times a block: so the link of the first that move stays until the run ends. Every rank of the
 * team calls these alike.
 */
#ifndef SW_QUANT_CARRIER_H
#define SW_QUANT_CARRIER_H

#include "quant/backend.h"

/* Set team, zero the rest. */
typedef struct sw_carrier {
    struct sw_team *team;
    const sw_backend *backend; /* whose link it is, NULL: there is none yet; */
    void *device;              /* its device, borrowed, */
    void *link;                /* and what it made, owned */
} sw_carrier;

/* is_well: nothing has failed here, and the ranks part together; else nobody waits for anybody.
 * Accepts one without a link. */
static inline void sw_carrier_end(sw_carrier *carrier, bool is_well)
{
    if (carrier->backend) carrier->backend->link_free(carrier->link, is_well);
    *carrier = (sw_carrier){.team = carrier->team};
}

/* For arrays of this place: the link that is there, or one instead of it where it is for another
 * place. On failure there is none. */
SW_MUST_USE static inline sw_code sw_carrier_for(sw_carrier *carrier, const sw_place *at,
                                                 sw_err *err)
{
    const sw_backend *backend = sw_backend_of(at);
    sw_code rc;

    if (carrier->backend == backend && carrier->device == at->device) return SW_OK;
    sw_carrier_end(carrier, true);
    rc = backend->link_new(&carrier->link, at, carrier->team, err);
    if (rc != SW_OK) return rc;
    carrier->backend = backend;
    carrier->device = at->device;
    return SW_OK;
}

#endif
