#!/usr/bin/env bash
# Several processes on one run make the bytes of one: dense and sparse models, schemes whose rows
# share scales, searches for transforms, statistics from a file, a run that others continue; ranks that
# see other files or settings are refused by name.
. "$(dirname "$0")/lib.bash"
. tests/e2e/ranks.bash
ARCH=$PWD/tests/golden/arch

# folds NAME: something was scaled, so that sums and choices of searches are in the bytes
folds() { grep -q '"accepted": *true' "$T/$1-1/manifest.json" || fail "$1: no group was scaled"; }

# 5 chunks of at most 4096 tokens in as many pieces: no number of ranks divides them, one is kept back, and the last
# has two windows. Windows are short, for attention over long ones takes longest and is no matter of ranks.
toy_tokens $((5 * 4096)) >"$T/toy.u16"
TEXT=(--calib "$T/toy.u16" --samples 258 --seq-len 64)
by_ranks "3 5" dense "$TOY" "${TEXT[@]}"
# What the others have of their own is not the number of chunks. Two are enough: sums of one rank join those of another,
# and a third rank has rows to solve and no text.
LESS=(--calib "$T/toy.u16" --samples 66 --seq-len 64)
by_ranks 3 asym "$TOY" "${LESS[@]}" --scheme W3A16 --asym --format gptq --act-order gar --sequential layer
by_ranks 3 block "$TOY" "${LESS[@]}" --scheme FP8_BLOCK --format compressed-tensors
by_ranks 2 tensor "$TOY" "${LESS[@]}" --scheme FP8 --format compressed-tensors --kv-cache fp8
by_ranks 3 global "$TOY" "${LESS[@]}" --scheme NVFP4 --format compressed-tensors
by_ranks 3 kept "$TOY" "${LESS[@]}" --outliers 0.02 # a linear is one piece
by_ranks 3 round "$TOY" --scheme W8A16 --method rtn
by_ranks "2 3" experts-routed "$ARCH/qwen3_moe" "${TEXT[@]}" --group-size 32 --allow-fallback --experts routed
for experts in shrink all; do
    by_ranks 2 experts-$experts "$ARCH/qwen3_moe" "${LESS[@]}" --experts $experts \
        --group-size 32 --allow-fallback
done

by_ranks 2 smooth "$TOY" "${LESS[@]}" --scheme W8A8 --method smoothquant+gptq --format compressed-tensors
by_ranks 3 experts-awq "$ARCH/qwen3_moe" "${LESS[@]}" --method awq --group-size 32 --allow-fallback
folds smooth
folds experts-awq

# fewer chunks than ranks: the text is run by one
by_ranks 3 short "$TOY" --calib "$T/toy.u16" --samples 4 --seq-len 128

# statistics are read by every rank
expect 0 '' "$SWAGE" calibrate "$TOY" "${LESS[@]}" -o "$T/stats" --quiet
by_ranks 2 stats "$TOY" --stats "$T/stats"
by_ranks 3 stats-awq "$TOY" --stats "$T/stats" --method awq

# a run that is killed after a block is continued by another number of ranks
continued() { # RANKS WHOLE: a run of so many, continued by two
    rm -rf "$T/out"
    hold pwrite /journal 1 "${Q[@]}" -o "$T/out" --threads 1 --ranks $1 >/dev/null
    kill -9 $pid
    wait $pid 2>/dev/null
    [ "$(wc -l <"$T/out.partial/journal")" -eq 2 ] || fail "not one block is in the journal of $1 ranks"
    absent "$T/out/"
    expect 0 '' "${Q[@]}" -o "$T/out" --threads 1 --ranks 2
    same "$2" "$T/out"
}
Q=("$SWAGE" quantize "$TOY" "${LESS[@]}" --outliers 0.02 --quiet)
continued 1 "$T/kept-1"
continued 3 "$T/kept-1"
Q=("$SWAGE" quantize "$ARCH/qwen3_moe" "${LESS[@]}" --method awq --group-size 32 --allow-fallback --quiet)
continued 3 "$T/experts-awq-1"
# whose original model is followed through blocks without the scales
Q=("$SWAGE" quantize "$TOY" "${LESS[@]}" --scheme W8A8 --method smoothquant+gptq --format compressed-tensors --quiet)
continued 3 "$T/smooth-1"

# one failure of all: the weight is broken, and one rank says so
rm -rf "$T/out"
model broken
poke "$T/broken/model.safetensors" "$(offset_of "$T/broken/model.safetensors" \
    model.layers.1.mlp.down_proj.weight)" '\xff\xff\xff\xff'
expect 3 'model.layers.1.mlp.down_proj*not finite' "$SWAGE" quantize "$T/broken" -o "$T/out" \
    "${LESS[@]}" --ranks 3 --quiet
absent "$T/out"

# ranks that a launcher gives different files or settings
if launches; then
    one=("$SWAGE" quantize "$TOY" -o "$T/out" "${LESS[@]}" --quiet --threads 1)
    other=("${one[@]}" --damp 0.02)
    differs 'setting "damp"'
    other=("${one[@]}" --seed 7)
    differs 'calibration text'
    other=("$SWAGE" quantize "$T/twin" "${one[@]:3}")
    differs model.safetensors
fi
finish
