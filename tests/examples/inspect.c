/* inspect.c - what is in a checkpoint: inspect CHECKPOINT
 *
 * Prints its format and architecture, how many tensors it has and of how many bytes, and each
 * linear with its scheme. */
#include <inttypes.h>
#include <libswage.h>
#include <stdio.h>

static int fail(const sw_error *error)
{
    fprintf(stderr, "inspect: %s (%s)\n", error->text, sw_error_name(error->code));
    return error->code;
}

int main(int argc, char **argv)
{
    sw_source *source = NULL;
    sw_error error;
    uint64_t n_bytes = 0;
    int code = 0;

    if (argc != 2 || sw_source_open(&source, argv[1], &error)) {
        if (argc == 2) return fail(&error);
        fprintf(stderr, "usage: inspect CHECKPOINT\n");
        return SW_ERROR_USAGE;
    }
    for (int64_t i = 0; i < sw_source_n_tensors(source) && !code; i++) {
        sw_tensor_info tensor;
        code = sw_source_tensor(&tensor, source, i, &error);
        if (!code) n_bytes += tensor.n_bytes;
    }
    printf("%s, %s: %" PRId64 " tensors, %" PRIu64 " bytes\n", sw_source_architecture(source),
           sw_source_format(source), sw_source_n_tensors(source), n_bytes);
    for (int64_t i = 0; i < sw_source_n_linears(source) && !code; i++) {
        sw_linear_info linear;
        if ((code = sw_source_linear(&linear, source, i, &error))) break;
        printf("%s %" PRId64 "x%" PRId64 " ", linear.path, linear.n_out, linear.k_in);
        if (linear.scheme.number)
            printf("%s, groups of %" PRId64 ", scales %s, inputs %s\n", linear.scheme.number,
                   linear.scheme.group_elems, linear.scheme.scale_dtype, linear.scheme.inputs);
        else
            printf("in floats\n");
    }
    if (code) fail(&error);
    sw_source_close(source);
    return code;
}
