# Swage. `make help` lists the targets; `make V=1` shows the commands.
#
# Objects live under build/<config>/, so sanitizer builds never mix with others.

CONFIG  ?= release
CC      ?= cc
# What runs the program that was built, where it is for another machine: an emulator.
RUN     ?=
PREFIX  ?= /usr/local
VERSION := 0.1.0
RELEASED := 2026-11-22
Q       := $(if $(V),,@)

# Every processor, unless a number of jobs was asked for.
ifeq ($(filter -j% --jobserver%,$(MAKEFLAGS)),)
MAKEFLAGS += -j$(shell nproc)
endif

BUILD := build/$(CONFIG)
NVCC  := $(shell command -v nvcc 2>/dev/null || ls /usr/local/cuda/bin/nvcc 2>/dev/null)

# Every warning here has caught something; -Wconversion is left off in tests only.
WARN := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef \
        -Wcast-qual -Wwrite-strings -Wdouble-promotion
# GCC warns of what cannot happen in code that it instruments for a sanitizer: there a warning stays a warning.
ifdef CI
ifeq ($(filter asan ubsan sanitize parsers tsan,$(CONFIG)),)
WARN += -Werror
endif
endif

# -ffp-contract=off: the reference and the fast kernels must round alike on every compiler.
BASE_FLAGS := -std=c11 -I. -D_GNU_SOURCE -DSW_VERSION='"$(VERSION)"' -DSW_CONFIG='"$(CONFIG)"' -ffp-contract=off \
              -fno-math-errno -fopenmp
# Lines alone (-g1) where it is for users: full debug information takes GCC as long as the code.
OPT_release  := -O3 -g1
OPT_portable := -O2 -g1 -DSW_NO_SIMD
OPT_checked  := -O3 -g1 -DSW_CHECKED
OPT_asan     := -O1 -g -fsanitize=address -fno-omit-frame-pointer
OPT_ubsan    := -O1 -g -fsanitize=undefined -fno-sanitize-recover=all
OPT_sanitize := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
OPT_parsers  := -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
OPT_tsan     := -O1 -g -fsanitize=thread
OPT_fuzz     := -O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
OPT_coverage := -O0 -g --coverage

CFLAGS_ALL := $(BASE_FLAGS) $(OPT_$(CONFIG)) $(WARN) $(CFLAGS)
LIBS := -llapacke -lopenblas -lcjson -lcrypto -lpcre2-8 -lutf8proc -lzstd -ldl -lm

# ISA-specific files are named for what they need; everything else is baseline. For other machines
# they are empty.
MACHINE := $(shell $(CC) -dumpmachine 2>/dev/null || uname -m)
ifneq ($(filter x86_64%,$(MACHINE)),)
%_avx2.o:   ISA_FLAGS := -mavx2 -mfma -mf16c
%_avx512.o: ISA_FLAGS := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c
%_vnni.o:   ISA_FLAGS := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mfma -mf16c
endif

# The day of the version, for the manual pages; what else is compiled does not depend on it.
$(BUILD)/tools/shell/man_page.o: LAST_FLAGS := -DSW_RELEASED='"$(RELEASED)"'

# Kernels meet no bytes of a file before a parser has passed them, and clang needs ten minutes to instrument their
# vector code for fuzzing.
ifeq ($(CONFIG),fuzz)
$(BUILD)/kernels/cpu/%.o: LAST_FLAGS := -fno-sanitize=all
endif

# kernels/cuda becomes a library of its own by tests/make/cuda.mk; forward.c opens it at run time.
# quant/team/mpi likewise, by tests/make/mpi.mk; join_mpi.c opens it.
LIB_SRC   := $(sort $(shell find formats kernels quant verify -name '*.c' ! -path 'kernels/cuda/*' \
                 ! -path 'quant/team/mpi/*') \
               kernels/cuda/forward.c)
TOOL_SRC  := $(sort $(shell find tools -name '*.c'))
UNIT_SRC  := $(sort $(shell find tests/unit tests/fault tests/property -name 'test_*.c'))
TSUP_SRC  := $(sort $(shell find tests/support -name '*.c'))
FUZZ_SRC  := $(sort $(wildcard tests/fuzz/fuzz_*.c))
# The kernels' inner loops take longest, so they come first.
LIB_OBJ   := $(patsubst %.c,$(BUILD)/%.o,$(filter kernels/cpu/ops_%,$(LIB_SRC)) $(filter-out kernels/cpu/ops_%,$(LIB_SRC)))
TOOL_OBJ  := $(TOOL_SRC:%.c=$(BUILD)/%.o)
TSUP_OBJ  := $(TSUP_SRC:%.c=$(BUILD)/%.o)
UNIT_BIN  := $(UNIT_SRC:%.c=$(BUILD)/%)
FUZZ_BIN  := $(FUZZ_SRC:%.c=$(BUILD)/%)
REPLAY_BIN := $(FUZZ_SRC:tests/fuzz/fuzz_%.c=$(BUILD)/tests/fuzz/replay_%)
LIB := $(BUILD)/libswage.a
BIN := $(BUILD)/swage

.PHONY: all
all: $(BIN) ## build build/swage and build/libswage.a
ifeq ($(CONFIG),release)
	$(Q)ln -sfn release/swage build/swage
	$(Q)ln -sfn release/libswage.a build/libswage.a
endif

include tests/make/deps.mk
include tests/make/test.mk
include tests/make/parsers.mk
include tests/make/demo.mk
include tests/make/cuda.mk
include tests/make/emulate.mk
include tests/make/bundle.mk
include tests/make/mpi.mk
include tests/make/library.mk
include tests/make/install.mk
include tests/make/package.mk

$(BUILD)/%.o: %.c | $(DEPS_STAMP)
	@mkdir -p $(@D)
	@$(if $(V),,echo "  CC   $(CONFIG) $<")
	$(Q)$(CC) $(CFLAGS_ALL) $(ISA_FLAGS) $(LAST_FLAGS) -MMD -MP -c $< -o $@

$(LIB): $(LIB_OBJ)
	@$(if $(V),,echo "  AR   $@")
	$(Q)rm -f $@ && ar rcs $@ $^

# All of the library, for libswage_cuda.so takes what it needs from the program.
$(BIN): $(TOOL_OBJ) $(LIB)
	@$(if $(V),,echo "  LINK $@")
	$(Q)$(CC) $(CFLAGS_ALL) -rdynamic $(TOOL_OBJ) -Wl,--whole-archive $(LIB) -Wl,--no-whole-archive \
	  $(LDFLAGS) $(LIBS) -o $@

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)

.PHONY: clean
clean: ## remove everything that was built
	rm -rf build

.PHONY: help
help: ## this list
	@grep -hE '^[a-z %-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | \
	  awk -F'\t' '{printf "  make %-16s %s\n", $$1, $$2}'
