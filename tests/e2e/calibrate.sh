#!/bin/bash
# Statistics as a file: calibrate once, quantize many ways; refused when they are not this model's.
. "$(dirname "$0")/lib.bash"
MOE=$PWD/tests/golden/arch/qwen3_moe

toy_tokens 2048 >"$T/toy.u16"
head -c 1024 "$T/toy.u16" >"$T/half.u16"
set -- --calib "$T/toy.u16" --samples 8 --seq-len 128 --quiet
for threads in 1 2; do
    expect 0 '' "$SWAGE" calibrate "$TOY" -o "$T/toy.$threads" --threads $threads "$@"
    expect 0 '' "$SWAGE" calibrate "$MOE" -o "$T/moe.$threads" --threads $threads "$@"
done
cmp "$T/toy.1" "$T/toy.2" || fail 'statistics depend on the number of threads'
cmp "$T/moe.1" "$T/moe.2" || fail 'statistics of experts depend on the number of threads'

# any width, group, order and format from the one file, and the manifest says what was not done
for kind in '--bits 3 --asym' '--bits 4 --group-size 32 --format gptq' '--bits 8 --act-order gar'; do
    # shellcheck disable=SC2086
    expect 0 '' "$SWAGE" quantize "$TOY" -o "$T/out" --stats "$T/toy.1" $kind --quiet
    grep -q '"error_propagation": "not re-run"' "$T/out/manifest.json" || fail "manifest of $kind"
    expect 0 '' "$SWAGE" verify "$T/out" --against "$TOY" --quiet
    rm -r "$T/out"
done
for experts in routed all shrink; do
    for threads in 1 2; do
        expect 0 '' "$SWAGE" quantize "$MOE" -o "$T/$experts.$threads" --stats "$T/moe.1" \
            --experts $experts --threads $threads --group-size 32 --quiet
    done
    diff -r "$T/$experts.1" "$T/$experts.2" >/dev/null || fail "$experts depends on the threads"
    grep -q '"experts": \[' "$T/$experts.1/manifest.json" || fail 'no tokens per expert'
done
cmp -s "$T/routed.1/model.safetensors" "$T/all.1/model.safetensors" && fail '--experts has no effect'

# refused, each with one line and nothing left
refuse() {
    expect "$1" "$2" "$SWAGE" quantize "$TOY" -o "$T/bad" "${@:3}"
    absent "$T/bad"
}
refuse 3 'statistics of another model' --stats "$T/moe.1"
model changed
printf '\x01' | dd of="$T/changed/model.safetensors" bs=1 conv=notrunc status=none \
    seek=$(($(offset_of "$T/changed/model.safetensors" model.norm.weight) + 4))
expect 3 'config.json or a tensor differs' "$SWAGE" quantize "$T/changed" -o "$T/bad" --stats "$T/toy.1"
head -c $(($(stat -c %s "$T/toy.1") - 1)) "$T/toy.1" >"$T/cut"
refuse 3 'cut short' --stats "$T/cut"
cp "$T/toy.1" "$T/flipped"
poke "$T/flipped" 2000 '\xff\x00\xff\x00'
refuse 3 'is damaged' --stats "$T/flipped"
refuse 3 'not a file of this kind' --stats "$T/toy.u16"
refuse 5 'cannot open' --stats "$T/absent"
refuse 2 'not both' --stats "$T/toy.1" --calib "$T/toy.u16"
refuse 2 'calibration text' --stats "$T/toy.1" --method awq
refuse 2 'calibration text' --stats "$T/toy.1" --target-bits 4.5

expect 2 'exists; give --force' "$SWAGE" calibrate "$TOY" -o "$T/toy.1" "$@"
expect 2 'is a directory' "$SWAGE" calibrate "$TOY" -o "$T" --force "$@"
expect 2 'say where' "$SWAGE" calibrate "$TOY" "$@"
expect 2 'give calibration text' "$SWAGE" calibrate "$TOY" -o "$T/none"
expect 0 '' "$SWAGE" calibrate "$MOE" -o "$T/all.stats" --experts all "$@"
expect 2 'cannot serve shrink' "$SWAGE" quantize "$MOE" -o "$T/bad" --stats "$T/all.stats" \
    --group-size 32
expect 0 '' "$SWAGE" calibrate "$TOY" -o "$T/toy.2" --force "$@" --calib "$T/half.u16" --samples 4
cmp -s "$T/toy.1" "$T/toy.2" && fail 'another text, the same statistics'
finish
