# make sanitize-parsers: what reads hostile bytes, under ASan and UBSan, at a cost that every run of
# continuous integration can bear: the corpora of all fuzzers and the tests of whatever parses. Only
# their objects are instrumented; what they call of kernels and methods is that of the release build. All
# programs are one, which is linked once. `make sanitize` instruments everything and runs every test.

# The checks of figures decode whole weights in loops of their own and meet no bytes.
PARSER_SRC   := $(filter-out verify/checks/plausible.c verify/checks/residual.c, \
                  $(filter formats/% verify/base/% verify/checks/% verify/decoders/% verify/loaders/% verify/tasks/% \
                    verify/metrics/hidden_file.c quant/stats/stats_read.c tools/cli/% tools/recipe/%,$(LIB_SRC) $(TOOL_SRC)))
# Without those that convert or compute more than they read.
PARSER_TESTS := $(filter-out %/test_logits.c %/test_small_grid.c %/test_gguf_families.c, \
                  $(filter $(addprefix tests/unit/,base/% dialect/% files/% gguf/% text/% quant/test_stats.c \
                    $(addprefix verify/test_,decode_spec.c hidden_file.c loaders%.c tasks.c verify_config.c verify_gguf.c verify_spoilt.c \
                      verify_structure.c) \
                    $(addprefix tools/test_,recipe.c opt.c presets.c)),$(UNIT_SRC)))
PARSERS_OBJ  := $(PARSER_SRC:%.c=$(BUILD)/%.o) $(PARSER_TESTS:%.c=$(BUILD)/many/%.o) \
                $(FUZZ_SRC:%.c=$(BUILD)/many/%.o) $(BUILD)/many/tests/fuzz/replay.o
PARSERS_RUN  := $(PARSER_TESTS:%.c=$(BUILD)/%) $(REPLAY_BIN)
# A name that C allows: tests/unit/base/test_json.c is tests_unit_base_test_json.
C_NAME = $(subst /,_,$(basename $(1)))

$(BUILD)/many/tests/unit/%.o: MANY_FLAGS = -Dmain=$(call C_NAME,$<)
$(BUILD)/many/tests/fuzz/fuzz_%.o: MANY_FLAGS = -DLLVMFuzzerTestOneInput=$(call C_NAME,$<)
$(BUILD)/many/tests/fuzz/replay.o: MANY_FLAGS = -DLLVMFuzzerTestOneInput=many_entry -Dmain=many_replay
$(BUILD)/many/%.o: %.c | $(DEPS_STAMP)
	@mkdir -p $(@D)
	@$(if $(V),,echo "  TEST $(CONFIG) $<")
	$(Q)$(CC) $(CFLAGS_ALL) $(MANY_FLAGS) -Wno-conversion -Wno-missing-prototypes -MMD -MP -c $< -o $@

$(BUILD)/many.list: $(MAKEFILE_LIST)
	@mkdir -p $(@D)
	$(Q){ $(foreach t,$(PARSER_TESTS),echo 'TEST($(call C_NAME,$t), "$(basename $t)")';) \
	  $(foreach t,$(FUZZ_SRC),echo 'FUZZ($(call C_NAME,$t), "$(t:tests/fuzz/fuzz_%.c=%)")';) } >$@

$(BUILD)/parsers: tests/make/many.c $(BUILD)/many.list $(PARSERS_OBJ) $(RELEASED_LIBS)
	@$(if $(V),,echo "  LINK $@")
	$(Q)$(CC) $(CFLAGS_ALL) -Wno-strict-prototypes -DMANY_LIST='"$(BUILD)/many.list"' $< $(PARSERS_OBJ) \
	  $(RELEASED_LIBS) $(LDFLAGS) $(UNIT_LIBS) -o $@

.PHONY: sanitize-parsers run-parsers
run-parsers: $(BUILD)/parsers
	$(Q)for t in $(PARSERS_RUN); do mkdir -p $$(dirname $$t) && ln -sfn $(CURDIR)/$< $$t || exit 1; done
	$(Q)BUILD=$(BUILD) sh tests/run.sh $(PARSERS_RUN)

sanitize-parsers: $(TEST_LIB) $(LIB) ## what reads foreign bytes under ASan and UBSan: all corpora, the tests of parsers
	$(Q)$(MAKE) CONFIG=parsers RELEASED_LIBS='$^' run-parsers
