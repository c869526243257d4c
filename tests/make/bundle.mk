# What a machine with a card but without sources, compiler and libraries needs, as one archive: the program, the
# CUDA half, the programs of tests/gpu and what they read. bundle.sh packs it, bundle.txt lists what goes along,
# and run.sh in it is tests/gpu/on_card.sh. Programs share libswage_cuda.so and libswage_host.so, of 29 and 3
# MB, which are 1.5 MB more in each otherwise.
#
# CONFIG      release: all. checked: its programs alone, to be unpacked over the first for compute-sanitizer
# CUDA_ARCH   90a, unless it is given; objects that are there already are taken as they are
# GPU_BUNDLE  the archive: .tar.gz, .tar.xz, .tar.zst or .tar
# GPU_MODELS  trained models of tests/golden/models to go along: tiny-moe (18 MB), small-llama (48 MB)

GPU_BUNDLE ?= build/swage-gpu-$(CONFIG).tar.gz
BUNDLE     := $(BUILD)/bundle

.PHONY: gpu-bundle
ifeq ($(WITH_CUDA),)
gpu-bundle:
	@echo "skipped: $(if $(NVCC),a $(CONFIG) build,no nvcc found)"
else
BUNDLE_C     := $(sort $(wildcard tests/gpu/test_*.c tests/gpu/bench_*.c)) $(addprefix tests/tools/,expand_recipe.c synthetic_model.c)
BUNDLE_PROGS := $(BUNDLE_C:%.c=$(BUNDLE)/%)
# Places are those of a checkout, so that its scripts run there as they are. An rpath of the older kind also
# holds for what the libraries need in turn.
BUNDLE_LINK  := -s -Wl,--as-needed -Wl,--disable-new-dtags

$(BUNDLE)/libswage_cuda.so: $(CUDA_SO)
	@mkdir -p $(@D)
	$(Q)strip -o $@ $<

# The host's objects without the stubs for the CUDA half. As in libswage.so, they serve a library although they
# are not compiled for one, since none of its symbols is replaced from outside: it is bound to itself.
$(BUNDLE)/libswage_host.so: $(filter-out %/forward.o,$(LIB_OBJ)) $(BUNDLE)/libswage_cuda.so
	@$(if $(V),,echo "  LINK $@")
	$(Q)$(CC) $(CFLAGS_ALL) -shared -s -Wl,-Bsymbolic -Wl,-z,text -o $@ $(filter %.o,$^) \
	  -L$(BUNDLE) -l:libswage_cuda.so $(LDFLAGS) $(LIBS)

$(BUNDLE)/swage: $(TOOL_OBJ) $(LIB)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_ALL) -rdynamic $(TOOL_OBJ) -Wl,--whole-archive $(LIB) -Wl,--no-whole-archive \
	  $(LDFLAGS) $(LIBS) $(BUNDLE_LINK) -Wl,-rpath,'$$ORIGIN/../../lib' -o $@

# What is not in the libraries is compiled as for one: without it a program would get copies of their tables, and
# rows that are told by their addresses would not be the same on both sides.
BUNDLE_FLAGS := -fPIC -isystem $(CUDA_HOME)/include -Wno-conversion -Wno-missing-prototypes
BUNDLE_SUP   := $(patsubst $(BUILD)/%,$(BUNDLE)/pic/%,$(filter-out %.cu.o,$(GPU_SUP)) $(GPU_TSUP_OBJ))
.SECONDARY: $(BUNDLE_SUP)
$(BUNDLE)/pic/%.o: %.c | $(DEPS_STAMP)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_ALL) $(BUNDLE_FLAGS) -MMD -MP -c $< -o $@
$(BUNDLE)/support.a: $(BUNDLE_SUP) $(filter %.cu.o,$(GPU_SUP))
	$(Q)rm -f $@ && ar rcsT $@ $^

$(BUNDLE_PROGS): $(BUNDLE)/%: %.c $(BUNDLE)/support.a $(BUNDLE)/libswage_host.so
	@mkdir -p $(@D)
	@$(if $(V),,echo "  TEST $(CONFIG) $< (bundle)")
	$(Q)$(CC) $(CFLAGS_ALL) $(BUNDLE_FLAGS) -MMD -MP $< $(BUNDLE)/support.a -L$(BUNDLE) -l:libswage_cuda.so \
	  -l:libswage_host.so $(BUNDLE_LINK) -Wl,-rpath,'$$ORIGIN/../..:$$ORIGIN/../../../../lib' \
	  $(LDFLAGS) $(UNIT_LIBS) $(CUDA_LIBS) -lcublasLt -lstdc++ -o $@

gpu-bundle: $(BUNDLE)/swage $(BUNDLE_PROGS) ## all that a machine with a card needs to test, as one archive
	$(Q)MODELS='$(GPU_MODELS)' bash tests/make/bundle.sh $(CONFIG) $(BUNDLE) $(GPU_BUNDLE)
endif
