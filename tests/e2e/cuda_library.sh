#!/usr/bin/env bash
# The program opens its CUDA half at run time: what it says where the library is missing, is none, or
# belongs to another build. That is exit 7, and what needs no device works all the same.
. "$(dirname "$0")/lib.bash"
cp "$SWAGE" "$T/swage" # no library lies beside this one
other() { env SWAGE_CUDA_LIBRARY="$1" "$T/swage" verify "$TINY" --device cuda; }

expect 7 'there is no libswage_cuda.so beside the program*--device cpu' other ''
expect 7 "$T/nowhere.so: no such file*--device cpu" other "$T/nowhere.so"
echo 'no library' >"$T/text.so"
expect 7 "$T/text.so*--device cpu" other "$T/text.so"
echo 'extern const char sw_cuda_abi[]; const char sw_cuda_abi[] = "another";' >"$T/other.c"
${CC:-cc} -shared -fPIC -o "$T/other.so" "$T/other.c" || fail 'the compiler'
expect 7 'built from other sources than this program*--device cpu' other "$T/other.so"
expect 0 '' env SWAGE_CUDA_LIBRARY="$T/nowhere.so" "$T/swage" inspect "$TINY"

# Objects that were compiled without optimization do not pass for others, nor the other way round; a compiler that
# writes what it was told to where the object goes stands for nvcc: by way of a compiler cache that is not the last word.
cat >"$T/nvcc" <<'END'
#!/bin/sh
case $1 in --help) echo '--Ofast-compile'; exit ;; esac
told=$*
while [ $# -gt 1 ]; do
    [ "$1" = -o ] && echo "$told" >"$2"
    shift
done
END
chmod +x "$T/nvcc"
object=$T/built/kernels/cuda/gemm/gemm.cu.o
compiled() { # CUDA_OPT: is the object unoptimized then?
    make -s BUILD="$T/built" NVCC="$T/nvcc" CUDA_OPT="$1" "$object" >"$T/log" 2>&1 || fail "make: $(tail -n 3 "$T/log")"
    grep -q Ofast "$object"
}
if [ -f Makefile ]; then
    ! compiled full || fail 'unoptimized unasked'
    compiled none || fail 'an optimized object stays'
    touch -r "$object" "$T/before"
    compiled none || fail 'optimized'
    [ ! "$object" -nt "$T/before" ] || fail 'compiled again, the same'
    ! compiled full || fail 'an unoptimized object stays'
fi
finish
