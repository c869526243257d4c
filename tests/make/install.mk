# Installing and its reverse. Headers go to PREFIX/include/swage, so that "formats/num/num.h" of an
# installed program is the same line as here. The library is static: swage.pc names, beside -lswage,
# what it needs.

DEST    := $(DESTDIR)$(PREFIX)
HEADERS := $(DEST)/include/swage
PC_DIR  := $(DEST)/lib/pkgconfig

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
install: all ## install the program, the library, its headers and swage.pc under PREFIX (default /usr/local)
	install -d $(DEST)/bin $(PC_DIR)
	install -m 755 build/swage $(DEST)/bin/swage
	install -m 644 build/libswage.a $(DEST)/lib/libswage.a
	for f in $(CUDA_SO) $(CUDA_LIB); do [ ! -f $$f ] || install -m 644 $$f $(DEST)/lib/; done
	rm -rf $(HEADERS)
	install -d $(HEADERS)
	find formats kernels quant verify -name '*.h' -o -name '*.def' | tar -cf - -T - | tar -xf - -C $(HEADERS)
	printf '%s\n' "$$SWAGE_PC" >$(PC_DIR)/swage.pc
	[ ! -f "$(CUDA_LIB)" ] || printf '%s\n' "$$SWAGE_CUDA_PC" >$(PC_DIR)/swage-cuda.pc

.PHONY: uninstall
uninstall: ## remove what `make install` put under PREFIX
	rm -f $(DEST)/bin/swage $(addprefix $(DEST)/lib/,libswage.a libswage_cuda.so libswage_cuda.a) \
	  $(PC_DIR)/swage.pc $(PC_DIR)/swage-cuda.pc
	rm -rf $(HEADERS)
