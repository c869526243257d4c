/* libswage.h - the C interface of Swage: read quantized checkpoints of any format that it knows,
 * quantize single matrices, convert checkpoints, and multiply by quantized weights on the CPU.
 *
 *     #include <libswage.h>            cc program.c $(pkg-config --cflags --libs swage)
 *
 *   sw_source    an opened checkpoint: what is in it, its tensors as floats, its linears as they
 *                are quantized
 *   sw_matrix    one quantized weight in memory, in no format's order: codes, scales, zero points
 *   sw_encoded    the same weight as the tensors that a format stores for it
 *   sw_product   the same weight in the order that kernels read
 *   sw_convert   a whole checkpoint into another format
 *
 * Everywhere: weights are [n_out, k_in] and activations [n_tokens, k_in], row-major and dense. A
 * function that can fail returns an sw_error code, 0 for success, and describes the failure in
 * *error, which may be NULL; on success *error is left alone, on failure all other outputs are.
 * What a function hands out through a first parameter of type T ** belongs to the caller, who gives
 * it to the T's free or close function, which accepts NULL. Texts handed out belong to the library
 * and end with the object that they came from; those of tables live forever.
 *
 * Threads: functions on different objects may run at once. Functions that take an object as const
 * may run at once on the same object too; what else is so is said where it is declared. n_threads
 * is how many OpenMP threads a call may use, 0 standing for every processor of the process; results
 * do not depend on it. Nothing here prints, exits, installs signal handlers or keeps a lock.
 *
 * Files that are open must not change: they are mapped, and a page that is cut off ends the process
 * with SIGBUS, as it does for every reader of mapped files.
 *
 * Names and meanings stay while the major version does, so that libswage.so.0 serves every
 * program that was built for a version 0.x that is not newer. The file needs C11 or C++11.
 */
#ifndef SW_LIBSWAGE_H
#define SW_LIBSWAGE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What programs call. Everything else in the shared library is hidden. */
#define SW_API __attribute__((visibility("default")))
#define SW_API_CHECKED __attribute__((visibility("default"), warn_unused_result))

/* --- version -------------------------------------------------------------------------------- */

/* The version of this file: 10000 * major + 100 * minor + patch. */
#define SW_LIBRARY_VERSION 100
#define SW_LIBRARY_VERSION_TEXT "0.1.0"

/* The version of the library that is loaded, which may be newer than this file. Never fails. */
SW_API uint32_t sw_library_version(void);
SW_API const char *sw_library_version_text(void);

/* --- errors --------------------------------------------------------------------------------- */

/* They are also the exit codes of the program. New ones may come. */
#define SW_ERROR_NONE 0
#define SW_ERROR_USAGE 2        /* an argument is wrong, or an output is in the way */
#define SW_ERROR_FORMAT 3       /* the bytes of an input are malformed */
#define SW_ERROR_UNSUPPORTED 4  /* well-formed, but nothing here can serve it */
#define SW_ERROR_IO 5           /* the system failed to read or write */
#define SW_ERROR_MEMORY 6
#define SW_ERROR_BUG 70         /* an invariant of the library broke */

#define SW_ERROR_TEXT_BYTES 768

/* The caller's; needs no initialisation. */
typedef struct sw_error {
    int code;
    char text[SW_ERROR_TEXT_BYTES]; /* one line of UTF-8: file, tensor, reason, often a remedy,
                                       which may name an option of the program */
} sw_error;

/* "usage", "format", ...; "unknown" for a code that this version does not have. */
SW_API const char *sw_error_name(int code);

/* --- tables --------------------------------------------------------------------------------- */

/* The i-th name from 0 on, NULL behind the last: of schemes ("W4A16"), formats
 * ("compressed-tensors") and kernels of this build ("w4a16_avx2"). Never fail. */
SW_API const char *sw_library_scheme(int i);
SW_API const char *sw_library_format(int i);
SW_API const char *sw_library_kernel(int i);

/* --- checkpoints ---------------------------------------------------------------------------- */

typedef struct sw_source sw_source;
typedef struct sw_matrix sw_matrix;

#define SW_TENSOR_DIMS_MAX 8

/* A stored tensor. */
typedef struct sw_tensor_info {
    const char *name;
    const char *dtype;                /* as safetensors spells it: "BF16", "I32" */
    int32_t n_dims;
    int64_t shape[SW_TENSOR_DIMS_MAX];
    uint64_t n_bytes;                 /* of the dense tensor */
    uint64_t reserved[4];
} sw_tensor_info;

/* How a weight is quantized. */
typedef struct sw_scheme_info {
    const char *number;      /* "int4", "e2m1", ...; NULL: it is not quantized */
    int32_t bits;            /* of a code */
    int32_t is_symmetric;    /* 1: no zero points */
    int64_t group_elems;     /* inputs that share a scale; 0: all of an output channel */
    const char *scale_dtype; /* "F16", ... */
    char inputs[48];         /* what kernels do to inputs: "16 bit", "int8 per token" */
    uint64_t reserved[4];
} sw_scheme_info;

/* A linear of a decoder block, or the head. */
typedef struct sw_linear_info {
    const char *path;        /* of its module: "model.layers.0.mlp.up_proj" */
    int64_t layer;           /* the number of blocks for the head */
    int64_t expert;          /* -1: none */
    int64_t n_out, k_in;
    sw_scheme_info scheme;
    uint64_t reserved[4];
} sw_linear_info;

/* Open a model directory (config.json with safetensors or pytorch_model.bin) or a .gguf. Maps the
 * weights and reads headers alone. SW_ERROR_IO: nothing to open. SW_ERROR_FORMAT,
 * SW_ERROR_UNSUPPORTED: names file and offender. */
SW_API_CHECKED int sw_source_open(sw_source **out, const char *path, sw_error *error);
SW_API void sw_source_close(sw_source *source);

/* "compressed-tensors", "gptq", "gguf", ...; of a checkpoint in floats "BF16", "F16" or "F32". */
SW_API const char *sw_source_format(const sw_source *source);
SW_API const char *sw_source_architecture(const sw_source *source); /* "llama": model_type */

/* Stored tensors in the order of their names, i from 0 on. SW_ERROR_USAGE: there is no i-th. */
SW_API int64_t sw_source_n_tensors(const sw_source *source);
SW_API_CHECKED int sw_source_tensor(sw_tensor_info *out, const sw_source *source, int64_t i,
                                    sw_error *error);
/* Linears that quantization may touch, in the order of the model. SW_ERROR_USAGE: there is no
 * i-th. SW_ERROR_FORMAT: its tensors contradict the configuration. */
SW_API int64_t sw_source_n_linears(const sw_source *source);
SW_API_CHECKED int sw_source_linear(sw_linear_info *out, const sw_source *source, int64_t i,
                                    sw_error *error);

/* values [n_values] = what `name` holds: a stored tensor of any float dtype by its name, or the
 * weight of a linear by its module path, dequantized where it is quantized. One rounding to float
 * per product of code and scale. SW_ERROR_USAGE: no such name, or n_values is not its size.
 * SW_ERROR_UNSUPPORTED: a tensor that holds no floats. SW_ERROR_FORMAT: broken bytes. */
SW_API_CHECKED int sw_source_decode(float *values, int64_t n_values, const sw_source *source,
                                    const char *name, sw_error *error);
/* *out = a copy of the linear at this module path as it is quantized, which outlives the source.
 * SW_ERROR_USAGE: no such linear, or it is in floats. SW_ERROR_FORMAT: broken bytes. */
SW_API_CHECKED int sw_source_matrix(sw_matrix **out, const sw_source *source, const char *path,
                                    sw_error *error);

/* --- one quantized weight ------------------------------------------------------------------- */

/* Begin with SW_QUANTIZE_OPTIONS_INIT, which sets size_bytes: fields that later versions add
 * behind the last are then zero for the library. */
typedef struct sw_quantize_options {
    size_t size_bytes;
    const char *scheme;      /* of sw_library_scheme; NULL: "W4A16" */
    const char *method;      /* "rtn" or "gptq"; NULL: "gptq" with a Hessian, else "rtn" */
    const char *format;      /* scales and zero points as this format stores them; NULL: F16 */
    int64_t group_elems;     /* inputs that share a scale; 0: the scheme's, -1: all */
    const double *hessian;   /* [k_in, k_in] sum of x x^T over calibration inputs, symmetric, both
                                triangles; gptq wants it, rtn reports errors by it */
    int64_t n_tokens;        /* that the Hessian is the sum of; 0: unknown */
    double damp;             /* share of the mean diagonal added to it; 0: 0.01 */
    double amax;             /* largest magnitude of all weights that engines load as one with this
                                (q, k, v), where a scheme shares a scale among them; 0: of this */
    float input_scale;       /* of schemes with a stored scale of inputs (FP8, NVFP4) */
    int32_t n_threads;
} sw_quantize_options;
#define SW_QUANTIZE_OPTIONS_INIT {sizeof(sw_quantize_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/* What came of it. Errors are tr(E H E^T) / tr(W H W^T), -1 without a Hessian. */
typedef struct sw_quantize_report {
    double error;            /* of what was made */
    double error_rtn;        /* of plain rounding under the same scheme */
    double damp;             /* that was needed; 0: none */
    int64_t n_dead;          /* inputs that calibration never saw */
    uint64_t reserved[4];
} sw_quantize_report;

/* Quantize w [n_out, k_in]; gptq is Frantar et al., arXiv 2210.17323, with act-order that leaves
 * groups contiguous and two rounds of refinement, the program's defaults. `report` may be NULL.
 * Reads w and the Hessian, keeps neither. SW_ERROR_USAGE: an unknown name, a Hessian that is
 * missing or not finite, a scheme that wants input_scale. SW_ERROR_FORMAT: w is not finite, or no
 * damping makes the Hessian definite. SW_ERROR_UNSUPPORTED: the format cannot hold such a weight.
 */
SW_API_CHECKED int sw_matrix_quantize(sw_matrix **out, sw_quantize_report *report, const float *w,
                                      int64_t n_out, int64_t k_in,
                                      const sw_quantize_options *options, sw_error *error);
SW_API void sw_matrix_free(sw_matrix *matrix);

SW_API int64_t sw_matrix_n_out(const sw_matrix *matrix);
SW_API int64_t sw_matrix_k_in(const sw_matrix *matrix);
SW_API int64_t sw_matrix_n_groups(const sw_matrix *matrix); /* of one output channel */
SW_API void sw_matrix_scheme(sw_scheme_info *out, const sw_matrix *matrix);

/* What it consists of, borrowed from the matrix. The value at [n, k], g being the group of k, is
 * scale[n, g] * (code[n, k] - zero[n, g]) for integers and scale[n, g] * float(code[n, k]) for
 * small floats, times the global scale. Symmetric integers have the zero 2^(bits - 1). */
SW_API const uint8_t *sw_matrix_codes(const sw_matrix *matrix);   /* [n_out, k_in], one a byte */
SW_API const float *sw_matrix_scales(const sw_matrix *matrix);    /* [n_out, n_groups] */
SW_API const uint8_t *sw_matrix_zeros(const sw_matrix *matrix);   /* the same; NULL: symmetric */
SW_API const int32_t *sw_matrix_groups(const sw_matrix *matrix);  /* [k_in]; NULL: k / group */
SW_API float sw_matrix_global_scale(const sw_matrix *matrix);     /* 1 where there is none */
SW_API float sw_matrix_input_scale(const sw_matrix *matrix);      /* 0: none */

/* values [n_rows, k_in] = output channels row0 .. row0 + n_rows - 1, dequantized; bit for bit what
 * sw_source_decode gives. SW_ERROR_USAGE: there are no such rows. */
SW_API_CHECKED int sw_matrix_decode(float *values, const sw_matrix *matrix, int64_t row0,
                                    int64_t n_rows, sw_error *error);

/* --- as a format stores it ------------------------------------------------------------------ */

typedef struct sw_encoded sw_encoded;

/* The tensors that `format` (of sw_library_format) stores for the matrix, with nothing of it
 * changed. SW_ERROR_USAGE: no such format. SW_ERROR_UNSUPPORTED: the format cannot hold it
 * exactly; the text says why. */
SW_API_CHECKED int sw_encoded_new(sw_encoded **out, const sw_matrix *matrix, const char *format,
                                 sw_error *error);
SW_API void sw_encoded_free(sw_encoded *encoded);
SW_API int sw_encoded_n_tensors(const sw_encoded *encoded);
/* Tensor i from 0 on: `name` goes behind the module path and a dot ("qweight"). Returns its bytes,
 * info->n_bytes of them, borrowed; NULL when there is no i-th. */
SW_API const void *sw_encoded_tensor(sw_tensor_info *info, const sw_encoded *encoded, int i);

/* --- multiplying ---------------------------------------------------------------------------- */

typedef struct sw_product sw_product;

/* A copy of the matrix in the order of the kernels, with the fastest kernel for this processor, or
 * the one named wherever it can multiply as many tokens. SW_ERROR_USAGE: no such kernel, or it
 * cannot multiply this on this processor.
 * SW_ERROR_UNSUPPORTED: groups that scatter over inputs, or channels kept in floats. */
SW_API_CHECKED int sw_product_new(sw_product **out, const sw_matrix *matrix, const char *kernel,
                                  sw_error *error);
SW_API void sw_product_free(sw_product *product);
/* The kernel for so many tokens at a time: kernels may differ for one and for many. */
SW_API const char *sw_product_kernel(const sw_product *product, int64_t n_tokens);
/* y [n_tokens, n_out] = x [n_tokens, k_in] times the transposed weight. Schemes that quantize their
 * inputs do so. Takes working memory for the time of the call. */
SW_API_CHECKED int sw_product_run(float *y, const sw_product *product, const float *x,
                                  int64_t n_tokens, int32_t n_threads, sw_error *error);

/* --- whole checkpoints ---------------------------------------------------------------------- */

/* As for sw_quantize_options. */
typedef struct sw_convert_settings {
    size_t size_bytes;
    const char *scheme;       /* to round to, with may_requantize; NULL: the nearest */
    int32_t may_requantize;   /* 1: round again what the format cannot hold as it is */
    int32_t may_replace;      /* 1: replace an output of an earlier run at `out` */
    int32_t weights_only;     /* 1: drop how the source quantizes inputs */
    int32_t n_threads;
    uint64_t shard_bytes;     /* largest output file; 0: 5 GiB */
} sw_convert_settings;
#define SW_CONVERT_SETTINGS_INIT {sizeof(sw_convert_settings), 0, 0, 0, 0, 0, 0}

/* What became of the linears that were quantized. */
typedef struct sw_convert_result {
    int64_t n_exact, n_decoded, n_requantized;
    uint64_t source_bytes, out_bytes; /* of tensors */
    uint64_t reserved[4];
} sw_convert_result;

/* Write the checkpoint at `source` to the directory `out` as `format`: one of sw_library_format or
 * "bf16", "f16", "f32". The output is complete or absent. settings and result may be NULL. The
 * process may run one conversion at a time. SW_ERROR_USAGE: no such format, `out` is in the way.
 * SW_ERROR_UNSUPPORTED: a linear that the format cannot hold exactly. SW_ERROR_IO. */
SW_API_CHECKED int sw_convert(sw_convert_result *result, const char *source, const char *out,
                              const char *format, const sw_convert_settings *settings,
                              sw_error *error);

#ifdef __cplusplus
}
#endif
#endif
