/* multiply.c - a product with a weight of a quantized checkpoint:
 *     multiply CHECKPOINT MODULE [KERNEL]
 *
 * Runs every kernel that can multiply it, or the one named, on the same made-up inputs, and
 * compares with the decoded weight in double. Prints each kernel's relative error (L2). Schemes
 * that quantize their inputs differ by that. */
#include <inttypes.h>
#include <libswage.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define N_TOKENS 5

/* |y - x w^T| / |x w^T| */
static double error_of(const float *y, const float *x, const float *w, int64_t n_out, int64_t k_in)
{
    double lost = 0, power = 0;

    for (int64_t t = 0; t < N_TOKENS; t++)
        for (int64_t n = 0; n < n_out; n++) {
            double want = 0;
            for (int64_t k = 0; k < k_in; k++)
                want += (double)x[t * k_in + k] * (double)w[n * k_in + k];
            lost += pow((double)y[t * n_out + n] - want, 2);
            power += want * want;
        }
    return sqrt(lost / power);
}

/* 0 when the kernel ran or cannot run this weight. */
static int try_kernel(const char *kernel, const sw_matrix *matrix, const float *w, int is_asked)
{
    const int64_t n_out = sw_matrix_n_out(matrix), k_in = sw_matrix_k_in(matrix);
    sw_product *product = NULL;
    sw_error error;
    float *x = malloc((size_t)(N_TOKENS * k_in) * sizeof *x);
    float *y = malloc((size_t)(N_TOKENS * n_out) * sizeof *y);
    int code = !x || !y ? SW_ERROR_MEMORY : sw_product_new(&product, matrix, kernel, &error);

    for (int64_t i = 0; !code && i < N_TOKENS * k_in; i++) x[i] = (float)(i * 7 % 31 - 15) / 13.0f;
    if (!code && !(code = sw_product_run(y, product, x, N_TOKENS, 1, &error)))
        printf("%s: error %.1e\n", sw_product_kernel(product, N_TOKENS),
               error_of(y, x, w, n_out, k_in));
    if (code && is_asked) fprintf(stderr, "multiply: %s\n", error.text);
    sw_product_free(product);
    free(x);
    free(y);
    return is_asked || code != SW_ERROR_USAGE ? code : 0;
}

int main(int argc, char **argv)
{
    sw_source *source = NULL;
    sw_matrix *matrix = NULL;
    sw_error error;
    float *w = NULL;
    int code;

    if (argc < 3) {
        fprintf(stderr, "usage: multiply CHECKPOINT MODULE [KERNEL]\n");
        return SW_ERROR_USAGE;
    }
    if ((code = sw_source_open(&source, argv[1], &error)) ||
        (code = sw_source_matrix(&matrix, source, argv[2], &error))) {
        fprintf(stderr, "multiply: %s\n", error.text);
    } else {
        w = malloc((size_t)(sw_matrix_n_out(matrix) * sw_matrix_k_in(matrix)) * sizeof *w);
        code = w ? sw_matrix_decode(w, matrix, 0, sw_matrix_n_out(matrix), &error)
                 : SW_ERROR_MEMORY;
        if (!code && argc > 3) code = try_kernel(argv[3], matrix, w, 1);
        for (int i = 0; argc == 3 && !code && sw_library_kernel(i); i++)
            code = try_kernel(sw_library_kernel(i), matrix, w, 0);
    }
    free(w);
    sw_matrix_free(matrix);
    sw_source_close(source);
    return code;
}
