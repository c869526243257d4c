# Installing and its reverse. Headers go to PREFIX/include/swage, so that "formats/num/num.h" of an
# installed program is the same line as here. The library is static: swage.pc names, beside -lswage,
# what it needs.

DEST    := $(DESTDIR)$(PREFIX)
HEADERS := $(DEST)/include/swage
PC_DIR  := $(DEST)/lib/pkgconfig
# The program itself writes its pages and the scripts that complete its command lines.
MAN_DIR := $(DEST)/share/man/man1
BASH_COMPLETION := $(DEST)/share/bash-completion/completions/swage
ZSH_COMPLETION  := $(DEST)/share/zsh/site-functions/_swage
FISH_COMPLETION := $(DEST)/share/fish/vendor_completions.d/swage.fish

define SWAGE_PC
prefix=$(PREFIX)
libdir=$${prefix}/lib
includedir=$${prefix}/include/swage

Name: swage
Description: quantize language models, convert and verify their checkpoints
Version: $(VERSION)
Cflags: -I$${includedir}
Libs: -L$${libdir} -lswage -fopenmp $(LIBS)
endef

# For engines that link the kernels themselves; written where `make cuda` has built them. The shared
# object of that name is a part of the program, not for linking.
define SWAGE_CUDA_PC
prefix=$(PREFIX)
libdir=$${prefix}/lib

Name: swage-cuda
Description: the CUDA kernels of swage for inference engines
Version: $(VERSION)
Requires: swage
Cflags: -I$(CUDA_HOME)/include
Libs: -L$${libdir} -l:libswage_cuda.a $(CUDA_LIBS)
endef
export SWAGE_PC SWAGE_CUDA_PC

.PHONY: install
install: all ## install program, library, headers, manual pages and completions under PREFIX (default /usr/local)
	install -d $(DEST)/bin $(PC_DIR)
	install -m 755 build/swage $(DEST)/bin/swage
	install -m 644 build/libswage.a $(DEST)/lib/libswage.a
	for f in $(CUDA_SO) $(CUDA_LIB); do [ ! -f $$f ] || install -m 644 $$f $(DEST)/lib/; done
	rm -rf $(HEADERS)
	install -d $(HEADERS)
	find formats kernels quant verify -name '*.h' -o -name '*.def' | tar -cf - -T - | tar -xf - -C $(HEADERS)
	printf '%s\n' "$$SWAGE_PC" >$(PC_DIR)/swage.pc
	[ ! -f "$(CUDA_LIB)" ] || printf '%s\n' "$$SWAGE_CUDA_PC" >$(PC_DIR)/swage-cuda.pc
	install -d $(MAN_DIR) $(dir $(BASH_COMPLETION) $(ZSH_COMPLETION) $(FISH_COMPLETION))
	build/swage completion bash >$(BASH_COMPLETION)
	build/swage completion zsh >$(ZSH_COMPLETION)
	build/swage completion fish >$(FISH_COMPLETION)
	rm -f $(MAN_DIR)/swage.1 $(MAN_DIR)/swage-*.1
	build/swage man >$(MAN_DIR)/swage.1
	for c in $$(build/swage --help | sed -n 's/^  \([a-z]*\)  .*/\1/p'); do \
	  build/swage man $$c >$(MAN_DIR)/swage-$$c.1 || exit 1; done

.PHONY: uninstall
uninstall: ## remove what `make install` put under PREFIX
	rm -f $(DEST)/bin/swage $(addprefix $(DEST)/lib/,libswage.a libswage_cuda.so libswage_cuda.a) \
	  $(PC_DIR)/swage.pc $(PC_DIR)/swage-cuda.pc $(BASH_COMPLETION) $(ZSH_COMPLETION) $(FISH_COMPLETION) \
	  $(MAN_DIR)/swage.1 $(MAN_DIR)/swage-*.1
	rm -rf $(HEADERS)
