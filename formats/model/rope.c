/* rope.c - rotary position embeddings: the config keys, and the frequencies they stand for.
 *
 * Base formula: Su et al., RoFormer (2021), section 3.4. linear: positions divided (Chen et al.
 * 2023). dynamic: NTK-aware base by length. llama3: the Llama 3.1 report's wavelength bands.
 * yarn: Peng et al. (2023), section 3. longrope: Ding et al. (2024), with the Phi-3 models'
 * factor on cosines and sines. Arithmetic is single precision and in the order of the
 * library the models were published with, since a frequency off by one ulp turns a far
 * position by a visible angle.
 */
#include <math.h>
#include <string.h>

#include "formats/model/model.h"

#define POSITIONS_MAX ((int64_t)1 << 31)

static const char *const kind_names[] = {
    [SW_ROPE_DEFAULT] = "default", [SW_ROPE_LINEAR] = "linear", [SW_ROPE_DYNAMIC] = "dynamic",
    [SW_ROPE_LLAMA3] = "llama3",   [SW_ROPE_YARN] = "yarn",     [SW_ROPE_LONGROPE] = "longrope",
    [SW_ROPE_PROPORTIONAL] = "proportional",
};
#define N_KINDS ((int)(sizeof kind_names / sizeof kind_names[0]))

const char *sw_rope_kind_name(sw_rope_kind kind) { return kind_names[kind]; }

/* The rope keys: one object, or in newer configs one per layer type. window is NULL unless there
 * are two that differ. */
typedef struct rope_objects {
    const cJSON *all, *window;
} rope_objects;

static sw_code pick_objects(rope_objects *out, const cJSON *object, const char *key, sw_err *err)
{
    const cJSON *full, *window, *member, *picked = NULL;
    bool is_same = true;

    if (object && !cJSON_IsObject(object))
        return SW_FAIL(err, SW_E_FORMAT, "%s: not an object", key);
    cJSON_ArrayForEach(member, object)
    {
        if (!cJSON_IsObject(member)) continue;
        is_same = is_same && (!picked || cJSON_Compare(picked, member, true));
        picked = member;
    }
    *out = (rope_objects){picked ? picked : object, NULL};
    if (is_same) return SW_OK;
    full = sw_json_member(object, "full_attention");
    window = sw_json_member(object, "sliding_attention");
    if (!full && !window) { /* as DeepSeek-V4 calls them */
        full = sw_json_member(object, "compress");
        window = sw_json_member(object, "main");
    }
    if (!cJSON_IsObject(full) || !cJSON_IsObject(window))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: differs between layer types that are not "
                       "full_attention and sliding_attention", key);
    *out = (rope_objects){full, window};
    return SW_OK;
}

static sw_code read_kind(sw_rope_kind *out, const cJSON *object, sw_err *err)
{
    const char *name = "default";
    sw_code rc;

    if ((rc = sw_json_text(&name, object, "type", err)) != SW_OK) return rc;
    if ((rc = sw_json_text(&name, object, "rope_type", err)) != SW_OK) return rc;
    if (!strcmp(name, "su")) name = "longrope"; /* as it was called first */
    /* Positions of pictures have three numbers; those of text are equal, and so is the rope. */
    if (!strcmp(name, "mrope")) name = "default";
    for (int i = 0; i < N_KINDS; i++) {
        if (strcmp(kind_names[i], name)) continue;
        *out = (sw_rope_kind)i;
        return SW_OK;
    }
    return SW_FAIL(err, SW_E_UNSUPPORTED,
                   "rope_type: \"%.60s\" is not supported; there are default, linear, dynamic, "
                   "llama3, yarn, longrope, proportional",
                   name);
}

static sw_code read_theta(double *out, const cJSON *config, const cJSON *object, double theta,
                          sw_err *err)
{
    sw_code rc;

    if ((rc = sw_json_real(&theta, config, "rotary_emb_base", err)) != SW_OK) return rc;
    if ((rc = sw_json_real(&theta, config, "rope_theta", err)) != SW_OK) return rc;
    if ((rc = sw_json_real(&theta, object, "rope_theta", err)) != SW_OK) return rc;
    if (!(theta > 1.0 && theta <= 1e30))
        return SW_FAIL(err, SW_E_FORMAT, "rope_theta: %g, must be above 1", theta);
    *out = theta;
    return SW_OK;
}

/* How much of each head turns: an even number of elements from its start. */
static sw_code read_part(int64_t *rope_dim, const cJSON *config, const cJSON *object,
                         int64_t head_dim, sw_err *err)
{
    double part = 1.0;
    int64_t dim = head_dim;
    sw_code rc;

    /* some configs give the number of elements instead */
    if ((rc = sw_json_int(&dim, config, "rotary_dim", 1, head_dim, err)) != SW_OK) return rc;
    part = (double)dim / (double)head_dim;
    if ((rc = sw_json_real(&part, config, "rotary_pct", err)) != SW_OK) return rc;
    if ((rc = sw_json_real(&part, config, "partial_rotary_factor", err)) != SW_OK) return rc;
    if ((rc = sw_json_real(&part, object, "partial_rotary_factor", err)) != SW_OK) return rc;
    dim = part > 0.0 && part <= 1.0 ? (int64_t)((double)head_dim * part) : 0;
    if (dim < 2 || dim % 2)
        return SW_FAIL(err, SW_E_FORMAT,
                       "partial_rotary_factor: %g turns %lld of the %lld elements of a head, must "
                       "be an even number above 0", part, (long long)dim, (long long)head_dim);
    *rope_dim = dim;
    return SW_OK;
}

static sw_code read_reals(sw_rope *rope, const cJSON *object, sw_err *err)
{
    const struct {
        const char *key;
        double *value;
    } reals[] = {
        {"factor", &rope->factor},
        {"low_freq_factor", &rope->low_freq_factor},
        {"high_freq_factor", &rope->high_freq_factor},
        {"beta_fast", &rope->beta_fast},
        {"beta_slow", &rope->beta_slow},
        {"attention_factor", &rope->attention_factor},
        {"mscale", &rope->mscale},
        {"mscale_all_dim", &rope->mscale_all_dim},
    };
    sw_code rc;

    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++) {
        rc = sw_json_real(reals[i].value, object, reals[i].key, err);
        if (rc != SW_OK) return rc;
        if (sw_json_member(object, reals[i].key) &&
            !(*reals[i].value >= 0.0 && *reals[i].value <= 1e9))
            return SW_FAIL(err, SW_E_FORMAT, "%s: %g, must be in [0, 1e9]", reals[i].key,
                           *reals[i].value);
    }
    if (rope->beta_fast == 0.0) rope->beta_fast = 32.0;
    if (rope->beta_slow == 0.0) rope->beta_slow = 1.0;
    return sw_json_bool(&rope->truncate, object, "truncate", err);
}

static sw_code read_list(float *out, const cJSON *object, const char *key, int64_t n, sw_err *err)
{
    const cJSON *list = sw_json_member(object, key), *item;
    int64_t i = 0;

    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != n || n > SW_ROPE_PAIRS_MAX)
        return SW_FAIL(err, SW_E_FORMAT, "%s: not a list of %lld numbers, at most %d", key,
                       (long long)n, SW_ROPE_PAIRS_MAX);
    cJSON_ArrayForEach(item, list)
    {
        if (!cJSON_IsNumber(item) || !(item->valuedouble > 1e-6 && item->valuedouble < 1e6))
            return SW_FAIL(err, SW_E_FORMAT, "%s: entry %lld is no number above 0", key,
                           (long long)i);
        out[i++] = (float)item->valuedouble;
    }
    return SW_OK;
}

/* How far the context was stretched is told by the two lengths. */
static sw_code read_longrope(sw_rope *rope, const sw_model *m, const cJSON *object, sw_err *err)
{
    sw_code rc;

    if (rope->kind != SW_ROPE_LONGROPE) return SW_OK;
    if ((rc = read_list(rope->short_factors, object, "short_factor", m->rope_dim / 2, err)) ||
        (rc = read_list(rope->long_factors, object, "long_factor", m->rope_dim / 2, err)))
        return rc;
    if (rope->original_max_positions < 2)
        return SW_FAIL(err, SW_E_FORMAT, "original_max_position_embeddings: %lld, must be 2 or "
                       "more", (long long)rope->original_max_positions);
    rope->factor = (double)m->max_positions / (double)rope->original_max_positions;
    return SW_OK;
}

static sw_code check_rope(const sw_rope *rope, int64_t rope_dim, sw_err *err)
{
    if (rope->kind == SW_ROPE_DEFAULT || rope->kind == SW_ROPE_PROPORTIONAL) return SW_OK;
    if (!(rope->factor > 0.0))
        return SW_FAIL(err, SW_E_FORMAT, "factor: rope type %s needs one above 0",
                       kind_names[rope->kind]);
    if (rope->kind == SW_ROPE_LLAMA3 &&
        !(rope->low_freq_factor > 0.0 && rope->high_freq_factor > rope->low_freq_factor))
        return SW_FAIL(err, SW_E_FORMAT,
                       "high_freq_factor: %g, must be above low_freq_factor = %g, above 0",
                       rope->high_freq_factor, rope->low_freq_factor);
    if (rope->kind == SW_ROPE_DYNAMIC && (rope_dim <= 2 || rope->factor < 1.0))
        return SW_FAIL(err, SW_E_FORMAT,
                       "rope type dynamic needs a factor of at least 1 and head_dim above 2");
    return SW_OK;
}

/* The whole head counts in the exponent, and only the first pairs turn. */
static sw_code read_proportional(sw_rope *rope, const cJSON *object, sw_err *err)
{
    sw_code rc;

    if (rope->kind != SW_ROPE_PROPORTIONAL) return SW_OK;
    rope->part = 1.0;
    if ((rc = sw_json_real(&rope->part, object, "partial_rotary_factor", err)) != SW_OK) return rc;
    if (!(rope->part > 0.0 && rope->part <= 1.0))
        return SW_FAIL(err, SW_E_FORMAT, "partial_rotary_factor: %g, must be above 0 and at most 1",
                       rope->part);
    if (!(rope->factor > 0.0)) rope->factor = 1.0;
    return SW_OK;
}

/* A base stretched once and for all, by a key of its own. */
static sw_code read_alpha(sw_rope *rope, int64_t rope_dim, const cJSON *object, sw_err *err)
{
    double alpha = 1.0;
    sw_code rc;

    if (rope->kind != SW_ROPE_DYNAMIC || !sw_json_member(object, "alpha")) return SW_OK;
    if ((rc = sw_json_real(&alpha, object, "alpha", err)) != SW_OK) return rc;
    if (!(alpha > 0.0 && alpha <= 1e9) || rope_dim <= 2)
        return SW_FAIL(err, SW_E_FORMAT, "alpha: %g, must be above 0 and at most 1e9", alpha);
    rope->theta *= pow(alpha, (double)rope_dim / (double)(rope_dim - 2));
    rope->kind = SW_ROPE_DEFAULT;
    return SW_OK;
}

static sw_code read_one(sw_rope *out, const sw_model *m, const cJSON *config,
                        const cJSON *object, sw_err *err)
{
    sw_rope rope = {.attention_factor = -1.0, .truncate = true, .beta_fast = 32.0,
                    .beta_slow = 1.0, .original_max_positions = m->max_positions};
    sw_code rc;

    if ((rc = read_kind(&rope.kind, object, err)) != SW_OK) return rc;
    if ((rc = read_theta(&rope.theta, config, object, m->arch->default_theta, err)) != SW_OK)
        return rc;
    if ((rc = read_reals(&rope, object, err)) != SW_OK) return rc;
    if ((rc = sw_json_int(&rope.original_max_positions, object,
                          "original_max_position_embeddings", 1, POSITIONS_MAX, err)) != SW_OK)
        return rc;
    /* Some configs keep it beside the object; then that one is meant. */
    if ((rc = sw_json_int(&rope.original_max_positions, config,
                          "original_max_position_embeddings", 1, POSITIONS_MAX, err)) != SW_OK)
        return rc;
    if (rope.kind == SW_ROPE_YARN && !sw_json_member(object, "factor"))
        rope.factor = (double)m->max_positions / (double)rope.original_max_positions;
    if ((rc = read_longrope(&rope, m, object, err)) != SW_OK) return rc;
    if ((rc = read_proportional(&rope, object, err)) != SW_OK) return rc;
    if ((rc = read_alpha(&rope, m->rope_dim, object, err)) != SW_OK) return rc;
    if ((rc = check_rope(&rope, m->rope_dim, err)) != SW_OK) return rc;
    *out = rope;
    return SW_OK;
}

/* What one key says, into the rope members of *m. */
static sw_code read_key(sw_model *m, const cJSON *config, const cJSON *object, const char *key,
                        sw_err *err)
{
    rope_objects objects = {NULL, NULL};
    sw_code rc;

    if ((rc = pick_objects(&objects, object, key, err)) != SW_OK) return rc;
    if ((rc = read_part(&m->rope_dim, config, objects.all, m->head_dim, err)) != SW_OK) return rc;
    if ((rc = read_one(&m->rope, m, config, objects.all, err)) != SW_OK) return rc;
    m->has_window_rope = objects.window != NULL;
    return objects.window ? read_one(&m->window_rope, m, config, objects.window, err) : SW_OK;
}

/* Is a member of the object an object, as where layer types have ropes of their own? */
static bool is_by_layer_type(const cJSON *object)
{
    const cJSON *member;

    cJSON_ArrayForEach(member, object)
    {
        if (cJSON_IsObject(member)) return true;
    }
    return false;
}

/* Two ropes that turn alike. A default one has a base and nothing else. */
static bool is_same_rope(const sw_rope *a, const sw_rope *b)
{
    const double have[] = {a->theta, a->factor, a->low_freq_factor, a->high_freq_factor,
                           a->beta_fast, a->beta_slow, a->attention_factor, a->mscale,
                           a->mscale_all_dim, a->part, (double)a->original_max_positions};
    const double want[] = {b->theta, b->factor, b->low_freq_factor, b->high_freq_factor,
                           b->beta_fast, b->beta_slow, b->attention_factor, b->mscale,
                           b->mscale_all_dim, b->part, (double)b->original_max_positions};
    const size_t n = a->kind == SW_ROPE_DEFAULT ? 1 : sizeof have / sizeof *have;

    return a->kind == b->kind && a->dim == b->dim && a->truncate == b->truncate &&
           !memcmp(have, want, n * sizeof *have) &&
           !memcmp(a->short_factors, b->short_factors, sizeof a->short_factors) &&
           !memcmp(a->long_factors, b->long_factors, sizeof a->long_factors);
}

/* Both keys are there. transformers 5 takes rope_scaling in place of rope_parameters, whose
 * rope_theta then is not looked at either; of ropes by layer type it changes the one of full
 * attention. Engines read the one or the other, so the same model must come of both. */
static sw_code read_both(sw_model *m, const cJSON *config, const cJSON *older, const cJSON *newer,
                         sw_err *err)
{
    sw_model by_older = *m;
    sw_code rc;

    if ((rc = read_key(m, config, newer, "rope_parameters", err)) != SW_OK) return rc;
    if (is_by_layer_type(newer)) {
        rc = read_one(&by_older.rope, &by_older, config, older, err);
        by_older.has_window_rope = m->has_window_rope;
        by_older.window_rope = m->window_rope;
        by_older.rope_dim = m->rope_dim;
        by_older.rope.theta = m->rope.theta; /* an update leaves it */
    } else {
        rc = read_key(&by_older, config, older, "rope_scaling", err);
    }
    if (rc != SW_OK) return rc;
    by_older.has_two_ropes = by_older.rope_dim != m->rope_dim ||
                             by_older.has_window_rope != m->has_window_rope ||
                             !is_same_rope(&by_older.rope, &m->rope) ||
                             !is_same_rope(&by_older.window_rope, &m->window_rope);
    *m = by_older;
    return SW_OK;
}

sw_code sw_rope_read(sw_model *m, const cJSON *config, sw_err *err)
{
    const cJSON *newer = sw_json_member(config, "rope_parameters");
    const cJSON *older = sw_json_member(config, "rope_scaling");
    const bool is_older = older && (!cJSON_IsObject(older) || older->child);

    if (newer && is_older) return read_both(m, config, older, newer, err);
    return is_older ? read_key(m, config, older, "rope_scaling", err)
                    : read_key(m, config, newer, "rope_parameters", err);
}

sw_code sw_rope_check_once(const sw_model *m, sw_err *err)
{
    if (!m->has_two_ropes) return SW_OK;
    return SW_FAIL(err, SW_E_FORMAT, "rope_scaling and rope_parameters say different things: "
                   "transformers would compute by the first (%s, rope_theta %g), others by "
                   "the second; take the wrong one out", kind_names[m->rope.kind], m->rope.theta);
}

/* theta^(2i/D), single precision throughout. */
static float period(float theta, int64_t i, int64_t head_dim)
{
    return powf(theta, (float)(2 * i) / (float)head_dim);
}

static void plain_frequencies(float *inv_freq, float theta, int64_t head_dim)
{
    for (int64_t i = 0; i < head_dim / 2; i++) inv_freq[i] = 1.0f / period(theta, i, head_dim);
}

static void dynamic_frequencies(float *inv_freq, const sw_model *m, const sw_rope *rope,
                                int64_t seq_len)
{
    const int64_t n = rope->dim ? rope->dim : m->rope_dim;
    const double dim = (double)n;
    const float factor = (float)rope->factor, max = (float)m->max_positions;
    const float len = (float)(seq_len > m->max_positions ? seq_len : m->max_positions);
    const float growth = factor * len / max - (float)(rope->factor - 1.0);
    const float base = (float)rope->theta * powf(growth, (float)(dim / (dim - 2.0)));

    plain_frequencies(inv_freq, base, n);
}

static void llama3_frequencies(float *inv_freq, const sw_rope *rope, int64_t dim)
{
    const double old_len = (double)rope->original_max_positions;
    const float low_wave = (float)(old_len / rope->low_freq_factor);
    const float high_wave = (float)(old_len / rope->high_freq_factor);
    const float low = (float)rope->low_freq_factor, factor = (float)rope->factor;
    const float band = (float)(rope->high_freq_factor - rope->low_freq_factor);

    plain_frequencies(inv_freq, (float)rope->theta, dim);
    for (int64_t i = 0; i < dim / 2; i++) {
        const float f = inv_freq[i];
        const float wave = 1.0f / f * (float)(2.0 * M_PI);
        const float smooth = (1.0f / wave * (float)old_len - low) / band;

        if (wave > low_wave)
            inv_freq[i] = f / factor;
        else if (wave >= high_wave)
            inv_freq[i] = (1.0f - smooth) * f / factor + smooth * f;
    }
}

/* The dimension whose wavelength makes `turns` turns in the trained length. */
static double yarn_dim(double turns, const sw_rope *rope, int64_t dim)
{
    return (double)dim *
           log((double)rope->original_max_positions / (turns * 2.0 * M_PI)) /
           (2.0 * log(rope->theta));
}

static void yarn_frequencies(float *inv_freq, const sw_rope *rope, int64_t dim)
{
    double low = yarn_dim(rope->beta_fast, rope, dim), high = yarn_dim(rope->beta_slow, rope, dim);

    if (rope->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0.0);
    high = fmin(high, (double)(dim - 1));
    if (low == high) high += 0.001; /* no division by zero in the ramp */
    for (int64_t i = 0; i < dim / 2; i++) {
        const float p = period((float)rope->theta, i, dim);
        const float at = ((float)i - (float)low) / (float)(high - low);
        const float keep = 1.0f - fminf(fmaxf(at, 0.0f), 1.0f);

        inv_freq[i] =
            1.0f / ((float)rope->factor * p) * (1.0f - keep) + 1.0f / p * keep;
    }
}

static double yarn_mscale(double factor, double mscale)
{
    return factor <= 1.0 ? 1.0 : 0.1 * mscale * log(factor) + 1.0;
}

static double yarn_scale(const sw_rope *rope)
{
    if (rope->attention_factor >= 0.0) return rope->attention_factor;
    if (rope->mscale != 0.0 && rope->mscale_all_dim != 0.0)
        return yarn_mscale(rope->factor, rope->mscale) /
               yarn_mscale(rope->factor, rope->mscale_all_dim);
    return yarn_mscale(rope->factor, 1.0);
}

static double longrope_scale(const sw_rope *rope)
{
    if (rope->attention_factor >= 0.0) return rope->attention_factor;
    if (rope->factor <= 1.0) return 1.0;
    return sqrt(1.0 + log(rope->factor) / log((double)rope->original_max_positions));
}

static void longrope_frequencies(float *inv_freq, const sw_rope *rope, int64_t dim, bool is_long)
{
    const float *factors = is_long ? rope->long_factors : rope->short_factors;

    for (int64_t i = 0; i < dim / 2; i++)
        inv_freq[i] = 1.0f / (factors[i] * period((float)rope->theta, i, dim));
}

bool sw_rope_depends_on(const sw_model *m, const sw_rope *rope, int64_t seq_len)
{
    if (rope->kind == SW_ROPE_DYNAMIC) return seq_len > m->max_positions;
    return rope->kind == SW_ROPE_LONGROPE && seq_len > rope->original_max_positions;
}

void sw_rope_frequencies(float *inv_freq, float *cos_sin_scale, const sw_model *m,
                         const sw_rope *rope, int64_t seq_len)
{
    const int64_t dim = rope->dim ? rope->dim : m->rope_dim;

    *cos_sin_scale = rope->kind == SW_ROPE_YARN       ? (float)yarn_scale(rope)
                     : rope->kind == SW_ROPE_LONGROPE ? (float)longrope_scale(rope)
                                                      : 1.0f;
    if (rope->kind == SW_ROPE_LONGROPE)
        longrope_frequencies(inv_freq, rope, dim, sw_rope_depends_on(m, rope, seq_len));
    else if (rope->kind == SW_ROPE_DYNAMIC)
        dynamic_frequencies(inv_freq, m, rope, seq_len);
    else if (rope->kind == SW_ROPE_LLAMA3)
        llama3_frequencies(inv_freq, rope, dim);
    else if (rope->kind == SW_ROPE_YARN)
        yarn_frequencies(inv_freq, rope, dim);
    else
        plain_frequencies(inv_freq, (float)rope->theta, dim);
    if (rope->kind == SW_ROPE_PROPORTIONAL)
        for (int64_t i = (int64_t)(rope->part * (double)dim / 2.0); i < dim / 2; i++)
            inv_freq[i] = 0.0f;
    if (rope->kind == SW_ROPE_LINEAR || rope->kind == SW_ROPE_PROPORTIONAL)
        for (int64_t i = 0; i < dim / 2; i++) inv_freq[i] /= (float)rope->factor;
}
