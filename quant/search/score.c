/* score.c - see score.h. */
#include "quant/search/score.h"

sw_code sw_score_scale(double **out, const sw_score_job *job, int which, sw_err *err)
{
    int64_t k = job->k;
    double *scale = NULL;
    sw_code rc = SW_MEM_GET(&scale, 2 * k, "scale", err);

    if (rc != SW_OK) return rc;
    job->scale_of(scale, job->self, which);
    for (int64_t j = 0; j < k; j++) scale[k + j] = job->worth[j] / (scale[j] * scale[j]);
    *out = scale;
    return SW_OK;
}
