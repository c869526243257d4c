/* convert.c - between formats:
 *     convert CHECKPOINT FORMAT OUT
 *     convert CHECKPOINT FORMAT MODULE -
 *
 * The first form writes a whole checkpoint. The second prints what the format would store for
 * one quantized module, without writing anything. */
#include <inttypes.h>
#include <libswage.h>
#include <stdio.h>
#include <string.h>

static int print_module(const char *path, const char *format, const char *module, sw_error *error)
{
    sw_source *source = NULL;
    sw_matrix *matrix = NULL;
    sw_encoded *encoded = NULL;
    int code = sw_source_open(&source, path, error);

    if (!code) code = sw_source_matrix(&matrix, source, module, error);
    if (!code) code = sw_encoded_new(&encoded, matrix, format, error);
    for (int i = 0; !code && i < sw_encoded_n_tensors(encoded); i++) {
        sw_tensor_info tensor;
        const unsigned char *bytes = sw_encoded_tensor(&tensor, encoded, i);
        uint32_t sum = 0;

        for (uint64_t b = 0; b < tensor.n_bytes; b++) sum = sum * 31 + bytes[b];
        printf("%s.%s %s", module, tensor.name, tensor.dtype);
        for (int d = 0; d < tensor.n_dims; d++) printf(" %" PRId64, tensor.shape[d]);
        printf(" sum %08" PRIx32 "\n", sum);
    }
    sw_encoded_free(encoded);
    sw_matrix_free(matrix);
    sw_source_close(source);
    return code;
}

int main(int argc, char **argv)
{
    sw_convert_result result;
    sw_error error;
    int code;

    if (argc == 5 && !strcmp(argv[4], "-")) {
        code = print_module(argv[1], argv[2], argv[3], &error);
    } else if (argc == 4) {
        code = sw_convert(&result, argv[1], argv[3], argv[2], NULL, &error);
        if (!code)
            printf("%" PRId64 " linears exact, %" PRId64 " decoded, %" PRIu64 " -> %" PRIu64
                   " bytes\n", result.n_exact, result.n_decoded, result.source_bytes,
                   result.out_bytes);
    } else {
        fprintf(stderr, "usage: convert CHECKPOINT FORMAT OUT | CHECKPOINT FORMAT MODULE -\n");
        return SW_ERROR_USAGE;
    }
    if (code) fprintf(stderr, "convert: %s\n", error.text);
    return code;
}
