/* block_probe.c - see block_probe.h. */
#include "quant/search/block_probe.h"

#include <string.h>

sw_code sw_block_probe_new(sw_block_probe *out, sw_streams *streams, sw_err *err)
{
    const uint8_t *parts = streams->parts;
    uint8_t *own = NULL;
    sw_block_probe p = {.streams = streams};
    sw_code rc = SW_OK;

    if (!parts && (rc = SW_MEM_GET(&own, streams->n_seqs, "probe windows", err)) == SW_OK) {
        sw_block_probe_parts(own, streams->n_seqs, streams->seq_len);
        parts = own;
    }
    for (int part = 0; part < SW_BLOCK_PROBE_PARTS && rc == SW_OK; part++) {
        rc = SW_MEM_GET(&p.seqs[part], streams->n_seqs, "probe windows", err);
        for (int64_t i = 0; i < streams->n_seqs && rc == SW_OK; i++)
            if (parts[i] >> part & 1) p.seqs[part][p.n_seqs[part]++] = i;
    }
    sw_mem_put(own);
    if (rc == SW_OK)
        *out = p;
    else
        sw_block_probe_free(&p);
    return rc;
}

void sw_block_probe_free(sw_block_probe *probe)
{
    for (int part = 0; part < SW_BLOCK_PROBE_PARTS; part++) sw_mem_put(probe->seqs[part]);
    memset(probe, 0, sizeof *probe);
}

const sw_place *sw_block_probe_place(const sw_block_probe *probe)
{
    return &probe->streams->place;
}

sw_half sw_block_probe_half(const sw_block_probe *probe, const sw_block *block, sw_site site)
{
    const sw_streams *s = probe->streams;
    const sw_half half = sw_engine_half_of(s->model, block->layer, site);

    return half == SW_HALF_MLP || half == SW_HALF_BOTH ? s->ahead : half;
}

int64_t sw_block_probe_tokens(const sw_block_probe *probe, sw_block_probe_part part)
{
    return probe->n_seqs[part] * probe->streams->seq_len;
}

sw_code sw_block_probe_output(float *y, const sw_block_probe *probe, sw_block_probe_part part,
                              const sw_block *block, sw_site site, sw_err *err)
{
    return sw_backend_of(&probe->streams->place)->probe_output(y, probe, part, block, site, err);
}

sw_code sw_block_probe_rows(sw_probe_rows *rows, const sw_block_probe *probe,
                            sw_block_probe_part part, const sw_block *block, sw_err *err)
{
    return sw_backend_of(&probe->streams->place)->probe_rows(rows, probe, part, block, err);
}

sw_code sw_block_probe_hessians(sw_hessian *hess, int64_t n_hess, const sw_block_probe *probe,
                                sw_block_probe_part part, const sw_block *block, sw_site site,
                                sw_err *err)
{
    return sw_backend_of(&probe->streams->place)
        ->probe_hessians(hess, n_hess, probe, part, block, site, err);
}
