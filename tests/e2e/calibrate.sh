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

# What tries candidates does so on the windows in the file. The first layer's inputs are those of a
# direct run, so what is chosen there is the same; whatever is measured with nothing quantized is
# the same everywhere; and all is as good on the whole: the mean error of the linears says so.
figure() { grep -o "\"$2\": *[^,}]*" "$1/manifest.json" | head -n "${3:-1}"; }
mean_error() {
    grep -o '"output_error": *[0-9.e-]*' "$1/manifest.json" | awk '{ n++; s += $2 } END { print s / n }'
}
near() { # near A B FACTOR
    awk -v a="$1" -v b="$2" -v f="$3" 'BEGIN { exit !(a > 0 && a < f * b && b < f * a) }' ||
        fail "$1 and $2 differ by more than a factor of $3"
}
either() { # either NAME WHICH: from the text, and from the file
    expect 0 '' "$SWAGE" quantize "$TOY" -o "$T/text.$1" --calib "$T/toy.u16" --samples 8 \
        --seq-len 128 --quiet "${@:2}"
    expect 0 '' "$SWAGE" quantize "$TOY" -o "$T/stats.$1" --stats "$T/toy.1" --quiet "${@:2}"
    expect 0 '' "$SWAGE" verify "$T/stats.$1" --against "$TOY" --quiet
}
either awq --method awq+gptq --group-size 32
[ "$(figure "$T/text.awq" scale_max)" = "$(figure "$T/stats.awq" scale_max)" ] ||
    fail 'the first scales of awq differ'
near "$(mean_error "$T/text.awq")" "$(mean_error "$T/stats.awq")" 1.1
either smooth --scheme W8A8 --method smoothquant --format compressed-tensors
near "$(mean_error "$T/text.smooth")" "$(mean_error "$T/stats.smooth")" 1.1
either static --scheme FP8 --method rtn --format compressed-tensors
cmp "$T/text.static/model.safetensors" "$T/stats.static/model.safetensors" >/dev/null &&
    fail 'input scales of quantized and of unquantized inputs are all the same: not plausible'
either static8 --scheme FP8 --method smoothquant+gptq --format compressed-tensors --kv-cache fp8
near "$(mean_error "$T/text.static8")" "$(mean_error "$T/stats.static8")" 1.1
grep -q '"k_scale"' "$T/stats.static8/manifest.json" || fail 'no scales of a cache'
either bits --target-bits 3.6 --method rtn --format gptq_v2
cmp "$T/text.bits/model.safetensors" "$T/stats.bits/model.safetensors" ||
    fail 'statistics choose other widths than the text they are of'
for threads in 1 2; do
    expect 0 '' "$SWAGE" quantize "$MOE" -o "$T/moe.awq.$threads" --stats "$T/moe.1" \
        --method awq --group-size 32 --threads $threads --quiet
done
diff -r "$T/moe.awq.1" "$T/moe.awq.2" >/dev/null || fail 'awq from statistics depends on threads'
expect 0 '' "$SWAGE" quantize "$MOE" -o "$T/moe.bits" --stats "$T/moe.1" --target-bits 5 \
    --group-size 32 --quiet

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

expect 2 'exists; give --force' "$SWAGE" calibrate "$TOY" -o "$T/toy.1" "$@"
expect 2 'is a directory' "$SWAGE" calibrate "$TOY" -o "$T" --force "$@"
expect 2 'say where' "$SWAGE" calibrate "$TOY" "$@"
expect 2 'give calibration text' "$SWAGE" calibrate "$TOY" -o "$T/none"
expect 0 '' "$SWAGE" calibrate "$MOE" -o "$T/all.stats" --experts all "$@"
expect 2 'cannot serve routed' "$SWAGE" quantize "$MOE" -o "$T/bad" --stats "$T/all.stats" \
    --group-size 32 --experts all --target-bits 5
expect 0 '' "$SWAGE" calibrate "$TOY" -o "$T/no.text" --no-text "$@"
refuse 2 'awq tries candidates on calibration text' --stats "$T/no.text" --method awq
refuse 2 '--target-bits tries candidates' --stats "$T/no.text" --target-bits 4.5
refuse 2 'leaves them in floats' --stats "$T/toy.1" --method smoothquant
expect 0 '' "$SWAGE" quantize "$TOY" -o "$T/plain" --stats "$T/no.text" --quiet
expect 2 'cannot serve shrink' "$SWAGE" quantize "$MOE" -o "$T/bad" --stats "$T/all.stats" \
    --group-size 32
expect 0 '' "$SWAGE" calibrate "$TOY" -o "$T/toy.2" --force "$@" --calib "$T/half.u16" --samples 4
cmp -s "$T/toy.1" "$T/toy.2" && fail 'another text, the same statistics'
finish
