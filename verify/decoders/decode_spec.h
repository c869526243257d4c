/* decode_spec.h - the second decoder, written from the layout tables alone.
 *
 * It shares nothing with the packings, number formats and dialects it checks: its own half
 * decoding, its own bit order, its own reading of quantization_config. Plain and slow on
 * purpose; each dialect is one file and one row.
 */
#ifndef SW_VERIFY_DECODERS_DECODE_SPEC_H
#define SW_VERIFY_DECODERS_DECODE_SPEC_H

#include "formats/base/json.h"
#include "formats/file/safetensors.h"

#define SW_SPEC_SUFFIXES_MAX 32

typedef struct sw_spec_reader sw_spec_reader;

/* What quantization_config says, as far as decoding needs it: of every linear, or of all those
 * that no rule of a mixed checkpoint names. */
typedef struct sw_spec_scheme {
    const sw_spec_reader *reader; /* NULL: nothing is quantized */
    int bits;             /* of numbers.def; in blocks of GGUF 5, 6 and 16 (floats) as well */
    const char *blocks;   /* the type of blocks of a GGUF, of most of them or of one; NULL: none */
    int exponent_bits, mantissa_bits; /* of small-float codes; 0, 0: integers */
    int64_t scale_rows;   /* channels that share their scales; 0: none, -1: all */
    bool is_pow2;         /* scales are powers of two */
    bool has_global;      /* scales count relative to one of the tensor */
    bool has_input_scale; /* one is stored: inputs are quantized under it */
    bool quantizes_inputs;
    bool is_packed;       /* integer codes fill words; else each takes a byte */
    bool is_symmetric;
    int64_t group_elems;  /* along k_in; 0: one group per output channel */
    int64_t n_outliers;   /* input channels stored as floats beside the codes */
    bool wants_g_idx;     /* the config says that a group index is stored */
    int bits_min;         /* smallest width of any linear */
    const cJSON *mixed;   /* quantization_config of several schemes, borrowed; NULL: one for all */
} sw_spec_scheme;

/* A decoded linear; values[n][k] = scales[n][g] * level, g = group_of[k], times global; the level
 * is codes[n][k] - zeros[n][g], or what a small float's code means, or levels[codes[n][k]]; plus
 * offsets[n][g]. Not where is_outlier[k]. */
typedef struct sw_spec_weight {
    int64_t n_out, k_in, n_groups;
    int bits;
    int bits_min;      /* of any linear of the checkpoint; 0: `bits` */
    float *values;     /* [n_out, k_in]; NULL from sw_spec_decode_codes */
    uint8_t *codes;    /* [n_out, k_in] */
    float *scales;     /* [n_out, n_groups] */
    int32_t *zeros;    /* [n_out, n_groups]; 2^(bits-1) when symmetric */
    int32_t *group_of; /* [k_in] */
    int64_t group_elems;  /* as in the scheme */
    bool is_symmetric;
    const char *blocks;   /* as in the scheme */
    float *offsets;       /* [n_out, n_groups], or NULL: none */
    const float *levels;  /* what each code means, rising; or NULL */
    int n_levels;         /* then */
    bool has_scale_steps; /* scales are small integers times one of many groups */
    int exponent_bits, mantissa_bits;
    float global;      /* 1 without one */
    float input_scale; /* 0 without one */
    bool *is_outlier;  /* [k_in] channels whose values are stored as they are */
    bool has_lent_codes; /* they lie in a sw_spec_room */
    double fold_err;   /* of the original's columns, relative, where a fold that was read back from
                          the checkpoint scaled them; 0: none did. The judge fills it in */
} sw_spec_weight;

/* Memory that one weight after the other is decoded into, which need not be had from the system
 * for each. Zero-initialise; whoever has it frees `codes` in the end. */
typedef struct sw_spec_room {
    uint8_t *codes;
    int64_t n_elems;
} sw_spec_room;

struct sw_spec_reader {
    const char *name;
    const char *suffixes[SW_SPEC_SUFFIXES_MAX]; /* of the tensors a linear may have; NULL ends */
    const char *marker;                         /* the suffix that says "quantized" */
    bool (*is_mine)(const cJSON *config);
    sw_code (*read_config)(sw_spec_scheme *out, const cJSON *config, sw_err *err);
    /* The scheme of one linear of a mixed checkpoint, over a copy of the whole one's. */
    sw_code (*read_linear)(sw_spec_scheme *out, const cJSON *config, const char *module_path,
                           sw_err *err);
    /* Fill codes, scales, zeros and group_of of an allocated weight, and offsets where the scheme
     * is of blocks and not symmetric. */
    sw_code (*decode)(sw_spec_weight *w, const sw_spec_scheme *scheme, const sw_st *st,
                      const char *module_path, sw_err *err);
    /* A stored tensor of a linear where its name is not "<module_path>.<suffix>"; NULL: it is. */
    const sw_st_tensor *(*find)(const sw_st *st, const char *module_path, const char *suffix);
};

extern const sw_spec_reader *const sw_spec_readers[]; /* ends with NULL */
#define SW_SPEC_READER(symbol) extern const sw_spec_reader sw_spec_##symbol;
#include "verify/decoders/readers.def"
#undef SW_SPEC_READER
extern const sw_spec_reader sw_spec_gguf; /* has no quantization_config */

/* SW_E_UNSUPPORTED: a quantization_config that no reader knows, or a scheme beyond it. */
sw_code sw_spec_scheme_read(sw_spec_scheme *out, const cJSON *quantization_config,
                            sw_err *err) SW_MUST_USE;
/* What most weights of a GGUF are in, opened as SW_GGUF_BLOCKS (gguf_model.h). */
void sw_spec_gguf_scheme(sw_spec_scheme *out, const sw_st *st);
/* What one linear of it is in. SW_E_FORMAT: no blocks. */
sw_code sw_spec_gguf_linear(sw_spec_scheme *out, const sw_st *st, const char *module_path,
                            sw_err *err) SW_MUST_USE;
/* The scheme of the linear at module_path. SW_E_FORMAT: the config names none for it. */
sw_code sw_spec_scheme_of(sw_spec_scheme *out, const sw_spec_scheme *scheme,
                          const char *module_path, sw_err *err) SW_MUST_USE;
/* "4 bits, group 128, symmetric", "8 bits (e4m3), per tensor". */
void sw_spec_scheme_text(char *out, size_t size, const sw_spec_scheme *scheme);
/* true when the linear at module_path is stored quantized. */
bool sw_spec_is_quantized(const sw_spec_scheme *scheme, const sw_st *st, const char *module_path);
/* true when `suffix` is a tensor that a quantized linear of this dialect may have. */
bool sw_spec_is_part(const sw_spec_scheme *scheme, const char *suffix);

/* Decode one linear. SW_E_FORMAT names the tensor: missing, wrong dtype or shape, a scale that is
 * not finite, not above zero or too large, a zero point or group index out of range, a group with
 * too many columns. `out` is freed by sw_spec_weight_free; set on success only. */
sw_code sw_spec_decode(sw_spec_weight *out, const sw_spec_scheme *scheme, const sw_st *st,
                       const char *module_path, int64_t n_out, int64_t k_in,
                       sw_err *err) SW_MUST_USE;
/* The same but for the values, which are most of the memory and of the work: for whoever only asks
 * whether codes, scales and zero points are sound. The codes are in `room` until its next use. */
sw_code sw_spec_decode_codes(sw_spec_weight *out, sw_spec_room *room, const sw_spec_scheme *scheme,
                             const sw_st *st, const char *module_path, int64_t n_out, int64_t k_in,
                             sw_err *err) SW_MUST_USE;
/* What a code counts in steps of its scale: sign, exponent with bias 2^(e-1) - 1, fraction; below
 * the smallest exponent without the hidden bit. NaN for codes that are none. */
double sw_spec_level(const sw_spec_weight *w, int code, int zero);
/* The largest code of a finite small float; its sign bit is 0. */
int sw_spec_float_last(int exponent_bits, int mantissa_bits);
/* How far the level's neighbours above are from it: 1 for integers. */
double sw_spec_step(const sw_spec_weight *w, double level);

void sw_spec_weight_free(sw_spec_weight *w); /* accepts a zeroed one */

#endif
