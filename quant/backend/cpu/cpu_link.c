/* cpu_link.c - arrays of memory on their way between ranks: as the team carries them. */
#include "quant/backend/cpu/cpu.h"
#include "quant/team/team.h"

sw_code sw_cpu_link_new(void **link, const sw_place *at, sw_team *team, sw_err *err)
{
    (void)at;
    (void)err;
    *link = team;
    return SW_OK;
}

void sw_cpu_link_free(void *link, bool is_well)
{
    (void)link;
    (void)is_well;
}

/* A team says what it has to say to all by a broadcast, which moves nothing at who has it. */
sw_code sw_cpu_link_send(void *link, const void *array, int64_t n_bytes, int to, sw_err *err)
{
    sw_team *team = link;

    if (to >= 0) return sw_team_send(team, to, array, (size_t)n_bytes, err);
    return sw_team_broadcast(team, sw_team_rank(team), (void *)(uintptr_t)array, (size_t)n_bytes,
                             err);
}

sw_code sw_cpu_link_receive(void *link, void *array, int64_t n_bytes, int from, bool is_for_all,
                            sw_err *err)
{
    sw_team *team = link;

    return is_for_all ? sw_team_broadcast(team, from, array, (size_t)n_bytes, err)
                      : sw_team_receive(team, from, array, (size_t)n_bytes, err);
}

sw_code sw_cpu_link_exchange(void *link, int to, const void *out, int64_t n_out_bytes, int from,
                             void *in, int64_t n_in_bytes, sw_err *err)
{
    sw_team *team = link;

    if (n_out_bytes && n_in_bytes)
        return sw_team_exchange(team, to, out, (size_t)n_out_bytes, from, in, (size_t)n_in_bytes,
                                err);
    if (n_out_bytes) return sw_team_send(team, to, out, (size_t)n_out_bytes, err);
    return n_in_bytes ? sw_team_receive(team, from, in, (size_t)n_in_bytes, err) : SW_OK;
}
