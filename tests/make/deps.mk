# What Swage needs from Debian, installed when missing. Probed by compiling, not by asking dpkg.

DEPS_STAMP := build/.deps
DEPS_PACKAGES := gcc libc6-dev libopenblas-dev liblapacke-dev libcjson-dev libssl-dev \
                 libpcre2-dev libutf8proc-dev libzstd-dev libcmocka-dev
SANITIZER_PACKAGES := clang libclang-rt-14-dev libomp-dev

$(DEPS_STAMP):
	@mkdir -p build
	@sh tests/make/install_deps.sh $(DEPS_PACKAGES)
	@touch $@

.PHONY: deps
deps: $(DEPS_STAMP) ## install the Debian packages that are missing

build/.deps-sanitizers: $(DEPS_STAMP)
	@command -v clang >/dev/null && ls /usr/lib/llvm-*/lib/libarcher.so >/dev/null 2>&1 && \
	  ls /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-x86_64.a >/dev/null 2>&1 || \
	  sh tests/make/apt_install.sh $(SANITIZER_PACKAGES)
	@touch $@
