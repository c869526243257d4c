/* quantize.c - one matrix to 4 bits, by rounding and by GPTQ: quantize CHECKPOINT MODULE
 *
 * A stranger would bring the inputs of his calibration text. Here they are made up: correlated
 * noise with a few strong channels, as those of a transformer are. Prints the relative output
 * errors of both, and fails when GPTQ is not the better one. */
#include <inttypes.h>
#include <libswage.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_TOKENS 512

static double noise(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 33) / (double)(1u << 30) - 1.0;
}

/* hessian [k, k] = sum x x^T */
static void calibrate(double *hessian, double *x, int64_t k)
{
    uint64_t state = 1;

    memset(hessian, 0, (size_t)(k * k) * sizeof *hessian);
    for (int t = 0; t < N_TOKENS; t++) {
        const double shared = noise(&state);
        for (int64_t i = 0; i < k; i++)
            x[i] = (shared + noise(&state)) * (i % 17 ? 1.0 : 8.0);
        for (int64_t i = 0; i < k; i++)
            for (int64_t j = 0; j < k; j++) hessian[i * k + j] += x[i] * x[j];
    }
}

static int quantize(const float *w, const sw_linear_info *linear, const double *hessian)
{
    static const char *const methods[] = {"rtn", "gptq"};
    double errors[2];
    sw_error error;

    for (int i = 0; i < 2; i++) {
        sw_quantize_options options = SW_QUANTIZE_OPTIONS_INIT;
        sw_quantize_report report;
        sw_matrix *matrix = NULL;

        options.scheme = "W4A16";
        options.group_elems = 64;
        options.method = methods[i];
        options.hessian = hessian;
        options.n_tokens = N_TOKENS;
        if (sw_matrix_quantize(&matrix, &report, w, linear->n_out, linear->k_in, &options,
                               &error)) {
            fprintf(stderr, "quantize: %s\n", error.text);
            return error.code;
        }
        printf("%s: error %.3e\n", methods[i], report.error);
        errors[i] = report.error;
        sw_matrix_free(matrix);
    }
    return errors[1] < errors[0] ? 0 : 1;
}

static int run(const sw_source *source, const char *path)
{
    sw_linear_info linear;
    sw_error error;
    int64_t i = 0, k;
    float *w;
    double *hessian, *x;
    int code;

    while (!(code = sw_source_linear(&linear, source, i++, &error)) && strcmp(linear.path, path)) {}
    if (code) {
        fprintf(stderr, "quantize: %s: %s\n", path, error.text);
        return code;
    }
    k = linear.k_in;
    w = malloc((size_t)(linear.n_out * k) * sizeof *w);
    hessian = malloc((size_t)(k * k) * sizeof *hessian);
    x = malloc((size_t)k * sizeof *x);
    code = !w || !hessian || !x ? SW_ERROR_MEMORY
                                : sw_source_decode(w, linear.n_out * k, source, path, &error);
    if (!code) {
        calibrate(hessian, x, k);
        code = quantize(w, &linear, hessian);
    }
    free(w);
    free(hessian);
    free(x);
    return code;
}

int main(int argc, char **argv)
{
    sw_source *source = NULL;
    sw_error error;
    int code;

    if (argc != 3) {
        fprintf(stderr, "usage: quantize CHECKPOINT MODULE\n");
        return SW_ERROR_USAGE;
    }
    if ((code = sw_source_open(&source, argv[1], &error)))
        fprintf(stderr, "quantize: %s\n", error.text);
    else
        code = run(source, argv[2]);
    sw_source_close(source);
    return code;
}
