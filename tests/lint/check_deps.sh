#!/bin/sh
# Who may include whom. The rooms are listed from the ground up: a file may include headers of its
# own room and of rooms on lines above it, so that no two rooms ever need each other. Rules beside:
# - verify never includes quant, and quant never verify: the judge shares no code with the judged;
# - the second decoder uses neither number formats nor packings nor dialects of the first;
# - only kernels/ knows what lies in kernels/cpu, kernels/cuda and kernels/ref;
# - a room has at most 27 sources.
set -eu
cd "$(dirname "$0")/../.."
rooms='
formats/base
formats/io
formats/num
formats/pack
formats/pickle
formats/file
formats/text/characters
formats/text/chat
formats/text
formats/text/files
formats/model
formats/model/families
formats/model/unknown
formats/dialect
formats/gguf/keys
formats/gguf
formats/checkpoint
formats/checkpoint/writer
kernels
kernels/ref
kernels/cpu/simd
kernels/cpu/round
kernels/cpu/int
kernels/cpu
kernels/table
kernels/engine/vec
kernels/engine/mixers
kernels/engine/sparse
kernels/engine
kernels/engine/operations
kernels/engine/spread
kernels/cuda
kernels/cuda/ptx
kernels/cuda/runtime
kernels/cuda/gemm
kernels/cuda/gemm/cublaslt
kernels/cuda/gemm/any_device
kernels/cuda/gemm/weight_only
kernels/cuda/gemm/weight_only/persistent
kernels/cuda/gemm/quantized_input
kernels/cuda/gemm/quantized_input/split_k
kernels/cuda/gemm/quantized_input/two_ctas
kernels/cuda/gemm/quantized_input/persistent
kernels/cuda/ops
kernels/cuda/ops/mixers
kernels/cuda/attention
kernels/cuda/experts
kernels/cuda/solver
kernels/cuda/decode
kernels/cuda/engine
quant
quant/team
quant/team/mpi
quant/stats
quant/method
quant/search
quant/backend/cpu
quant/backend/cuda
quant/run
verify/decoders
verify/loaders
verify/base
verify/speed
verify/metrics
verify/tasks
verify/checks
verify
tools/terminal
tools/cli
tools/device
tools/recipe
tools/card
tools/calibrate
tools/convert
tools/inspect
tools/library
tools/report/page
tools/report/data
tools/report/sections
tools/report
tools/verify
tools/quantize
tools/quantize/run
tools/sweep
tools/plan
tools/run
tools/shell
tools/doctor
tools
'
find formats kernels quant verify tools -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.def' | sort |
    xargs awk -v rooms="$rooms" -v most=27 '
BEGIN {
    n = split(rooms, listed)
    for (i = 1; i <= n; i++) height[listed[i]] = i
}
function room(path) { sub(/\/[^\/]*$/, "", path); return path }
function fail(text) { print text; bad = 1 }
FNR == 1 {
    from = room(FILENAME)
    if (!(from in height)) fail(FILENAME ": no such room in tests/lint/check_deps.sh")
    if (++sources[from] == most + 1) fail(from ": more than " most " sources in one room")
}
/^[ \t]*#[ \t]*include[ \t]*"/ {
    split($0, quoted, "\"")
    to = room(quoted[2])
    if (from == to) next
    if (!(to in height) || height[to] > height[from]) fail(FILENAME ": " from " may not include " quoted[2])
    if (from ~ /^verify/ && to ~ /^quant/ || from ~ /^quant/ && to ~ /^verify/)
        fail(FILENAME ": the judge shares no code with the judged: " quoted[2])
    if (from !~ /^kernels/ && to ~ /^kernels\/(cpu|cuda|ref)/) fail(FILENAME ": only kernels/ may include " quoted[2])
    if (from == "verify/decoders" && to ~ /^formats\/(pack|num|dialect)/) fail(FILENAME ": the second decoder may not use " quoted[2])
}
END { exit bad }'
