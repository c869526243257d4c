# The CUDA kernels, their tests and bench. CUDA=auto builds them where nvcc is, 0 never, 1 or fail.
# Nothing here is part of `make` or `make test`: neither needs a compiler for it, nor a card.

GPU_ARCH  := -gencode=arch=compute_90a,code=sm_90a
NVFLAGS   := -std=c++17 -O3 -I. $(GPU_ARCH)
CUDA_HOME := $(patsubst %/bin/nvcc,%,$(NVCC))
CUDA_SRC  := $(sort $(wildcard kernels/cuda/*.cu))
CUDA_OBJ  := $(CUDA_SRC:%.cu=$(BUILD)/%.cu.o)
CUDA_LIB  := $(BUILD)/libswage_cuda.a
GPU_BIN   := $(BUILD)/tests/gpu/test_w4a16 $(BUILD)/tests/gpu/bench_w4a16
GPU_LIBS  := -L$(CUDA_HOME)/lib64 -lcudart_static -lcublasLt -lstdc++ -ldl -lrt -lpthread
GPU_SUP   := $(BUILD)/tests/gpu/gpu_ref.cu.o $(BUILD)/tests/gpu/gpu_case.o

ifeq ($(CUDA),0)
WITH_CUDA :=
else
WITH_CUDA := $(NVCC)
endif

ifeq ($(WITH_CUDA),)
.PHONY: cuda gpu-test gpu-bench
cuda gpu-test gpu-bench:
	@echo "skipped: $(if $(filter 0,$(CUDA)),CUDA=0,no nvcc found)"; $(if $(filter 1,$(CUDA)),exit 1,exit 0)
else
.PHONY: cuda
cuda: $(CUDA_LIB) $(GPU_BIN) ## the CUDA kernels, their tests and bench (CUDA=auto|0|1)

$(BUILD)/%.cu.o: %.cu
	@mkdir -p $(@D)
	@$(if $(V),,echo "  NVCC $<")
	$(Q)$(NVCC) $(NVFLAGS) -MD -MP -MF $(@:.o=.d) -c $< -o $@

$(CUDA_LIB): $(CUDA_OBJ)
	$(Q)rm -f $@ && ar rcs $@ $^

$(BUILD)/tests/gpu/gpu_case.o: CFLAGS += -isystem $(CUDA_HOME)/include -Wno-conversion

$(GPU_BIN): $(BUILD)/tests/gpu/%: tests/gpu/%.c $(GPU_SUP) $(CUDA_LIB) $(LIB) $(TSUP_OBJ)
	@mkdir -p $(@D)
	@$(if $(V),,echo "  TEST $(CONFIG) $<")
	$(Q)$(CC) $(CFLAGS_ALL) -isystem $(CUDA_HOME)/include -Wno-conversion -Wno-missing-prototypes -MMD -MP \
	  $< $(GPU_SUP) $(CUDA_LIB) $(TSUP_OBJ) $(LIB) $(LDFLAGS) $(UNIT_LIBS) $(GPU_LIBS) -o $@

.PHONY: gpu-test
gpu-test: $(BUILD)/tests/gpu/test_w4a16 ## the kernels against their reference, on the card; skips without one
	$(Q)rc=0; $< || rc=$$?; [ $$rc -eq 0 ] || [ $$rc -eq 77 ]

.PHONY: gpu-bench
gpu-bench: $(BUILD)/tests/gpu/bench_w4a16 ## time the kernels on the card; skips without one
	$(Q)rc=0; $< 8192 8192 -- 1 16 32 64 128 256 1024 4096 || rc=$$?; [ $$rc -eq 0 ] || [ $$rc -eq 77 ]
endif
