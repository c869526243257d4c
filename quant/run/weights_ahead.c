/* weights_ahead.c - see weights_ahead.h. */
#include "quant/run/weights_ahead.h"

#include "formats/base/size.h"
#include "formats/io/profile.h"
#include "quant/run/linear_solve.h"
#include "quant/stats/sums.h"
#include "quant/team/team.h"

static float *load(const sw_block_job *job, const sw_linear_ref *ref)
{
    const int n_threads = (int)sw_max_i64(1, job->options->n_threads / 2); /* others launch */
    sw_err ignored = {0};
    float *w = NULL;

    if (sw_weight_room_take(&w, job->rooms, ref->n_out * ref->k_in, n_threads, &ignored) != SW_OK)
        return NULL;
    if (sw_linear_load(w, job, ref, n_threads, &ignored) == SW_OK) return w;
    sw_weight_room_put(job->rooms, w);
    return NULL;
}

static bool is_wanted(const sw_weights_ahead *ahead, const sw_linear_ref *ref)
{
    const sw_team *team = ahead->job->options->team;

    if (!ahead->wanted[ref->site]) return false;
    if (!ahead->expert_end) return ref->expert < 0;
    return ref->expert >= ahead->expert_begin && ref->expert < ahead->expert_end &&
           sw_sums_owner(ref->expert, sw_team_size(team)) == sw_team_rank(team);
}

static void *run(void *self)
{
    const sw_weights_ahead *ahead = self;
    const sw_block_job *job = ahead->job;
    const sw_span span = sw_span_open("weights ahead");

    for (int64_t i = 0; i < job->n_linears && !atomic_load(&ahead->is_asked_to_stop); i++)
        if (is_wanted(ahead, &job->linears[i]) && !job->ahead[i])
            job->ahead[i] = load(job, &job->linears[i]);
    sw_span_close(span, NULL);
    return NULL;
}

void sw_weights_ahead_begin(sw_weights_ahead *out, sw_block_job *job,
                            const bool wanted[SW_SITE_COUNT])
{
    sw_weights_ahead_begin_experts(out, job, wanted, 0, 0);
}

void sw_weights_ahead_begin_experts(sw_weights_ahead *out, sw_block_job *job,
                                    const bool wanted[SW_SITE_COUNT], int64_t begin, int64_t end)
{
    sw_err ignored = {0};

    *out = (sw_weights_ahead){.job = job, .wanted = wanted, .expert_begin = begin,
                              .expert_end = end};
    if (sw_block_job_runs_on(job) == &sw_backend_cpu) return;
    if (!job->ahead &&
        SW_MEM_GET(&job->ahead, job->n_linears, "weights read ahead", &ignored) != SW_OK)
        return;
    out->has_thread = pthread_create(&out->thread, NULL, run, out) == 0;
}

void sw_weights_ahead_end(sw_weights_ahead *ahead)
{
    if (ahead->has_thread) (void)pthread_join(ahead->thread, NULL);
    ahead->has_thread = false;
}

void sw_weights_ahead_stop(sw_weights_ahead *ahead)
{
    atomic_store(&ahead->is_asked_to_stop, true);
    sw_weights_ahead_end(ahead);
}

float *sw_weights_ahead_take(const sw_block_job *job, int64_t i)
{
    float *w = job->ahead ? job->ahead[i] : NULL;

    if (w) job->ahead[i] = NULL;
    return w;
}
