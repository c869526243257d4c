#!/bin/sh
# Each header compiles on its own as C11, and the shared ones with nvcc as C++17 when it is there.
set -eu
cd "$(dirname "$0")/../.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad=0
# One call of the compiler for all, each in a file of its own, which is named for it.
for h in $(find formats kernels quant verify tools -name '*.h' ! -name '*avx*' ! -name '*_body.h' | sort); do
    echo "#include \"$h\"" >"$tmp/$(echo "$h" | tr / _).c"
done
${CC:-cc} -std=c11 -D_GNU_SOURCE -I. -Wall -Wextra -Werror -fsyntax-only "$tmp"/*.c || bad=1
if [ -n "${NVCC:-}" ]; then
    for h in formats/base/status.h formats/base/size.h formats/base/view.h formats/base/mem.h \
             $(ls formats/pack/tiles.h formats/num/half.h kernels/kernel.h 2>/dev/null); do
        echo "#include \"$h\""
    done >"$tmp/all.cu"
    "$NVCC" -std=c++17 -I. -c -arch=sm_90a "$tmp/all.cu" -o "$tmp/all.o" || bad=1
fi
exit $bad
