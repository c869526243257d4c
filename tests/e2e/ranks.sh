#!/usr/bin/env bash
# Several processes on one run make the bytes of one: dense and sparse models, schemes whose rows
# share scales, statistics from a file, a run that others continue; and what ranks do not share is
# refused before anything is written.
. "$(dirname "$0")/lib.bash"
ARCH=$PWD/tests/golden/arch

same() {
    diff -r "$1" "$2" >/dev/null || fail "$1 and $2 differ: $(diff -rq "$1" "$2" | head -n 3)"
}
# by_ranks "RANKS ..." NAME MODEL OPTION... : one rank, then so many
by_ranks() {
    local ranks=$1 name=$2 model=$3 n
    shift 3
    expect 0 '' "$SWAGE" quantize "$model" -o "$T/$name-1" --threads 2 --quiet "$@"
    for n in $ranks; do
        expect 0 '' "$SWAGE" quantize "$model" -o "$T/$name-$n" --ranks $n --threads 1 --quiet "$@"
        same "$T/$name-1" "$T/$name-$n"
        rm -rf "${T:?}/$name-$n"
    done
}

# 5 chunks of 4096 tokens in as many pieces: no number of ranks divides them, one is kept back
toy_tokens $((5 * 4096 * 2)) >"$T/toy.u16"
TEXT=(--calib "$T/toy.u16" --samples 40 --seq-len 512)
by_ranks "2 3 5" dense "$TOY" "${TEXT[@]}"
by_ranks 3 asym "$TOY" "${TEXT[@]}" --scheme W3A16 --asym --format gptq --act-order gar --sequential layer
by_ranks 3 block "$TOY" "${TEXT[@]}" --scheme FP8_BLOCK --format compressed-tensors
by_ranks 2 tensor "$TOY" "${TEXT[@]}" --scheme FP8 --format compressed-tensors --kv-cache fp8
by_ranks 3 global "$TOY" "${TEXT[@]}" --scheme NVFP4 --format compressed-tensors
by_ranks 3 round "$TOY" --scheme W8A16 --method rtn
for experts in shrink routed all; do
    by_ranks "2 3" experts-$experts "$ARCH/qwen3_moe" "${TEXT[@]}" --experts $experts \
        --group-size 32 --allow-fallback
done

# fewer chunks than ranks: the text is run by one
by_ranks 3 short "$TOY" --calib "$T/toy.u16" --samples 4 --seq-len 128

# statistics are read by every rank
expect 0 '' "$SWAGE" calibrate "$TOY" "${TEXT[@]}" -o "$T/stats" --quiet
by_ranks 2 stats "$TOY" --stats "$T/stats"

# a run that is killed is continued by another number of ranks
head -c $((4 * 4096 * 2)) "$PWD/calib_data/calib.u16" >"$T/calib.u16"
Q=("$SWAGE" quantize "$TINY" --calib "$T/calib.u16" --samples 32 --seq-len 512 --ignore mlp --quiet)
expect 0 '' "${Q[@]}" -o "$T/whole"
lines() { if [ -f "$T/out.partial/journal" ]; then wc -l <"$T/out.partial/journal"; else echo 0; fi; }
for first in 1 3; do
    for _ in {1..20}; do
        rm -rf "$T/out" "$T/out.partial"
        "${Q[@]}" -o "$T/out" --threads 1 --ranks $first >/dev/null 2>&1 &
        pid=$!
        until [ "$(lines)" -gt 2 ] ||
            ! kill -0 $pid 2>/dev/null; do sleep 0.01; done
        kill -9 $pid 2>/dev/null
        wait $pid 2>/dev/null
        [ -d "$T/out.partial" ] && break
    done
    [ -d "$T/out.partial" ] || fail "no run of $first ranks could be killed"
    expect 0 '' "${Q[@]}" -o "$T/out" --threads 1 --ranks 2
    same "$T/whole" "$T/out"
done

# what ranks do not share
rm -rf "$T/out"
refused() { expect 4 "$1" "$SWAGE" quantize "$TOY" -o "$T/out" --ranks 2 --quiet "${@:2}"; }
refused 'method awq tries candidates on windows of the whole text*as one rank' "${TEXT[@]}" --method awq
absent "$T/out"

# one failure of all: the weight is broken, and one rank says so
model broken
poke "$T/broken/model.safetensors" "$(offset_of "$T/broken/model.safetensors" \
    model.layers.1.mlp.down_proj.weight)" '\xff\xff\xff\xff'
expect 3 'model.layers.1.mlp.down_proj*not finite' "$SWAGE" quantize "$T/broken" -o "$T/out" \
    "${TEXT[@]}" --ranks 3 --quiet
absent "$T/out"

# ranks that a launcher gives different files or settings
export SWAGE_MPI_LIBRARY=$PWD/${BUILD:-build/release}/libswage_mpi.so OMP_NUM_THREADS=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
two() { timeout 120 mpirun --oversubscribe --bind-to none -n 1 "${one[@]}" : -n 1 "${other[@]}"; }
differs() {
    two >"$T/stdout" 2>"$T/stderr" && fail "not refused: $1"
    grep -q -F "rank 1 has another $1 than rank 0" "$T/stderr" ||
        fail "no word of $1: $(head -c 600 "$T/stderr")"
    absent "$T/out"
}
one=(true)
other=(true)
if command -v mpirun >/dev/null && [ -f "$SWAGE_MPI_LIBRARY" ] && two >/dev/null 2>&1; then
    model twin
    poke "$T/twin/model.safetensors" $(($(stat -c %s "$T/twin/model.safetensors") - 2)) '\x11\x22'
    one=("$SWAGE" quantize "$TOY" -o "$T/out" "${TEXT[@]}" --quiet --threads 1)
    other=("${one[@]}" --damp 0.02)
    differs 'setting "damp"'
    other=("${one[@]}" --seed 7)
    differs 'calibration text'
    other=("$SWAGE" quantize "$T/twin" "${one[@]:3}")
    differs model.safetensors
fi
finish
