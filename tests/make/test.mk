# Tests, sanitizers, fuzzing, lint. One cmocka program per tests/unit/test_*.c.

FUZZ_SECONDS ?= 60
comma := ,
# The program without its main, so that tests can reach commands and options.
PART_OBJ := $(filter-out %/tools/swage.o,$(TOOL_OBJ))
UNIT_LIBS := -lcmocka $(LIBS)
# What the programs of tests/fault/ can make fail; fault.c there defines the wrappers.
WRAP := $(addprefix -Wl$(comma)--wrap=,malloc calloc realloc aligned_alloc posix_memalign free \
          pwrite posix_fallocate fsync rename renameat2 link mkdir mmap)
FAULT_OBJ := $(BUILD)/tests/fault/fault.o

.SECONDARY: $(TSUP_OBJ) $(FAULT_OBJ)

# As an archive, of which a program takes what it names: that links in half the time.
TEST_LIB := $(BUILD)/libtests.a
$(TEST_LIB): $(TSUP_OBJ) $(PART_OBJ)
	$(Q)rm -f $@ && ar rcsT $@ $^

# What tests do themselves is soon done; GCC takes twice as long to make it as fast as it can be.
TEST_OPT_release := -O1

# GNU's other linker, which takes a third of the time: two hundred programs are linked. Asked for when the first
# is, for before that there may be no compiler.
ifeq ($(CONFIG),release)
TEST_LD = $(eval TEST_LD := $(shell $(CC) -fuse-ld=gold -Wl,--version 2>/dev/null | grep -q gold && echo -fuse-ld=gold))$(TEST_LD)
endif

# Compiled and linked: $(call TEST_RULE,OBJECTS,FLAGS OF THE LINKER)
define TEST_RULE
	@mkdir -p $(@D)
	@$(if $(V),,echo "  TEST $(CONFIG) $<")
	$(Q)$(CC) $(CFLAGS_ALL) $(TEST_OPT_$(CONFIG)) -Wno-conversion -Wno-missing-prototypes -MMD -MP $< $(1) \
	  $(LIB) $(LDFLAGS) $(TEST_LD) $(2) $(UNIT_LIBS) -o $@
endef

$(BUILD)/tests/%: tests/%.c $(LIB) $(TEST_LIB)
	$(call TEST_RULE,$(TEST_LIB))

# All parts, for a library that is opened at run time takes from the program what it needs.
$(BUILD)/tests/tools/%: tests/tools/%.c $(LIB) $(TSUP_OBJ) $(PART_OBJ)
	$(call TEST_RULE,$(TSUP_OBJ) $(PART_OBJ))

$(BUILD)/tests/fault/test_%: tests/fault/test_%.c $(FAULT_OBJ) $(LIB) $(TEST_LIB)
	$(call TEST_RULE,$(FAULT_OBJ) $(TEST_LIB),$(WRAP))

$(BUILD)/tests/fuzz/fuzz_%: tests/fuzz/fuzz_%.c $(LIB) $(PART_OBJ)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_ALL) -fsanitize=fuzzer -Wno-missing-prototypes $< $(PART_OBJ) $(LIB) \
	  $(LIBS) -o $@

$(BUILD)/tests/fuzz/replay_%: tests/fuzz/fuzz_%.c tests/fuzz/replay.c $(LIB) $(TEST_LIB)
	@mkdir -p $(@D)
	@$(if $(V),,echo "  TEST $(CONFIG) $< (replay)")
	$(Q)$(CC) $(CFLAGS_ALL) $(TEST_OPT_$(CONFIG)) -Wno-missing-prototypes $< tests/fuzz/replay.c $(TEST_LIB) $(LIB) \
	  $(LDFLAGS) $(TEST_LD) $(LIBS) -o $@

.PHONY: unit
unit: $(UNIT_BIN) $(REPLAY_BIN) all ## unit, property and fault tests and the fuzz corpora
	$(Q)BUILD=$(BUILD) sh tests/run.sh $(UNIT_BIN) $(REPLAY_BIN)

# Damages checkpoints, for tests/bench/judge_corpus.sh.
CORPUS_BIN := $(BUILD)/tests/tools/judge_corpus

.PHONY: test
test: lint $(UNIT_BIN) $(REPLAY_BIN) $(CORPUS_BIN) all ## everything that must pass, with a count at the end
	$(Q)BUILD=$(BUILD) sh tests/run.sh $(UNIT_BIN) $(REPLAY_BIN) $(sort $(wildcard tests/e2e/*.sh))

.PHONY: judge-corpus
judge-corpus: $(CORPUS_BIN) all ## every damaged checkpoint that `verify` must find: half an hour
	$(Q)BUILD=$(BUILD) tests/bench/judge_corpus.sh tests/bench/judge-corpus.csv

.PHONY: sound-sweep
sound-sweep: $(CORPUS_BIN) all ## every scheme, method and format, which `verify` must pass: two hours
	$(Q)BUILD=$(BUILD) tests/bench/sound_sweep.sh tests/bench/sound-sweep.csv

.PHONY: asan ubsan sanitize tsan portable
asan ubsan sanitize: build/.deps-sanitizers ## the tests under a sanitizer (asan, ubsan, tsan; sanitize: the first two in one build)
	$(Q)$(MAKE) CONFIG=$@ unit
tsan: build/.deps-sanitizers
	$(Q)OMP_TOOL_LIBRARIES=$$(ls /usr/lib/llvm-*/lib/libarcher.so | tail -1) \
	  TSAN_OPTIONS=ignore_noninstrumented_modules=1 $(MAKE) CC=clang CONFIG=tsan unit
portable: ## the tests on a build without any SIMD
	$(Q)$(MAKE) CONFIG=$@ unit

fuzz-%: build/.deps-sanitizers ## fuzz one parser (FUZZ_SECONDS=60): make fuzz-safetensors
	$(Q)$(MAKE) CC=clang CONFIG=fuzz build/fuzz/tests/fuzz/fuzz_$*
	$(Q)mkdir -p build/fuzz/corpus/$* tests/fuzz/corpus/$*
	$(Q)ASAN_OPTIONS=allocator_may_return_null=1 build/fuzz/tests/fuzz/fuzz_$* \
	  -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
	  build/fuzz/corpus/$* tests/fuzz/corpus/$*

.PHONY: bench
bench: all ## the matrix kernels against OpenBLAS and the memory, in both directions of a large weight
	$(Q)build/swage bench
	$(Q)build/swage bench --shape 14336x4096 --m 1,4

.PHONY: lint lint-cuda
lint-cuda: $(DEPS_STAMP) ## headers and kernels as nvcc reads them
	$(Q)CC="$(CC)" NVCC="$(NVCC)" sh tests/lint/check_headers.sh
lint: $(DEPS_STAMP) ## include direction, house style, headers on their own, the list of records
	$(Q)sh tests/lint/check_deps.sh
	$(Q)sh tests/lint/check_style.sh
	$(Q)CC="$(CC)" sh tests/lint/check_headers.sh
	$(Q)sh tests/lint/check_calib_data.sh
	$(Q)sh tests/lint/check_records.sh
