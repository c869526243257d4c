#!/bin/sh
# Compile a program that uses every library; if that fails, install the packages named and try again.
set -eu
here=$(dirname "$0")
probe() {
    command -v ${CC:-cc} >/dev/null 2>&1 || return 1
    ${CC:-cc} -fopenmp "$here/probe.c" -o /dev/null -llapacke -lopenblas -lcjson -lcrypto \
        -lpcre2-8 -lutf8proc -lzstd -lcmocka -lm >/dev/null 2>&1
}
probe && exit 0
sh "$here/apt_install.sh" "$@"
probe || { echo "the libraries are installed but do not link; see tests/make/probe.c" >&2; exit 1; }
