# CUDA kernels on the processor (tests/emulate/README.md): the host compiler compiles them, rewritten a
# little, and tests of tests/gpu run on them where there is no device. Needs CUDA's headers and x86-64.

EMU := $(BUILD)/emulate

ifeq ($(and $(WITH_CUDA),$(filter x86_64%,$(MACHINE))),)
.PHONY: emulate emulate-all emulate-hopper
emulate emulate-all emulate-hopper:
	@echo "skipped: $(if $(NVCC),not for $(MACHINE) in a $(CONFIG) build,no nvcc found)"
else
# What CI compiles, what takes longer, and Hopper's, of whose matrix kernels each has one row compiled.
EMU_HEAVY := $(addprefix kernels/cuda/,ops/mixers/gated_delta.cu ops/mixers/ssd.cu decode/engine_one.cu)
EMU_MMA   := kernels/cuda/gemm/any_device/mma.cu $(filter $(BUILD)/gen/kernels/cuda/gemm/any_device/%,$(CUDA_GEN))
EMU_LIGHT := $(filter-out $(EMU_HEAVY),$(filter kernels/cuda/ops/% kernels/cuda/solver/%,$(CUDA_SRC))) \
             $(addprefix kernels/cuda/gemm/,quantize.cu gemm.cu marlin_tiles.cu column_tiles.cu sign_tiles.cu e2m1_tiles.cu) kernels/cuda/attention/engine_decode.cu \
             $(addprefix kernels/cuda/decode/,dense_few.cu quantize_made.cu) kernels/cuda/experts/router.cu tests/gpu/support/gpu_ref.cu
EMU_TESTS := test_dense_few test_engine_ops test_newest_key test_expert_lists test_made_codes test_norms test_quantizers test_router test_scores \
             test_solver test_solver_sums
EMU_MORE  := test_engine_mixers test_streams test_block_put test_solver_rows test_probe test_search test_outputs

EMU_GEMM  := $(addprefix kernels/cuda/gemm/,tensor_map.cu $(addprefix weight_only/,weight_only_run.cu w4a16.cu w8a16.cu \
             persistent/w4a16_persistent.cu) $(addprefix quantized_input/,split_k/w8a8_split_k.cu $(addprefix two_ctas/w8a8_two_ctas,.cu _rows.cu) \
             persistent/w8a8_persistent.cu))
EMU_GEMM_GEN := $(addprefix $(BUILD)/gen/kernels/cuda/gemm/,$(addprefix weight_only/,$(addprefix w4a16_bf16,.cu _fused.cu) \
             $(addprefix persistent/w4a16_persistent_bf16,.cu _fused.cu)) \
             $(foreach kind,int8 e4m3 int4_e4m3,$(addsuffix _$(kind).cu,$(addprefix quantized_input/,split_k/w8a8_split_k \
             two_ctas/w8a8_two_ctas persistent/w8a8_persistent))))
EMU_REST  := $(addprefix kernels/cuda/,$(addprefix attention/attention_,decode.cu few.cu wgmma.cu widen.cu) $(addprefix experts/routed_,few.cu many.cu \
             run.cu sort.cu))
EMU_REST_GEN := $(foreach kind,bytes_int8 bytes_e4m3 bytes_int4_e4m3 tall_int8 tall_e4m3,$(BUILD)/gen/kernels/cuda/experts/routed_$(kind).cu)
EMU_HOPPER := $(addprefix test_,gemm gemm_blocks gemm_gates gemm_parts engine_ops engine_products newest_key routed)

EMU_SRC   := $(EMU)/src
EMU_FROM  := $(shell find kernels/cuda tests/gpu/support -name '*.cu' -o -name '*.cuh')
# Of the undefined what a kernel can get wrong; all of it takes half as long again to compile.
EMU_FIND  := address,alignment,bounds,shift,signed-integer-overflow,integer-divide-by-zero,float-cast-overflow
EMU_FLAGS := -std=c++17 -O1 -g1 -I$(EMU_SRC) -I. -isystem $(CUDA_HOME)/include -include tests/emulate/cuda_on_cpu.h \
             -DSW_CHECKED -ffp-contract=off -fno-math-errno -fno-exceptions -fno-rtti -fno-threadsafe-statics -fno-strict-aliasing \
             -fsanitize=$(EMU_FIND) -fno-sanitize-recover=all --param asan-instrumentation-with-call-threshold=0 \
             -Wno-unknown-pragmas -Wno-psabi
EMU_CXX   := $(if $(findstring ccache,$(CC)),ccache )g++
EMU_OBJ   := $(patsubst tests/emulate/%.c,$(BUILD)/tests/emulate/%.o,$(filter-out %/rewrite.c,$(wildcard tests/emulate/*.c)))
# The kernels' loads and stores are shown to shared.c; libraries are looked for in the program.
EMU_WRAP  := $(foreach n,1 2 4 8 16 N,-Wl,--wrap=__asan_load$(n),--wrap=__asan_store$(n)) \
             -Wl,--wrap=dlopen,--wrap=dlsym,--wrap=dlclose -rdynamic

$(EMU)/rewrite: tests/emulate/rewrite.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_ALL) -O1 $< -o $@

$(EMU)/.rewritten: $(EMU)/rewrite $(EMU_FROM) $(BUILD)/gen/.written
	$(Q)for f in $(EMU_FROM); do mkdir -p $(EMU_SRC)/$${f%/*} && $(EMU)/rewrite $$f $(EMU_SRC)/$$f.new && \
	  { cmp -s $(EMU_SRC)/$$f.new $(EMU_SRC)/$$f && rm $(EMU_SRC)/$$f.new || mv $(EMU_SRC)/$$f.new $(EMU_SRC)/$$f; } || exit 1; done
	@touch $@
$(EMU_FROM:%=$(EMU_SRC)/%): $(EMU)/.rewritten ;

define EMU_RULE
	@mkdir -p $(@D)
	@$(if $(V),,echo "  CC   emulated $(patsubst $(EMU_SRC)/%,%,$<)")
	$(Q)$(EMU_CXX) $(EMU_FLAGS) -MMD -MP -x c++ -c $< -o $@
endef
$(EMU)/%.cu.o: $(EMU_SRC)/%.cu
	$(EMU_RULE)
$(EMU)/$(BUILD)/gen/%.cu.o: $(BUILD)/gen/%.cu $(EMU)/.rewritten
	$(EMU_RULE)

# Objects, for what they define must win over what not_emulated.c has.
EMU_LIGHT_OBJ := $(EMU_LIGHT:%=$(EMU)/%.o)
EMU_HEAVY_OBJ := $(EMU_HEAVY:%=$(EMU)/%.o) $(EMU_MMA:%=$(EMU)/%.o)
# The library without the functions that open the one for devices, and with that one's host code.
$(EMU)/host.a: $(filter-out %/forward.o,$(LIB_OBJ)) $(CUDA_C:%.c=$(BUILD)/%.o) $(filter-out %.cu.o,$(GPU_SUP)) $(GPU_TSUP_OBJ)
	$(Q)rm -f $@ && ar rcsT $@ $^

$(EMU_OBJ): ISA_FLAGS := -isystem $(CUDA_HOME)/include

define EMU_LINK
	@mkdir -p $(@D)
	@$(if $(V),,echo "  TEST emulated $<")
	$(Q)$(CC) $(CFLAGS_ALL) $(TEST_OPT_$(CONFIG)) -DSW_CHECKED -DSW_EMULATED -isystem $(CUDA_HOME)/include -Wno-conversion \
	  -Wno-missing-prototypes -MMD -MP -fsanitize=address,undefined $(EMU_WRAP) $< $(filter %.o %.a,$^) \
	  $(LDFLAGS) $(UNIT_LIBS) -lstdc++ -o $@
endef
$(addprefix $(EMU)/,$(EMU_MORE)): $(EMU_HEAVY_OBJ)
$(addprefix $(EMU)/,$(EMU_TESTS) $(EMU_MORE)): $(EMU)/%: tests/gpu/%.c $(EMU_OBJ) $(EMU_LIGHT_OBJ) $(EMU)/host.a
	$(EMU_LINK)

# With Hopper's kernels: programs of their own, for tests that other kernels have too.
EMU_HOP_OBJ := $(EMU_GEMM:%=$(EMU)/%.o) $(EMU_GEMM_GEN:%=$(EMU)/%.o) $(EMU_REST:%=$(EMU)/%.o) $(EMU_REST_GEN:%=$(EMU)/%.o)
# Two others have a kernel for clusters; a device of 8.0 is not given it.
$(EMU_HOP_OBJ) $(EMU)/kernels/cuda/ops/engine_pick.cu.o $(EMU)/kernels/cuda/experts/router.cu.o: EMU_FLAGS += -DEMU_ARCH=900
$(EMU_GEMM:%=$(EMU)/%.o) $(EMU_GEMM_GEN:%=$(EMU)/%.o): EMU_FLAGS += -DSW_CUDA_QUICK
$(EMU)/hopper/test_engine_products: $(EMU)/kernels/cuda/decode/engine_one.cu.o
$(addprefix $(EMU)/hopper/,$(EMU_HOPPER)): $(EMU)/hopper/%: tests/gpu/%.c $(EMU_OBJ) $(EMU_LIGHT_OBJ) $(EMU_HOP_OBJ) $(EMU)/host.a
	$(EMU_LINK)

# The kernels that tests run, and behind them how many these are of all that are defined.
EMU_RAN    = $(EMU)/kernels.txt
EMU_COUNT  = @sort -u -o $(EMU_RAN) $(EMU_RAN) && echo "$$(wc -l <$(EMU_RAN)) of $$(grep -rhoE 'swk_[a-z0-9_]+\(' kernels/cuda | sort -u | \
	wc -l) kernels ran: $(EMU_RAN)"

.PHONY: emulate emulate-all emulate-hopper
emulate: $(EMU)/rewrite $(addprefix $(EMU)/,$(EMU_TESTS)) ## CUDA kernels on the processor under ASan, UBSan and a check of races: those that are quick
	@rm -f $(EMU_RAN)
	$(Q)SW_EMULATE_KERNELS=$(EMU_RAN) BUILD=$(BUILD) sh tests/run.sh tests/emulate/rewrite.sh $(filter-out $<,$^)
	$(EMU_COUNT)
emulate-all: $(addprefix $(EMU)/,$(EMU_TESTS) $(EMU_MORE)) ## all that are emulated, minutes
	@rm -f $(EMU_RAN)
	$(Q)SW_EMULATE_KERNELS=$(EMU_RAN) BUILD=$(BUILD) sh tests/run.sh $^
	$(EMU_COUNT)
# Of test_gemm each row's rings that turn over; what else these programs have takes hours here.
EMU_ROWS  := w4a16_split_k w8a16_split_k w8a8_split_k w8a8_two_ctas w8a8_persistent w4a16_persistent
emulate-hopper: $(addprefix $(EMU)/hopper/,$(EMU_HOPPER)) ## kernels of Hopper on the processor, minutes
	$(Q)for row in $(EMU_ROWS); do \
	  SW_EMULATE_SM=90 SW_GEMM_KERNEL=$$row $(EMU)/hopper/test_gemm ring_turns || exit 1; done
	$(Q)SW_EMULATE_SM=90 SW_GEMM_KERNEL=w4a16_split_k $(EMU)/hopper/test_gemm each_kernel_once
	$(Q)SW_EMULATE_SM=90 $(EMU)/hopper/test_gemm_blocks
	$(Q)SW_EMULATE_SM=90 $(EMU)/hopper/test_gemm_gates
	$(Q)SW_EMULATE_SM=90 $(EMU)/hopper/test_gemm_parts
	$(Q)SW_EMULATE_SM=90 $(EMU)/hopper/test_engine_ops test_prefill_here
	$(Q)SW_EMULATE_SM=90 $(EMU)/hopper/test_engine_ops test_pick
	$(Q)SW_EMULATE_SM=90 $(EMU)/hopper/test_engine_ops test_decode_here
	$(Q)SW_EMULATE_SM=90 $(EMU)/hopper/test_newest_key
	$(Q)SW_EMULATE_SM=90 $(EMU)/hopper/test_routed odd_shapes
	$(Q)SW_EMULATE_SM=90 $(EMU)/hopper/test_routed many_rows
	$(Q)SW_EMULATE_SM=90 $(EMU)/hopper/test_routed same_bytes_in_columns
	$(Q)SW_EMULATE_SM=90 $(EMU)/hopper/test_routed bytes_with_half_stages
	$(Q)SW_EMULATE_SM=90 $(EMU)/hopper/test_engine_products test_one
	$(Q)SW_EMULATE_SM=90 $(EMU)/hopper/test_engine_products test_sizes
endif
