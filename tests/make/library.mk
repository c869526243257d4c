# The C interface: libswage.so.0 with the functions of tools/library/libswage.h and no others, and the
# example programs of tests/examples.
#
# The objects are those of the program. They are compiled for a position-independent executable, which
# serves a library too where none of its own symbols can be replaced from outside: the version script
# hides all but the interface, and the linker refuses what it cannot bind. Only objects that use data of
# libc (stderr) must be compiled for a library, which are some of tools/. -z defs and -z text see to it
# that nothing is left to be found or patched at load time.

SO_MAJOR   := $(firstword $(subst ., ,$(VERSION)))
SO_NAME    := libswage.so.$(SO_MAJOR)
SHARED_LIB := $(BUILD)/libswage.so.$(VERSION)
API_HEADER := tools/library/libswage.h
API_OBJ    := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tools/library/*.c))
EXAMPLES   := $(patsubst tests/examples/%.c,$(BUILD)/tests/examples/%,$(sort $(wildcard tests/examples/*.c)))

$(TOOL_OBJ): LAST_FLAGS += -fPIC

# What the header declares is what is exported.
$(BUILD)/libswage.map: $(API_HEADER)
	@mkdir -p $(@D)
	$(Q){ echo 'SWAGE_$(SO_MAJOR) { global:'; sed -nE '/^SW_API/s/.*[ *](sw_[a-z0-9_]+)\(.*/    \1;/p' $<; \
	  echo 'local: *; };'; } >$@

$(BUILD)/libparts.a: $(filter-out $(API_OBJ),$(PART_OBJ))
	$(Q)rm -f $@ && ar rcsT $@ $^

$(SHARED_LIB): $(API_OBJ) $(BUILD)/libparts.a $(LIB) $(BUILD)/libswage.map
	@$(if $(V),,echo "  LINK $@")
	$(Q)$(CC) $(CFLAGS_ALL) -shared -Wl,-soname,$(SO_NAME) -Wl,--version-script=$(BUILD)/libswage.map \
	  -Wl,-z,defs,-z,text,-z,relro,-z,now -Wl,--gc-sections $(API_OBJ) $(BUILD)/libparts.a $(LIB) $(LDFLAGS) $(LIBS) -o $@
	$(Q)ln -sfn $(notdir $@) $(BUILD)/$(SO_NAME)
	$(Q)ln -sfn $(SO_NAME) $(BUILD)/libswage.so

.PHONY: shared
shared: $(SHARED_LIB) ## the shared library of the C interface, build/release/libswage.so.0

# As a stranger compiles them, but for where header and library are.
$(BUILD)/tests/examples/%: tests/examples/%.c $(SHARED_LIB) $(API_HEADER)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=c11 -O2 -Wall -Wextra -Werror -Itools/library $< -L$(BUILD) -lswage -lm -Wl,-rpath,'$$ORIGIN/../..' -o $@

.PHONY: examples
examples: $(EXAMPLES) ## the example programs of the C interface
