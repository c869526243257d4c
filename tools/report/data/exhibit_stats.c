/* exhibit_stats.c - what calibration saw at the inputs of linears, out of a file of `calibrate`. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "quant/stats/stats.h"
#include "tools/report/data/exhibit.h"

#define BINS_PER_OCTAVE 32
#define FIRST_OCTAVE (-40)

/* The magnitude below which `share` of those counted lie; zeros are in no bin. */
static double quantile(const sw_range *range, double share)
{
    int64_t n = 0, seen = 0;

    for (int b = 0; b < SW_RANGE_BINS; b++) n += range->counts[b];
    if (!n) return (double)NAN;
    for (int b = 0; b < SW_RANGE_BINS; b++) {
        seen += range->counts[b];
        if ((double)seen >= share * (double)n)
            return exp2(FIRST_OCTAVE + (b + 0.5) / BINS_PER_OCTAVE);
    }
    return range->amax;
}

static int compare_floats(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

/* Keep channel j among the three that reach furthest. */
static void note_top(sw_exhibit_site *s, int64_t j, double v)
{
    int at = 3;

    while (at > 0 && (s->top[at - 1] < 0 || v > s->top_most[at - 1])) at--;
    if (at == 3) return;
    for (int i = 2; i > at; i--) {
        s->top[i] = s->top[i - 1];
        s->top_most[i] = s->top_most[i - 1];
    }
    s->top[at] = j;
    s->top_most[at] = v;
}

/* Channels that reach much further than others cost every scale that they share. */
static sw_code find_outliers(sw_exhibit_site *s, const sw_zpack *z, const char *name, sw_err *err)
{
    const sw_zpack_tensor *t = sw_zpack_find(z, name);
    int64_t k = s->n_channels;
    float *most = NULL, *sorted = NULL;
    sw_code rc;

    if (!t) return SW_OK; /* experts have ranges of their own */
    if (t->dtype != SW_DTYPE_F32 || t->n_dims != 1 || t->shape[0] != k)
        return SW_FAIL(err, SW_E_USAGE, "\"%s\" has %lld channels, the model has %lld there: these "
                       "are statistics of another model", name, (long long)t->shape[0],
                       (long long)k);
    if ((rc = SW_MEM_GET(&most, k, "channel ranges", err)) != SW_OK ||
        (rc = SW_MEM_GET(&sorted, k, "channel ranges", err)) != SW_OK ||
        (rc = sw_zpack_load(most, z, t, err)) != SW_OK)
        goto done;
    for (int64_t j = 0; j < k && rc == SW_OK; j++)
        if (!isfinite(most[j]) || most[j] < 0)
            rc = SW_FAIL(err, SW_E_FORMAT, "\"%s\" holds what is no magnitude", name);
    if (rc != SW_OK) goto done;
    memcpy(sorted, most, (size_t)k * sizeof *sorted);
    qsort(sorted, (size_t)k, sizeof *sorted, compare_floats);
    s->channel_median = (double)sorted[k / 2];
    for (int64_t j = 0; j < k; j++) {
        s->n_outliers += (double)most[j] >= SW_OUTLIER_TIMES * s->channel_median && most[j] > 0;
        note_top(s, j, (double)most[j]);
    }
done:
    sw_mem_put(sorted);
    sw_mem_put(most);
    return rc;
}

static sw_code add_site(sw_exhibit *x, const sw_zpack *z, sw_range *range, int64_t layer,
                        sw_site site, sw_err *err)
{
    const sw_site_scales undivided = {.scale = {NULL}};
    sw_exhibit_site *s = &x->sites[x->n_sites];
    char name[96];
    sw_code rc;

    (void)snprintf(name, sizeof name, "layers.%lld.%s.range", (long long)layer, sw_site_name(site));
    if (!sw_zpack_find(z, name)) return SW_OK;
    memset(range, 0, sizeof *range);
    rc = sw_stats_read_range(range, z, &x->ckpt.model, layer, site, &undivided, err);
    if (rc != SW_OK) return rc;
    *s = (sw_exhibit_site){
        .layer = layer, .name = sw_site_name(site), .median = quantile(range, 0.5),
        .n_channels = sw_model_site_width(&x->ckpt.model, layer, site),
        .p999 = quantile(range, 0.999), .most = range->amax, .channel_median = (double)NAN,
        .n_outliers = 0, .top = {-1, -1, -1}};
    (void)snprintf(name, sizeof name, "layers.%lld.%s.abs_max", (long long)layer,
                   sw_site_name(site));
    rc = find_outliers(s, z, name, err);
    if (rc == SW_OK) x->n_sites++;
    return rc;
}

/* How far the statistics are those of the run that made the checkpoint. */
static const char *relation_of(const sw_exhibit *x, const sw_zpack *z)
{
    const cJSON *calibration = sw_json_member(x->manifest, "calibration");
    const char *used = sw_exhibit_text(calibration, "statistics_sha256");
    const char *ids = sw_exhibit_text(calibration, "ids_sha256");
    const char *own = sw_zpack_meta(z, "ids_sha256");

    if (used && !strcmp(used, sw_zpack_sha256(z)))
        return "These are the statistics that the weights were solved with.";
    if (ids && own && !strcmp(ids, own))
        return "They are of the same text as those that the weights were solved with.";
    return "Whether the weights were solved with the same text, the manifest does not say.";
}

static sw_code relate(sw_exhibit *x, const sw_zpack *z, sw_err *err)
{
    const char *model = sw_zpack_meta(z, "model_sha256"), *n = sw_zpack_meta(z, "samples");
    const char *length = sw_zpack_meta(z, "seq_len");
    char *text;
    sw_code rc = sw_arena_print(&text, &x->arena, err, "Of model %.12s..., over %.20s windows of "
                                "%.20s tokens. %s", model ? model : "?", n ? n : "?",
                                length ? length : "?", relation_of(x, z));

    if (rc == SW_OK) x->stats_relation = text;
    return rc;
}

sw_code sw_exhibit_add_stats(sw_exhibit *x, const char *path, sw_err *err)
{
    int64_t n_layers = x->ckpt.model.n_layers + 1;
    const char *kind;
    sw_range *range = NULL;
    sw_zpack *z = NULL;
    sw_code rc = sw_zpack_open(&z, path, err);

    if (rc != SW_OK) return rc;
    kind = sw_zpack_meta(z, "kind");
    if (!kind || strcmp(kind, SW_STATS_KIND) != 0) {
        rc = SW_FAIL(err, SW_E_USAGE, "not statistics of `swage calibrate` of this version");
        goto done;
    }
    if ((rc = SW_ARENA_TAKE(&x->sites, &x->arena, n_layers * SW_SITE_COUNT, err)) != SW_OK ||
        (rc = SW_MEM_GET(&range, 1, "range of activations", err)) != SW_OK)
        goto done;
    for (int64_t layer = 0; layer < n_layers && rc == SW_OK; layer++)
        for (int site = 0; site < SW_SITE_COUNT && rc == SW_OK; site++)
            if (sw_model_site_width(&x->ckpt.model, layer, (sw_site)site))
                rc = add_site(x, z, range, layer, (sw_site)site, err);
    x->stats_path = path;
    if (rc == SW_OK) rc = relate(x, z, err);
done:
    sw_err_prefix(err, "%s", path);
    sw_mem_put(range);
    sw_zpack_close(z);
    return rc;
}
