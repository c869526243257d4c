#!/bin/bash
# `--device cuda` of quantize and calibrate: what is said without a device; with one, that two runs
# give the same bytes, that what is written is as good as the CPU's, and what is refused.
. "$(dirname "$0")/lib.bash"

toy_tokens 4096 >"$T/toy.u16"
expect 2 'there are cpu, cuda, cuda:N and auto' \
    "$SWAGE" calibrate "$TOY" --device gpu --calib "$T/toy.u16" --seq-len 64 --samples 8 \
    -o "$T/file" -q
absent "$T/file"
# a list is checked before anything is read, also by a command that takes its first device
expect 2 '--device cuda:1,0,1: cuda:1 is named twice' "$SWAGE" quantize "$TOY" --device cuda:1,0,1 \
    --calib "$T/toy.u16" -o "$T/file" -q
expect 2 '--device cuda:N,...' "$SWAGE" generate "$TOY" --device cuda:0, -p x -n 1
expect 0 '' "$SWAGE" calibrate "$TOY" --device auto --calib "$T/toy.u16" --seq-len 64 --samples 8 \
    -o "$T/auto.stats" -q
"$SWAGE" quantize "$TOY" --device cuda --calib "$T/toy.u16" --seq-len 64 --samples 8 \
    -o "$T/probe" -q >"$T/stdout" 2>"$T/stderr"
code=$?
if [ "$code" -ne 0 ]; then
    [ "$code" -eq 7 ] || fail "exit $code without a device ($(head -c 300 "$T/stderr"))"
    grep -q -- '--device cpu' "$T/stderr" || fail 'no remedy'
    absent "$T/probe"
    expect 7 '--device cpu' "$SWAGE" calibrate "$TOY" --device cuda --calib "$T/toy.u16" \
        --seq-len 64 --samples 8 -o "$T/file" -q
    absent "$T/file"
    [ "$failures" -eq 0 ] || finish
    echo "no device: $(head -c 120 "$T/stderr")"
    exit 77
fi

CALIB=(--calib calib_data/calib.u16 --samples 32 --seq-len 256)

# KL of the checkpoint that these options make on a device: kl NAME DEVICE OPTIONS...
kl() {
    local name=$1 device=$2
    shift 2
    "$SWAGE" quantize "$TINY" -o "$T/$name" --device "$device" "${CALIB[@]}" "$@" -q \
        >"$T/stdout" 2>"$T/stderr" || fail "$name on $device: $(head -c 300 "$T/stderr")"
    "$SWAGE" verify "$T/$name" --against "$TINY" --text calib_data/eval.u16 --window 256 \
        --max-windows 16 --no-gap -q | sed -n 's/^ *KL(original || checkpoint) *\([0-9.]*\).*/\1/p'
}

# The device's choice is as good as the CPU's, and its own again: same NAME OPTIONS...
same() {
    local name=$1 cpu device again
    shift
    cpu=$(kl "$name-cpu" cpu "$@")
    device=$(kl "$name-device" cuda "$@")
    again=$(kl "$name-again" cuda "$@")
    cmp -s "$T/$name-device/model.safetensors" "$T/$name-again/model.safetensors" ||
        fail "$name: two runs on the device, two results"
    awk "BEGIN { exit !($device > 0 && $device < 1.15 * $cpu && $again == $device) }" ||
        fail "$name: KL $device on the device, $cpu on the CPU"
    rm -rf "$T/$name"-*
}

same awq --method awq
same awqg --method awq+gptq
same smooth --scheme W8A8 --method smoothquant
same smoothg --scheme FP8_DYNAMIC --method smoothquant+gptq
same static --scheme FP8 --method gptq
same nvfp4 --scheme NVFP4 --method gptq

# statistics taken there serve here, and the other way round
for d in cpu cuda; do
    expect 0 '' "$SWAGE" calibrate "$TINY" "${CALIB[@]}" --device "$d" -o "$T/$d.stats" -q
done
"$SWAGE" calibrate "$TINY" "${CALIB[@]}" --device cuda -o "$T/again.stats" -q >"$T/stdout" 2>&1
cmp -s "$T/cuda.stats" "$T/again.stats" || fail 'two statistics of one text'
for d in cpu cuda; do
    other=$([ "$d" = cpu ] && echo cuda || echo cpu)
    expect 0 '' "$SWAGE" quantize "$TINY" --stats "$T/$other.stats" --device "$d" --method awq \
        -o "$T/st-$d" -q
done

# a long prompt tells how far it has been read
prompt=$(tr -cd 'a-z ' <calib_data/calib.txt | head -c 1500)
"$SWAGE" generate "$TINY" --device cuda -p "$prompt" -n 2 --progress json >"$T/stdout" 2>"$T/events" ||
    fail "generate: $(tail -n 1 "$T/events")"
for done in 0 6; do
    grep -q "\"step\":\"prompt\",\"done\":$done,\"total\":6,\"unit\":\"blocks\"" "$T/events" ||
        fail "a long prompt is silent: $(head -n 3 "$T/events")"
done

# families that are unlike llama: quantized there, and judged there
use_recipes
for name in gemma4 llama4_text gemma3n; do
    "$EXPAND" "$RECIPES/$name" "$T/$name" || fail "no $name"
    for device in cpu cuda; do
        expect 0 '' "$SWAGE" quantize "$T/$name" -o "$T/$name-$device" --device "$device" \
            --scheme W4A16 --method gptq --group-size 32 --calib "$T/toy.u16" --samples 24 \
            --seq-len 48 -q
        expect 0 '' "$SWAGE" verify "$T/$name-$device" --against "$T/$name" --device cuda --quiet \
            --text "$RECIPES/$name/reference.safetensors" --window 48 --max-kl 0.3
    done
done

# residual streams, far keys and experts by token
"$EXPAND" "$RECIPES/deepseek_v4" "$T/v4" ||
    fail 'no deepseek_v4'
for device in cpu cuda; do
    expect 0 '' "$SWAGE" quantize "$T/v4" -o "$T/v4-$device" --device "$device" --scheme W8A16 \
        --method gptq --group-size channel --calib "$T/toy.u16" --samples 24 --seq-len 48 -q
    expect 0 '' "$SWAGE" verify "$T/v4-$device" --against "$T/v4" --device cuda --quiet \
        --text tests/golden/recipes/deepseek_v4/reference.safetensors --window 48 --max-kl 0.1
done

# experts: routed, summed, searched for scales and solved there, from text and from statistics
TINY=$PWD/tests/golden/models/tiny-moe
[ -d "$TINY" ] || { echo "experts were left out: no $TINY"; finish; }
for experts in shrink routed all; do
    same "moe-$experts" --experts "$experts"
done
same moe-awqg --method awq+gptq
for d in cpu cuda; do
    expect 0 '' "$SWAGE" calibrate "$TINY" "${CALIB[@]}" --device "$d" -o "$T/moe-$d.stats" -q
done
"$SWAGE" calibrate "$TINY" "${CALIB[@]}" --device cuda -o "$T/moe-again.stats" -q >"$T/stdout" 2>&1
cmp -s "$T/moe-cuda.stats" "$T/moe-again.stats" || fail 'two statistics of experts of one text'
expect 0 '' "$SWAGE" quantize "$TINY" --stats "$T/moe-cpu.stats" --device cuda -o "$T/moe-st" -q
finish
