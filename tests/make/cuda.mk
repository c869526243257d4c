# The CUDA half: libswage_cuda.so, which the program opens when a device is asked for, the archive for
# engine authors, the tests that need a device, and the bench. Only `make cuda` and what begins with gpu-
# build it; the program, its tests and the demo need no nvcc. The runtime is linked statically and
# finds the driver when asked, so one library runs with and without a device.
#
# CUDA_ARCH   native: the device that is present, Hopper where there is none; 90a: Hopper, for another
#             machine; all: every one that is served, for releases
# CUDA_OPT    full; none: kernels that will run nowhere, in a third of the time, to see that they compile

CUDA_OPT  ?= full
CUDA_ARCH ?= $(if $(filter gpu-bundle,$(MAKECMDGOALS)),90a,native)
ifneq ($(filter release checked,$(CONFIG)),)
WITH_CUDA := $(NVCC)
endif

# A program and a library that disagree about a header must not meet.
ABI_TEXT = \#define SW_ABI "$(VERSION)-$(CONFIG)-$(shell cat $$(find formats kernels quant \
             '(' -name '*.h' -o -name '*.def' ')' | LC_ALL=C sort) | cksum | cut -d' ' -f1)"
$(BUILD)/abi.h: FORCE
	@mkdir -p $(@D)
	@echo '$(ABI_TEXT)' | cmp -s - $@ || echo '$(ABI_TEXT)' >$@
.PHONY: FORCE
FORCE:
$(BUILD)/kernels/cuda/forward.o $(BUILD)/kernels/cuda/abi.o: $(BUILD)/abi.h
$(BUILD)/kernels/cuda/forward.o $(BUILD)/kernels/cuda/abi.o: LAST_FLAGS := -include $(BUILD)/abi.h

ifeq ($(WITH_CUDA),)
.PHONY: cuda gpu-test gpu-sanitize gpu-bench
cuda gpu-test gpu-sanitize gpu-bench:
	@echo "skipped: $(if $(NVCC),a $(CONFIG) build,no nvcc found)"
else
# wgmma exists on sm_90a alone; what is not named here is for every device from sm_80 on. A device of 8.9
# runs the code of sm_80; only where there is FP8 does it get code of its own.
ARCH_90A  := -gencode=arch=compute_90a,code=sm_90a
ARCH_80   := -gencode=arch=compute_80,code=[sm_80,compute_80]
ARCH_89   := -gencode=arch=compute_89,code=sm_89
DEVICE_CAP   = $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .)
ARCH_HERE  = $(if $(filter-out 90,$(DEVICE_CAP)),-gencode=arch=compute_$(DEVICE_CAP)$(comma)code=sm_$(DEVICE_CAP),$(ARCH_90A))
ARCH_ALL  := $(if $(filter all,$(CUDA_ARCH)),$(ARCH_80) $(ARCH_90A),$(if $(filter 90a,$(CUDA_ARCH)),$(ARCH_90A),$(ARCH_HERE)))
# No exceptions and no guards, so that the program needs no C++ library.
NVFLAGS   := -std=c++17 -I. -Xcompiler -fPIC,-fno-exceptions,-fno-threadsafe-statics $(filter -D%,$(OPT_$(CONFIG))) $(NVCCFLAGS)
# Code that is not optimized is thirty times as large once it is not compressed, and compressing it takes a tenth of the
# time: so it is kept once, in the library, and not in each program.
ifeq ($(CUDA_OPT),none)
NVFLAGS += -O0 $(shell $(NVCC) --help | grep -q -e --Ofast-compile && echo --Ofast-compile=max --no-compress)
GPU_KERNELS = $(CUDA_SO)
GPU_LINK = -rdynamic $(TEST_LD) -Wl,-rpath,'$$ORIGIN/../..'
else
NVFLAGS += -O3
GPU_KERNELS = $(CUDA_OBJ)
endif
NVCC_RUN  := $(if $(findstring ccache,$(CC)),ccache )$(NVCC)
CUDA_HOME := $(patsubst %/bin/nvcc,%,$(NVCC))
CUDA_SRC  := $(sort $(shell find kernels/cuda -name '*.cu'))
CUDA_C    := $(filter-out kernels/cuda/forward.c,$(sort $(shell find kernels/cuda -name '*.c')))
# Units that are one template with other macros are written by the build.
CUDA_LIST := kernels/cuda/instances.txt
CUDA_GEN  := $(shell awk -F '[ |]+' '/^kernels/ {print "$(BUILD)/gen/" $$1 "_" $$2 ".cu"}' $(CUDA_LIST))
CUDA_OBJ  := $(CUDA_SRC:%.cu=$(BUILD)/%.cu.o) $(CUDA_GEN:%=%.o) $(CUDA_C:%.c=$(BUILD)/%.o)
CUDA_LIB  := $(BUILD)/libswage_cuda.a
CUDA_SO   := $(BUILD)/libswage_cuda.so
CUDA_LIBS := -L$(CUDA_HOME)/lib64 -lcudart_static -ldl -lrt -lpthread
GPU_TESTS := $(patsubst %.c,$(BUILD)/%,$(sort $(wildcard tests/gpu/test_*.c)))
GPU_BENCH := $(patsubst %.c,$(BUILD)/%,$(sort $(wildcard tests/gpu/bench_*.c)))
GPU_CASES := $(patsubst %,$(BUILD)/tests/gpu/support/%.o,gpu_case gpu_dense quantize_case solver_case device_case fused_case routed_case steps_case)
GPU_SUP   := $(BUILD)/tests/gpu/support/gpu_ref.cu.o $(GPU_CASES)

.PHONY: cuda
cuda: $(CUDA_SO) $(CUDA_LIB) $(GPU_TESTS) $(GPU_BENCH) $(BUILD)/tests/gpu/example ## the CUDA half, its tests and bench (CUDA_ARCH=native|all)

ANY_DEVICE := kernels/cuda/ops/% kernels/cuda/solver/% kernels/cuda/gemm/any_device/% kernels/cuda/decode/engine_% \
              kernels/cuda/attention/engine_% kernels/cuda/gemm/quantize.cu tests/gpu/support/gpu_ref.cu
FP8_UNITS  := $(if $(filter all,$(CUDA_ARCH)),$(filter $(ANY_DEVICE),$(shell sh tests/make/cuda_fp8_units.sh kernels/cuda tests/gpu/support)))
# The templates of generated units end in _table.cuh.
FP8_GEN    := $(foreach t,$(filter %_table.cuh,$(FP8_UNITS)),$(filter $(BUILD)/gen/$(t:_table.cuh=_)%,$(CUDA_GEN)))

$(BUILD)/%.cu.o: GPU_ARCH := $(ARCH_90A)
$(foreach at,$(BUILD) $(BUILD)/gen,$(patsubst %,$(at)/%.o,$(ANY_DEVICE))): GPU_ARCH := $(ARCH_ALL)
$(patsubst %,$(BUILD)/%.o,$(filter %.cu,$(FP8_UNITS))) $(FP8_GEN:%=%.o): GPU_ARCH := $(ARCH_80) $(ARCH_89) $(ARCH_90A)

$(BUILD)/gen/.written: $(CUDA_LIST) tests/make/cuda_instances.sh
	$(Q)sh tests/make/cuda_instances.sh $(CUDA_LIST) $(BUILD)/gen
	@touch $@
$(CUDA_GEN): $(BUILD)/gen/.written ;

# Objects of one CUDA_OPT do not pass for those of another. Where none but full ones were ever made there is no file.
CUDA_OPT_AT := $(BUILD)/cuda_opt
CUDA_OPT_IS := $(if $(filter full,$(CUDA_OPT)),$(wildcard $(CUDA_OPT_AT)),$(CUDA_OPT_AT))
$(CUDA_OPT_AT): FORCE
	@mkdir -p $(@D)
	@echo '$(CUDA_OPT)' | cmp -s - $@ || echo '$(CUDA_OPT)' >$@

define NVCC_RULE
	@mkdir -p $(@D)
	@$(if $(V),,echo "  NVCC $<")
	$(Q)$(NVCC_RUN) $(NVFLAGS) $(GPU_ARCH) -MD -MP -MF $(@:.o=.d) -c $< -o $@
endef
$(BUILD)/gen/%.cu.o: $(BUILD)/gen/%.cu $(CUDA_OPT_IS)
	$(NVCC_RULE)
$(BUILD)/%.cu.o: %.cu $(CUDA_OPT_IS)
	$(NVCC_RULE)

$(CUDA_LIB): $(CUDA_OBJ)
	$(Q)rm -f $@ && ar rcs $@ $^

# What it shares with the program it takes from the program; its own functions it calls itself.
$(CUDA_SO): $(CUDA_OBJ)
	@$(if $(V),,echo "  LINK $@")
	$(Q)$(CC) -shared -fopenmp -Wl,-Bsymbolic -o $@ $^ $(CUDA_LIBS)

$(CUDA_C:%.c=$(BUILD)/%.o): ISA_FLAGS := -fPIC -isystem $(CUDA_HOME)/include
$(GPU_CASES): ISA_FLAGS := -isystem $(CUDA_HOME)/include -Wno-conversion

# All but what prints by parts of the tools, which no test of a device links.
GPU_TSUP_OBJ := $(filter-out %/printed_report.o,$(TSUP_OBJ))

# Objects, not the archive: what they define must win over the stubs of $(LIB).
$(GPU_TESTS) $(GPU_BENCH): $(BUILD)/tests/gpu/%: tests/gpu/%.c $(GPU_SUP) $(GPU_KERNELS) $(LIB) $(GPU_TSUP_OBJ)
	@mkdir -p $(@D)
	@$(if $(V),,echo "  TEST $(CONFIG) $<")
	$(Q)$(CC) $(CFLAGS_ALL) -isystem $(CUDA_HOME)/include -Wno-conversion -Wno-missing-prototypes -MMD -MP \
	  $< $(GPU_SUP) $(GPU_KERNELS) $(GPU_TSUP_OBJ) $(LIB) $(LDFLAGS) $(GPU_LINK) $(UNIT_LIBS) \
	  $(CUDA_LIBS) -lcublasLt -lstdc++ -o $@

# What an engine author would link: the archives alone.
$(BUILD)/tests/gpu/example: tests/gpu/example.c $(CUDA_LIB) $(LIB)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_ALL) -isystem $(CUDA_HOME)/include -Wno-conversion $< $(CUDA_LIB) $(LIB) $(LDFLAGS) $(LIBS) \
	  $(CUDA_LIBS) -o $@

.PHONY: gpu-test
gpu-test: $(GPU_TESTS) $(CUDA_SO) all ## the kernels and the engine against their references, on the device; skips without one
	$(Q)BUILD=$(BUILD) CUDA_ARCH=$(CUDA_ARCH) sh tests/run.sh $(GPU_TESTS) tests/e2e/device.sh tests/e2e/ranks_device.sh tests/e2e/older_devices.sh

.PHONY: gpu-sanitize gpu-programs
gpu-programs: $(GPU_TESTS)
gpu-sanitize: $(BUILD)/tests/gpu/test_gemm ## the same under compute-sanitizer, all four tools; skips without a device
	$(Q)$(MAKE) CONFIG=checked gpu-programs
	$(Q)rc=0; BUILD=$(BUILD) CUDA_HOME=$(CUDA_HOME) bash tests/gpu/sanitize.sh || rc=$$?; [ $$rc -eq 0 ] || [ $$rc -eq 77 ]

.PHONY: gpu-bench
gpu-bench: $(BUILD)/tests/gpu/bench_gemm ## time the kernels on the device; skips without one
	$(Q)rc=0; $< w4a16 w8a8 fp8 w4a8 8192 8192 -- 1 16 32 64 128 256 1024 4096 || rc=$$?; [ $$rc -eq 0 ] || [ $$rc -eq 77 ]
endif
