#!/usr/bin/env bash
# Several processes on one device make the bytes of one: all that ranks.sh has of quantize and calibrate and that a
# device does by itself, also with ranks that have no window of the text. RANKS_DEVICE: another than cuda:0.
. "$(dirname "$0")/lib.bash"
. tests/e2e/ranks.bash
ARCH=$PWD/tests/golden/arch
DEVICE=(--device "${RANKS_DEVICE:-cuda:0}")

toy_tokens $((5 * 4096 * 2)) >"$T/toy.u16"
TEXT=(--calib "$T/toy.u16" --samples 40 --seq-len 512)
SHORT=(--calib "$T/toy.u16" --samples 4 --seq-len 128)
"$SWAGE" quantize "$TOY" -o "$T/probe" "${DEVICE[@]}" "${SHORT[@]}" -q >"$T/stdout" 2>"$T/stderr"
case $? in
    0) ;;
    7) echo "no device: $(head -c 120 "$T/stderr")"
       exit 77 ;;
    *) fail "one rank on ${DEVICE[1]}: $(head -c 300 "$T/stderr")"
       finish ;;
esac

by_ranks "2 3 5" dense "$TOY" "${TEXT[@]}"
by_ranks "2 3 5" short "$TOY" "${SHORT[@]}"
by_ranks "2 3" awq "$TOY" "${TEXT[@]}" --method awq
by_ranks "2 3" smooth "$TOY" "${TEXT[@]}" --scheme W8A8 --method smoothquant+gptq
by_ranks 3 asym "$TOY" "${TEXT[@]}" --scheme W3A16 --asym --format gptq --sequential layer
by_ranks 3 static "$TOY" "${TEXT[@]}" --scheme FP8 --format compressed-tensors --kv-cache fp8
by_ranks 3 global "$TOY" "${TEXT[@]}" --scheme NVFP4 --format compressed-tensors
for experts in shrink routed all; do
    by_ranks "2 3" experts-$experts "$ARCH/qwen3_moe" "${TEXT[@]}" --experts $experts --group-size 32 --allow-fallback
done
by_ranks 3 experts-awq "$ARCH/qwen3_moe" "${TEXT[@]}" --method awq --group-size 32 --allow-fallback
# a wide enough model that no rank has all rows of a weight
by_ranks "2 3 5" tiny "$TINY" --calib calib_data/calib.u16 --samples 24 --seq-len 256

for n in 1 2 3 5; do
    expect 0 '' "$SWAGE" calibrate "$TOY" "${TEXT[@]}" "${DEVICE[@]}" -o "$T/stats.$n" --ranks $n --threads 1 --quiet
    cmp -s "$T/stats.1" "$T/stats.$n" || fail "statistics of $n ranks"
done
finish
