# Packages, all under build/: a source archive, Debian packages, an archive of the program that runs on
# other distributions, and the list of what is linked (SBOM). Names of files and what the scripts do are
# in tests/make/package/.

DIST_NAME := swage-$(VERSION)
DIST      := build/$(DIST_NAME).tar.gz

.PHONY: dist
dist: ## the source as build/swage-VERSION.tar.gz, the same bytes on every machine
	$(Q)sh tests/make/package/dist.sh $(DIST_NAME) $(DIST)

DEB_DIR   := build/deb
MULTIARCH  = $(shell dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null)

.PHONY: deb deb-test
deb: all shared ## Debian packages in build/deb: swage, libswage0, libswage-dev, and swage-cuda where `make cuda` was run
	@command -v dpkg-shlibdeps >/dev/null || { echo "make deb: no dpkg-shlibdeps; install dpkg-dev"; exit 1; }
	@[ -f "$(CUDA_SO)" ] || echo "swage-cuda is skipped: $(if $(NVCC),make cuda was not run,no nvcc found)"
	$(Q)rm -rf build/stage && $(MAKE) -s install DESTDIR=$(CURDIR)/build/stage PREFIX=/usr \
	  LIBDIR=/usr/lib/$(MULTIARCH) CUDA_DIR=/usr/lib/swage >/dev/null
	$(Q)sh tests/make/package/deb.sh $(VERSION) build/stage $(DEB_DIR)
	$(Q)if command -v lintian >/dev/null; then lintian --fail-on error --tag-display-limit 3 $(DEB_DIR)/*.deb; \
	  else echo "lintian is not installed: the packages are not checked"; fi

deb-test: deb ## install, use and remove the packages in a clean Debian; by root, with a mirror, some minutes
	$(Q)rc=0; bash tests/make/package/deb_test.sh $(DEB_DIR) calib_data tests/examples || rc=$$?; [ $$rc -eq 0 ] || [ $$rc -eq 77 ]
