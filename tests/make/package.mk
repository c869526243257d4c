# Packages, all under build/: a source archive, Debian packages, an archive of the program that runs on
# other distributions, and the list of what is linked (SBOM). Names of files and what the scripts do are
# in tests/make/package/.

DIST_NAME := swage-$(VERSION)
DIST      := build/$(DIST_NAME).tar.gz

.PHONY: dist
dist: ## the source as build/swage-VERSION.tar.gz, the same bytes on every machine
	$(Q)sh tests/make/package/dist.sh $(DIST_NAME) $(DIST)
