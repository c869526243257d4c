# The CUDA half of the program, its tests and bench. CUDA=auto takes it in where nvcc is, 0 never, 1 or fail.
# Only the release build has it, and the one for compute-sanitizer (CONFIG=checked): in the others, and without nvcc,
# kernels/cuda/stub_*.c answer. The runtime is linked statically and finds the driver when asked, so one binary runs
# with and without.

ifneq ($(filter release checked,$(CONFIG)),)
ifneq ($(CUDA),0)
WITH_CUDA := $(NVCC)
endif
endif
ifeq ($(CUDA),1)
ifeq ($(NVCC),)
$(error CUDA=1, but there is no nvcc)
endif
endif

ifeq ($(WITH_CUDA),)
.PHONY: cuda gpu-test gpu-sanitize gpu-bench
cuda gpu-test gpu-sanitize gpu-bench:
	@echo "skipped: $(if $(filter 0,$(CUDA)),CUDA=0,$(if $(NVCC),a $(CONFIG) build,no nvcc found))"
else
# wgmma exists on sm_90a alone; what is not named here is for every card from sm_80 on.
ARCH_90A  := -gencode=arch=compute_90a,code=sm_90a
ARCH_ALL  := -gencode=arch=compute_80,code=[sm_80,compute_80] -gencode=arch=compute_89,code=sm_89 $(ARCH_90A)
# No exceptions and no guards, so that the program needs no C++ library.
NVFLAGS   := -std=c++17 -O3 -I. -Xcompiler -fno-exceptions,-fno-threadsafe-statics $(filter -D%,$(OPT_$(CONFIG))) $(NVCCFLAGS)
NVCC_RUN  := $(if $(findstring ccache,$(CC)),ccache )$(NVCC)
CUDA_HOME := $(patsubst %/bin/nvcc,%,$(NVCC))
CUDA_SRC  := $(sort $(wildcard kernels/cuda/*.cu))
CUDA_C    := $(filter-out kernels/cuda/stub_%,$(sort $(wildcard kernels/cuda/*.c)))
CUDA_OBJ  := $(CUDA_SRC:%.cu=$(BUILD)/%.cu.o) $(CUDA_C:%.c=$(BUILD)/%.o)
CUDA_LIB  := $(BUILD)/libswage_cuda.a
CUDA_LIBS := -L$(CUDA_HOME)/lib64 -lcudart_static -ldl -lrt -lpthread
GPU_TESTS := $(patsubst %.c,$(BUILD)/%,$(sort $(wildcard tests/gpu/test_*.c)))
GPU_BENCH := $(patsubst %.c,$(BUILD)/%,$(sort $(wildcard tests/gpu/bench_*.c)))
GPU_SUP   := $(patsubst %,$(BUILD)/tests/gpu/%.o,gpu_ref.cu gpu_case gpu_dense solver_case card lean_case)

.PHONY: cuda
cuda: $(CUDA_LIB) $(GPU_TESTS) $(GPU_BENCH) ## the CUDA kernels, their tests and bench (CUDA=auto|0|1)

$(BUILD)/%.cu.o: GPU_ARCH := $(ARCH_90A)
$(BUILD)/kernels/cuda/engine_%.cu.o: GPU_ARCH := $(ARCH_ALL)
$(BUILD)/kernels/cuda/solver_%.cu.o: GPU_ARCH := $(ARCH_ALL)
$(BUILD)/kernels/cuda/mma_%.cu.o: GPU_ARCH := $(ARCH_ALL)
$(BUILD)/kernels/cuda/quantize.cu.o $(BUILD)/tests/gpu/gpu_ref.cu.o: GPU_ARCH := $(ARCH_ALL)
$(BUILD)/%.cu.o: %.cu
	@mkdir -p $(@D)
	@$(if $(V),,echo "  NVCC $<")
	$(Q)$(NVCC_RUN) $(NVFLAGS) $(GPU_ARCH) -MD -MP -MF $(@:.o=.d) -c $< -o $@

$(CUDA_LIB): $(CUDA_OBJ)
	$(Q)rm -f $@ && ar rcs $@ $^

$(CUDA_C:%.c=$(BUILD)/%.o): CFLAGS += -isystem $(CUDA_HOME)/include
$(patsubst %,$(BUILD)/tests/gpu/%.o,gpu_case gpu_dense solver_case card lean_case): CFLAGS += -isystem $(CUDA_HOME)/include -Wno-conversion

# Objects, not the archive: what they define must win over the stubs of $(LIB).
$(GPU_TESTS) $(GPU_BENCH): $(BUILD)/tests/gpu/%: tests/gpu/%.c $(GPU_SUP) $(CUDA_OBJ) $(LIB) $(TSUP_OBJ)
	@mkdir -p $(@D)
	@$(if $(V),,echo "  TEST $(CONFIG) $<")
	$(Q)$(CC) $(CFLAGS_ALL) -isystem $(CUDA_HOME)/include -Wno-conversion -Wno-missing-prototypes -MMD -MP \
	  $< $(GPU_SUP) $(CUDA_OBJ) $(TSUP_OBJ) $(LIB) $(LDFLAGS) $(UNIT_LIBS) $(CUDA_LIBS) -lcublasLt -lstdc++ -o $@

# What an engine author would link: the archives alone.
$(BUILD)/tests/gpu/example: tests/gpu/example.c $(CUDA_LIB) $(LIB)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_ALL) -isystem $(CUDA_HOME)/include -Wno-conversion $< $(CUDA_LIB) $(LIB) $(LDFLAGS) $(LIBS) \
	  $(CUDA_LIBS) -o $@
all: $(BUILD)/tests/gpu/example
test: $(GPU_TESTS) # without a card they say so and count as skipped

.PHONY: gpu-test
gpu-test: $(GPU_TESTS) all ## the kernels and the engine against their references, on the card; skips without one
	$(Q)BUILD=$(BUILD) sh tests/run.sh $(GPU_TESTS) tests/e2e/device.sh tests/e2e/older_cards.sh

.PHONY: gpu-sanitize gpu-programs
gpu-programs: $(GPU_TESTS)
gpu-sanitize: $(BUILD)/tests/gpu/test_gemm ## the same under compute-sanitizer, all four tools; skips without a card
	$(Q)$(MAKE) CONFIG=checked gpu-programs
	$(Q)rc=0; BUILD=$(BUILD) CUDA_HOME=$(CUDA_HOME) bash tests/gpu/sanitize.sh || rc=$$?; [ $$rc -eq 0 ] || [ $$rc -eq 77 ]

.PHONY: gpu-bench
gpu-bench: $(BUILD)/tests/gpu/bench_gemm ## time the kernels on the card; skips without one
	$(Q)rc=0; $< w4a16 w8a8 fp8 w4a8 8192 8192 -- 1 16 32 64 128 256 1024 4096 || rc=$$?; [ $$rc -eq 0 ] || [ $$rc -eq 77 ]
endif
