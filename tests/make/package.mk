# Packages, all under build/: a source archive, Debian packages, an archive of the program that runs on
# other distributions, and the list of what is linked (SBOM). Names of files and what the scripts do are
# in tests/make/package/.

DIST_NAME := swage-$(VERSION)
DIST      := build/$(DIST_NAME).tar.gz
# Before the first rule that needs it: prerequisites are read where they stand.
SBOM      := $(BUILD)/swage.spdx.json

.PHONY: dist
dist: ## the source as build/swage-VERSION.tar.gz, the same bytes on every machine
	$(Q)sh tests/make/package/dist.sh $(DIST_NAME) $(DIST)

DEB_DIR   := build/deb
MULTIARCH  = $(shell dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null)

.PHONY: deb deb-test
deb: all shared $(SBOM) ## Debian packages in build/deb: swage, libswage0, libswage-dev, and swage-cuda where `make cuda` was run
	@command -v dpkg-shlibdeps >/dev/null || { echo "make deb: no dpkg-shlibdeps; install dpkg-dev"; exit 1; }
	@[ -f "$(CUDA_SO)" ] || echo "swage-cuda is skipped: $(if $(NVCC),make cuda was not run,no nvcc found)"
	$(Q)rm -rf build/stage && $(MAKE) -s install DESTDIR=$(CURDIR)/build/stage PREFIX=/usr \
	  LIBDIR=/usr/lib/$(MULTIARCH) CUDA_DIR=/usr/lib/swage >/dev/null
	$(Q)sh tests/make/package/deb.sh $(VERSION) build/stage $(DEB_DIR) $(SBOM)
	$(Q)if command -v lintian >/dev/null; then lintian --fail-on error --tag-display-limit 3 $(DEB_DIR)/*.deb; \
	  else echo "lintian is not installed: the packages are not checked"; fi

deb-test: deb ## install, use and remove the packages in a clean Debian; by root, with a mirror, some minutes
	$(Q)rc=0; bash tests/make/package/deb_test.sh $(DEB_DIR) calib_data tests/examples || rc=$$?; [ $$rc -eq 0 ] || [ $$rc -eq 77 ]

$(SBOM): $(BIN) $(SHARED_LIB) tests/make/package/sbom.sh
	$(Q)RUN='$(RUN)' bash tests/make/package/sbom.sh $(VERSION) $(BIN) $(SHARED_LIB) \
	  $(if $(wildcard $(CUDA_SO)),$(CUDA_SO) $(CUDA_HOME)/lib64/libcudart_static.a) >$@.part && mv $@.part $@

.PHONY: sbom
sbom: $(SBOM) ## what is linked, with versions and licences, as SPDX 2.3 in build/release/swage.spdx.json
	@echo $(SBOM)

# The same objects, linked so that they find the libraries of their own folder. An rpath of the older
# kind (DT_RPATH) also holds for what those libraries need in turn. With CC for another machine and RUN, an
# emulator of it, the archive is for that machine.
TAR_STAGE  := build/tar-stage
ORIGIN_LIB := -Wl,--disable-new-dtags -Wl,-rpath,'$$ORIGIN/../lib'

.PHONY: tarball tarball-old tarball-aarch64
tarball: all shared $(SBOM) ## an archive that runs where it is unpacked, with its libraries (GLIBC=2.31 to refuse a newer one)
	$(Q)rm -rf $(TAR_STAGE) && $(MAKE) -s install DESTDIR=$(CURDIR)/$(TAR_STAGE)/ PREFIX= LIBDIR=/lib >/dev/null
	$(Q)$(CC) $(CFLAGS_ALL) -rdynamic $(TOOL_OBJ) -Wl,--whole-archive $(LIB) -Wl,--no-whole-archive \
	  $(LDFLAGS) $(LIBS) $(ORIGIN_LIB) -o $(TAR_STAGE)/bin/swage
	$(Q)$(CC) $(CFLAGS_ALL) -shared -Wl,-soname,$(SO_NAME) -Wl,--version-script=$(BUILD)/libswage.map \
	  -Wl,-z,defs,-z,text,-z,relro,-z,now -Wl,--gc-sections $(API_OBJ) $(BUILD)/libparts.a $(LIB) $(LDFLAGS) $(LIBS) \
	  -Wl,--disable-new-dtags -Wl,-rpath,'$$ORIGIN' -o $(TAR_STAGE)/lib/$(notdir $(SHARED_LIB))
	$(Q)CC='$(CC)' RUN='$(RUN)' bash tests/make/package/tarball.sh $(VERSION) $(TAR_STAGE) build/tarball $(SBOM) $(GLIBC)

.PHONY: tarball-test
tarball-test: ## every archive in build/tarball, unpacked here (ROOT=DIR: and in that other system), does its work
	$(Q)for t in build/tarball/*.tar.gz; do bash tests/make/package/tarball_test.sh $$t calib_data $(ROOT) || [ $$? -eq 77 ] || exit 1; done

tarball-old: ## the same in a Debian 11, for glibc 2.31 and later; by root, with a mirror, some minutes
	$(Q)rc=0; bash tests/make/package/tarball_old.sh 2.31 || rc=$$?; [ $$rc -eq 0 ] || [ $$rc -eq 77 ]

tarball-aarch64: ## the same for 64-bit Arm, cross-compiled in a Debian 11 and used under an emulator; by root, with a mirror
	$(Q)rc=0; bash tests/make/package/aarch64.sh 2.31 || rc=$$?; [ $$rc -eq 0 ] || [ $$rc -eq 77 ]
