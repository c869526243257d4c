/* expert_stack.h - experts of a layer that lie quantized in one tensor a part.
 *
 * The linear "<prefix>.experts.<e>.<leaf>" of n_out channels has its part of shape [n_out, ...] in
 * the tensor "<prefix>.experts.<stack>_<suffix>" of shape [n_experts, turns * n_out, ...]: channel
 * n of expert e is row n * turns + turn there.
 *   leaf        stack          turns  turn
 *   gate_proj   gate_up_proj   2      0
 *   up_proj     gate_up_proj   2      1
 *   down_proj   down_proj      1      0
 */
#ifndef SW_FORMATS_CHECKPOINT_EXPERT_STACK_H
#define SW_FORMATS_CHECKPOINT_EXPERT_STACK_H

#include "formats/dialect/dialect.h"
#include "formats/file/safetensors.h"

#define SW_STACK_NAME_BYTES 512

typedef struct sw_stack_place {
    char name[SW_STACK_NAME_BYTES]; /* of the tensor */
    int64_t expert, turns, turn;
} sw_stack_place;

/* false: the path is no expert's, or too long. */
bool sw_stack_find(sw_stack_place *out, const char *module_path, const char *suffix);
/* The part as a whole: `part` of one linear, for n_experts. */
sw_part sw_stack_part(const sw_part *part, const sw_stack_place *place, int64_t n_experts);
/* Copy the rows of one linear out of the tensor's data, or back into it; part_data is dense. */
void sw_stack_gather(void *part_data, const void *stack, const sw_part *part,
                     const sw_stack_place *place);
void sw_stack_scatter(void *stack, const void *part_data, const sw_part *part,
                      const sw_stack_place *place);

#endif
