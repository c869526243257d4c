# Installing and its reverse.
#
#   include/libswage.h         the C interface, with libswage.so.0 and swage.pc
#   include/swage/             all headers of the library, whose names may change with every version,
#                              with libswage.a and swage-static.pc; "formats/num/num.h" of an
#                              installed program is the same line as here
#   libswage_cuda.so, .a       where `make cuda` has built them, and swage-cuda.pc
#   libswage_mpi.so            where mpicc was there
#
# LIBDIR and CUDA_DIR are for packages whose system keeps libraries elsewhere than in PREFIX/lib.

LIBDIR   ?= $(PREFIX)/lib
CUDA_DIR ?= $(LIBDIR)
DEST    := $(DESTDIR)$(PREFIX)
LIB_DEST := $(DESTDIR)$(LIBDIR)
HEADERS := $(DEST)/include/swage
PC_DIR  := $(LIB_DEST)/pkgconfig
# The program itself writes its pages and the scripts that complete its command lines.
MAN_DIR := $(DEST)/share/man/man1
BASH_COMPLETION := $(DEST)/share/bash-completion/completions/swage
ZSH_COMPLETION  := $(DEST)/share/zsh/site-functions/_swage
FISH_COMPLETION := $(DEST)/share/fish/vendor_completions.d/swage.fish

define SWAGE_PC
prefix=$(PREFIX)
libdir=$(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR))
includedir=$${prefix}/include

Name: swage
Description: read, quantize and convert checkpoints of language models
Version: $(VERSION)
Cflags: -I$${includedir}
Libs: -L$${libdir} -lswage
endef

define STATIC_PC
prefix=$(PREFIX)
libdir=$(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR))
includedir=$${prefix}/include/swage

Name: swage-static
Description: all of swage with its own headers, for engines; names may change with every version
Version: $(VERSION)
Cflags: -I$${includedir}
Libs: -L$${libdir} -l:libswage.a -fopenmp $(LIBS)
endef

# For engines that link the kernels themselves; written where `make cuda` has built them. The shared
# object of that name is a part of the program, not for linking.
define SWAGE_CUDA_PC
prefix=$(PREFIX)
libdir=$(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR))
cudaroot=$(CUDA_HOME)

Name: swage-cuda
Description: the CUDA kernels of swage for inference engines
Version: $(VERSION)
Requires: swage-static
Cflags: -I$${cudaroot}/include
Libs: -L$${libdir} -l:libswage_cuda.a $(subst $(CUDA_HOME),$${cudaroot},$(CUDA_LIBS))
endef
export SWAGE_PC STATIC_PC SWAGE_CUDA_PC

.PHONY: install
install: all shared ## install program, libraries, headers, manual pages and completions under PREFIX (default /usr/local)
	install -d $(DEST)/bin $(PC_DIR) $(DESTDIR)$(CUDA_DIR)
	install -m 755 $(BIN) $(DEST)/bin/swage
	install -m 644 $(LIB) $(LIB_DEST)/libswage.a
	install -m 755 $(SHARED_LIB) $(LIB_DEST)/
	ln -sfn $(notdir $(SHARED_LIB)) $(LIB_DEST)/$(SO_NAME)
	ln -sfn $(SO_NAME) $(LIB_DEST)/libswage.so
	[ ! -f "$(CUDA_SO)" ] || install -m 644 $(CUDA_SO) $(DESTDIR)$(CUDA_DIR)/
	[ ! -f "$(MPI_SO)" ] || install -m 644 $(MPI_SO) $(DESTDIR)$(CUDA_DIR)/
	[ ! -f "$(CUDA_LIB)" ] || install -m 644 $(CUDA_LIB) $(LIB_DEST)/
	rm -rf $(HEADERS)
	install -d $(HEADERS)
	find formats kernels quant verify -name '*.h' -o -name '*.def' | tar -cf - -T - | tar -xf - -C $(HEADERS)
	install -m 644 $(API_HEADER) $(DEST)/include/
	printf '%s\n' "$$SWAGE_PC" >$(PC_DIR)/swage.pc
	printf '%s\n' "$$STATIC_PC" >$(PC_DIR)/swage-static.pc
	[ ! -f "$(CUDA_LIB)" ] || printf '%s\n' "$$SWAGE_CUDA_PC" >$(PC_DIR)/swage-cuda.pc
	install -d $(MAN_DIR) $(dir $(BASH_COMPLETION) $(ZSH_COMPLETION) $(FISH_COMPLETION))
	$(RUN) $(BIN) completion bash >$(BASH_COMPLETION)
	$(RUN) $(BIN) completion zsh >$(ZSH_COMPLETION)
	$(RUN) $(BIN) completion fish >$(FISH_COMPLETION)
	rm -f $(MAN_DIR)/swage.1 $(MAN_DIR)/swage-*.1
	$(RUN) $(BIN) man >$(MAN_DIR)/swage.1
	for c in $$($(RUN) $(BIN) --help | sed -n 's/^  \([a-z]*\)  .*/\1/p'); do \
	  $(RUN) $(BIN) man $$c >$(MAN_DIR)/swage-$$c.1 || exit 1; done

.PHONY: uninstall
uninstall: ## remove what `make install` put under PREFIX
	rm -f $(DEST)/bin/swage $(DEST)/include/libswage.h $(DESTDIR)$(CUDA_DIR)/libswage_cuda.so $(DESTDIR)$(CUDA_DIR)/libswage_mpi.so \
	  $(addprefix $(LIB_DEST)/,libswage.a libswage.so $(SO_NAME) $(notdir $(SHARED_LIB)) libswage_cuda.a) \
	  $(addprefix $(PC_DIR)/,swage.pc swage-static.pc swage-cuda.pc) \
	  $(BASH_COMPLETION) $(ZSH_COMPLETION) $(FISH_COMPLETION) $(MAN_DIR)/swage.1 $(MAN_DIR)/swage-*.1
	rm -rf $(HEADERS)
