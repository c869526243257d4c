#!/usr/bin/env bash
# Layers over several devices, as far as it goes without one: a stub in place of the CUDA half says
# what it was asked for. Which devices are taken, when a model is spread, and what is refused.
. "$(dirname "$0")/lib.bash"
STUB=$T/stub.so
stub() { # the named functions, and all others behind them
    ${CC:-cc} -std=c11 -D_GNU_SOURCE -I. -include "$BUILD/abi.h" -fPIC -Wall -Wextra "$@"
}
stub -c tests/e2e/stub_cuda.c -o "$T/some.o" && stub -DSTUB_DEFAULTS -Dsw_cuda_abi=stub_abi -c tests/e2e/stub_cuda.c -o "$T/all.o" &&
    ${CC:-cc} -shared "$T/some.o" "$T/all.o" -o "$STUB" || fail 'the compiler'
on() { env SWAGE_CUDA_LIBRARY="$STUB" STUB_CARDS="$1" "$SWAGE" "${@:2}"; }
# tiny-llama has six layers: 70 GB in the stub
generate() { on "$1" generate "$TINY" -p x -n 1 -q "${@:2}"; }

# what fits the first lies there alone, and the others are not even opened
expect 7 'stub: cuda:0 up to 6' generate 80 --device cuda
expect 7 'stub: cuda:0 up to 6' generate 80,80 --device cuda
expect 7 'stub: cuda:1 up to 6' generate 80,80 --device cuda:1,0
expect 7 'stub: cuda:0 up to 6' generate 80,80 --device cuda:0
expect 7 'stub: cuda:0 up to 6' generate 80,80 --device auto
# unless it shall be spread; what does not fit is, over as many as have room
expect 7 'stub: cuda:0 up to 3 cuda:1 up to 6' generate 80,80 --device cuda --spread-layers
expect 7 'stub: cuda:0 up to 3 cuda:1 up to 6' generate 40,40 --device cuda
expect 7 'stub: cuda:0 up to 3 cuda:1 up to 6' generate 40,40 --device cuda:0,1
expect 7 'stub: cuda:1 up to 3 cuda:0 up to 6' generate 40,40 --device cuda:1,0
expect 7 'stub: cuda:0 up to 2 cuda:1 up to 4 cuda:2 up to 6' generate 40,40,40 --device cuda
expect 7 'stub: cuda:0 up to 2 cuda:2 up to 6' generate 30,80,50 --device cuda:0,2
expect 7 'stub: cuda:0 up to 3 cuda:1 up to 6' generate 80,80 --device cuda --device-memory 40G
expect 7 'stub: cuda:0 up to 3 cuda:1 up to 6' generate 40,40,9 --device cuda # another memory: left out
# no room on one, nor on all: a list is refused, the word cuda streams on its first
expect 7 'stub: cuda:0 up to 6' generate 30 --device cuda
expect 7 'stub: cuda:0 up to 6' generate 30,30 --device cuda
expect 6 'needs 70.0 GB over 2 devices that have 60.0 GB left (cuda:0 30.0 GB, cuda:1 30.0 GB)*--device-memory*cuda:0*--device cpu' \
    generate 30,30 --device cuda:0,1
expect 6 'needs 70.0 GB over 2 devices' generate 30,30 --device cuda --spread-layers
expect 7 'no cuda:2; this machine has cuda:0 to cuda:1' generate 40,40 --device cuda:0,2
expect 2 '--spread-layers takes several devices' generate 40,40 --spread-layers
expect 2 '--spread-layers takes several devices*--device cuda:1' generate 40,40 --device cuda:1 --spread-layers
expect 2 'named twice' generate 40,40 --device cuda:0,0
# and it is said where layers lie
on 40,40 generate "$TINY" -p x -n 1 --device cuda >"$T/stdout" 2>"$T/stderr"
grep -q '^layers 0-2 on cuda:0, 3-5 on cuda:1$' "$T/stderr" || fail "no note of where layers lie: $(cat "$T/stderr")"
on 30,30 generate "$TINY" -p x -n 1 --device cuda >"$T/stdout" 2>"$T/stderr"
grep -q '^all layers on cuda:0, some of them in host memory*.*needs 70.0 GB over 2 devices' "$T/stderr" ||
    fail "no note of why it streams: $(cat "$T/stderr")"

# verify: a process a device where a model (13 MB in its file) has room on each, else one for all
verify() { on "$1" verify "$TINY" --text calib_data/eval.u16 --max-windows 2 -q "${@:2}"; }
expect 7 'stub: cuda:0 up to 3 cuda:1 up to 6' verify 80,80 --device cuda:0,1 --spread-layers
expect 7 'stub: cuda:0 up to 6' verify 80,80 --device cuda:0,1 --task calib_data/tasks.jsonl --ranks 1
on 80,80 verify "$TINY" --text calib_data/eval.u16 --max-windows 2 --device cuda:0,1 >"$T/stdout" 2>"$T/stderr"
grep -q '^2 ranks' "$T/stderr" || fail "not a process a device: $(cat "$T/stderr")"
grep -q 'stub: cuda:. up to 6' "$T/stderr" || fail "a process a device: $(cat "$T/stderr")"
on 10M,10M verify "$TINY" --text calib_data/eval.u16 --max-windows 2 --device cuda:0,1 >"$T/stdout" 2>"$T/stderr"
grep -q ranks "$T/stderr" && fail "ranks, where a model has no room on a device: $(cat "$T/stderr")"
grep -q '^all layers on cuda:0, some of them in host memory' "$T/stderr" || fail "not one process: $(cat "$T/stderr")"
expect 2 '--spread-layers: one process has the layers' verify 80,80 --device cuda:0,1 --spread-layers --ranks 2
expect 2 '--spread-layers: swage verify uses one device' verify 80,80 --device cuda:0,1 --spread-layers --speed
finish
