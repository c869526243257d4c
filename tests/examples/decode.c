/* decode.c - the values of a weight as floats: decode CHECKPOINT NAME
 *
 * NAME is a module ("model.layers.0.mlp.up_proj") or a tensor ("model.norm.weight"). Prints how
 * many values there are, their sum and their largest magnitude; writes nothing. A quantized
 * module is decoded a second time by rows, which must give the same bits. */
#include <inttypes.h>
#include <libswage.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How many values has the module or tensor? 0: there is none of the name. */
static int64_t size_of(const sw_source *source, const char *name)
{
    sw_linear_info linear;
    sw_tensor_info tensor;
    int64_t n = 1;

    for (int64_t i = 0; !sw_source_linear(&linear, source, i, NULL); i++)
        if (!strcmp(linear.path, name)) return linear.n_out * linear.k_in;
    for (int64_t i = 0; !sw_source_tensor(&tensor, source, i, NULL); i++) {
        if (strcmp(tensor.name, name)) continue;
        for (int d = 0; d < tensor.n_dims; d++) n *= tensor.shape[d];
        return n;
    }
    return 0;
}

/* 0 when rows of the matrix are the bits of `values`, or when it is stored in floats. */
static int rows_differ(const sw_source *source, const char *name, const float *values)
{
    sw_matrix *matrix = NULL;
    float *row;
    int differ = 0;

    if (sw_source_matrix(&matrix, source, name, NULL)) return 0;
    row = malloc((size_t)sw_matrix_k_in(matrix) * sizeof *row);
    for (int64_t n = 0; row && n < sw_matrix_n_out(matrix) && !differ; n++)
        differ = sw_matrix_decode(row, matrix, n, 1, NULL) ||
                 memcmp(row, values + n * sw_matrix_k_in(matrix),
                        (size_t)sw_matrix_k_in(matrix) * sizeof *row);
    differ = differ || !row;
    free(row);
    sw_matrix_free(matrix);
    return differ;
}

int main(int argc, char **argv)
{
    sw_source *source = NULL;
    sw_error error;
    float *values = NULL;
    double sum = 0, most = 0;
    int64_t n;
    int code;

    if (argc != 3) {
        fprintf(stderr, "usage: decode CHECKPOINT NAME\n");
        return SW_ERROR_USAGE;
    }
    if (!(code = sw_source_open(&source, argv[1], &error))) {
        n = size_of(source, argv[2]);
        values = malloc(((size_t)n + 1) * sizeof *values);
        code = sw_source_decode(values, n, source, argv[2], &error);
    }
    if (code) {
        fprintf(stderr, "decode: %s\n", error.text);
    } else {
        for (int64_t i = 0; i < n; i++) {
            sum += (double)values[i];
            most = fmax(most, fabs((double)values[i]));
        }
        printf("%" PRId64 " values, sum %.9g, largest %.9g\n", n, sum, most);
        code = rows_differ(source, argv[2], values);
    }
    free(values);
    sw_source_close(source);
    return code;
}
