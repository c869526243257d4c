/* rules.c - see rules.h. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "formats/dialect/rules.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

/* Steps of a match before a pattern counts as hostile: names are short. */
#define MATCH_LIMIT 100000

typedef struct exact_rule {
    const char *path;
    int64_t at; /* in config->rules */
} exact_rule;

typedef struct pattern_rule {
    pcre2_code *code;
    int64_t at;
} pattern_rule;

struct sw_rules {
    const sw_qconfig *config;
    exact_rule *exact;       /* by path, then by position */
    pattern_rule *patterns;  /* by position */
    int64_t n_exact, n_patterns;
    pcre2_match_context *limits;
};

static int compare_exact(const void *a, const void *b)
{
    const exact_rule *x = a, *y = b;
    int order = strcmp(x->path, y->path);

    return order ? order : x->at < y->at ? -1 : x->at > y->at;
}

static sw_code compile(sw_rules *rules, const char *pattern, int64_t at, sw_err *err)
{
    pattern_rule *rule = &rules->patterns[rules->n_patterns];
    PCRE2_UCHAR why[128];
    PCRE2_SIZE where;
    int number;

    rule->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                               PCRE2_UTF | PCRE2_ANCHORED, &number, &where, NULL);
    if (!rule->code) {
        (void)pcre2_get_error_message(number, why, sizeof why);
        return SW_FAIL(err, SW_E_FORMAT, "pattern \"%.100s\": %s, at character %zu", pattern,
                       (const char *)why, (size_t)where);
    }
    rule->at = at;
    rules->n_patterns++;
    return SW_OK;
}

static sw_code fill(sw_rules *rules, sw_err *err)
{
    const sw_qconfig *config = rules->config;
    sw_code rc;

    rules->limits = pcre2_match_context_create(NULL);
    if (!rules->limits) return SW_FAIL(err, SW_E_NOMEM, "no memory for patterns");
    (void)pcre2_set_match_limit(rules->limits, MATCH_LIMIT);
    if ((rc = SW_MEM_GET(&rules->exact, config->n_rules, "rules", err)) != SW_OK ||
        (rc = SW_MEM_GET(&rules->patterns, config->n_rules, "rules", err)) != SW_OK)
        return rc;
    for (int64_t i = 0; i < config->n_rules && rc == SW_OK; i++) {
        const sw_qrule *rule = &config->rules[i];
        if (!rule->is_exact)
            rc = compile(rules, rule->pattern, i, err);
        else
            rules->exact[rules->n_exact++] = (exact_rule){rule->pattern, i};
    }
    if (rules->n_exact)
        qsort(rules->exact, (size_t)rules->n_exact, sizeof *rules->exact, compare_exact);
    return rc;
}

sw_code sw_rules_new(sw_rules **out, const sw_qconfig *config, sw_err *err)
{
    sw_rules *rules = NULL;
    sw_code rc = SW_MEM_GET(&rules, 1, "rules", err);

    if (rc != SW_OK) return rc;
    rules->config = config;
    if ((rc = fill(rules, err)) == SW_OK)
        *out = rules;
    else
        sw_rules_free(rules);
    return rc;
}

void sw_rules_free(sw_rules *rules)
{
    if (!rules) return;
    for (int64_t i = 0; i < rules->n_patterns; i++) pcre2_code_free(rules->patterns[i].code);
    pcre2_match_context_free(rules->limits);
    sw_mem_put(rules->exact);
    sw_mem_put(rules->patterns);
    sw_mem_put(rules);
}

/* Position of the first exact rule for the path; n_rules when there is none. */
static int64_t exact_at(const sw_rules *rules, const char *path)
{
    int64_t low = 0, high = rules->n_exact;

    while (low < high) {
        int64_t mid = low + (high - low) / 2;
        if (strcmp(rules->exact[mid].path, path) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    if (low < rules->n_exact && !strcmp(rules->exact[low].path, path)) return rules->exact[low].at;
    return rules->config->n_rules;
}

/* Lower *best to the first pattern before it that matches. */
static sw_code pattern_at(int64_t *best, const sw_rules *rules, const char *path, sw_err *err)
{
    for (int64_t i = 0; i < rules->n_patterns && rules->patterns[i].at < *best; i++) {
        const pattern_rule *rule = &rules->patterns[i];
        pcre2_match_data *match = pcre2_match_data_create(1, NULL);
        int rc;

        if (!match) return SW_FAIL(err, SW_E_NOMEM, "no memory for a match");
        rc = pcre2_match(rule->code, (PCRE2_SPTR)path, PCRE2_ZERO_TERMINATED, 0, 0, match,
                         rules->limits);
        pcre2_match_data_free(match);
        if (rc == PCRE2_ERROR_NOMATCH) continue;
        if (rc < 0)
            return SW_FAIL(err, SW_E_FORMAT, "pattern \"%.100s\" is too expensive to match",
                           rules->config->rules[rule->at].pattern);
        *best = rule->at;
    }
    return SW_OK;
}

sw_code sw_rules_find(sw_qspec *out, const sw_rules *rules, const char *module_path, sw_err *err)
{
    const sw_qconfig *config = rules->config;
    int64_t at = exact_at(rules, module_path);
    sw_code rc = pattern_at(&at, rules, module_path, err);

    if (rc != SW_OK) return rc;
    if (at == config->n_rules && config->has_no_default)
        return SW_FAIL(err, SW_E_FORMAT, "no rule of the quantization_config names %s",
                       module_path);
    *out = at < config->n_rules ? config->rules[at].spec : config->spec;
    return SW_OK;
}
