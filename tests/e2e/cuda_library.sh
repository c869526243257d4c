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
finish
