/* mixer.h - what layers of a hybrid decoder have instead of attention, or beside it: a mixer of
 * tokens that remembers a state of fixed size.
 *
 * A model has one kind of mixer at most, with the same sizes in every layer that has it. The
 * arithmetic is in kernels/engine/mixers/; here are the shapes of its weights and buffers.
 */
#ifndef SW_FORMATS_MODEL_MIXER_H
#define SW_FORMATS_MODEL_MIXER_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/model/program.h"

typedef enum sw_mixer_kind {
    SW_MIXER_NONE,
    SW_MIXER_DELTA,         /* gated delta rule, q, k and v from one linear */
    SW_MIXER_DELTA_GROUPED, /* the same with rows grouped by key head: q, k, v, z; b, a */
    SW_MIXER_KIMI_DELTA,    /* one decay per key channel; decay and gate from low-rank factors */
    SW_MIXER_SSD,           /* Mamba-2 */
    SW_MIXER_SHORT_CONV     /* gated short convolution */
} sw_mixer_kind;

/* Sections of the rows that the input linear of Mamba-2 makes. */
enum { SW_SSD_GATE, SW_SSD_X, SW_SSD_B, SW_SSD_C, SW_SSD_DT, SW_SSD_SECTIONS };

typedef struct sw_mixer {
    sw_mixer_kind kind;
    int64_t n_heads, d_head;   /* of values; a short convolution has one head */
    int64_t n_groups, d_state; /* heads of keys (Mamba-2: groups of B and C) and their width */
    int64_t n_taps;            /* of the convolution */
    int64_t rank;              /* of SW_MIXER_KIMI_DELTA's factors */
    double dt_min, dt_max;     /* limits of Mamba-2's step; 0 and infinity: none */
    double section_scale[SW_SSD_SECTIONS]; /* on what the input linear makes */
    bool has_conv_bias, has_bias; /* of the convolution; of the two linears */
    bool has_norm, norms_groups, norms_first; /* Mamba-2's gated norm: whether there is one, by
                                * groups instead of all channels, and before the gate */
} sw_mixer;

/* Width of the mixer's output, n_heads * d_head, and of all keys, n_groups * d_state. */
int64_t sw_mixer_width(const sw_mixer *x);
int64_t sw_mixer_keys(const sw_mixer *x);
/* Channels that one convolution of the mixer runs over. */
int64_t sw_mixer_conv_width(const sw_mixer *x);
/* Shape of a slot as sw_model_slot_shape has it, of a convolution [n_taps, width]; false, and
 * nothing changed, for slots that are not a mixer's. */
bool sw_mixer_slot_shape(const sw_mixer *x, int64_t hidden, sw_slot slot, int64_t *n_out,
                         int64_t *k_in);
/* Row width of a buffer; 0 where it is not a mixer's. */
int64_t sw_mixer_buf_width(const sw_mixer *x, sw_buf buf);
/* Floats that one layer remembers of one sequence: of the convolutions, and of the matrices. */
int64_t sw_mixer_conv_state(const sw_mixer *x);
int64_t sw_mixer_matrix_state(const sw_mixer *x);

#endif
