#!/bin/bash
# Every architecture with a stored fixture through the command line, by the methods that measure
# nothing and everything, and back through the judge; what a family does not allow is refused before
# any work.
. "$(dirname "$0")/lib.bash"
ARCHS=$PWD/tests/golden/arch
names() { "$SWAGE" list architectures | tail -n +2 | cut -d' ' -f1; }
for arch in $(names); do
    m=$ARCHS/$arch group=32
    [ -f "$m/config.json" ] || continue # made of a recipe: families.sh and hybrids.sh
    [ "$arch" = deepseek_v3 ] && group=channel # a rank of 48 there
    for set in '--method rtn --format compressed-tensors' '--method awq+gptq --format swage'; do
        rm -rf "$T/out"
        # shellcheck disable=SC2086
        "$SWAGE" quantize "$m" -o "$T/out" $set --group-size $group --quiet --threads 1 \
            --calib "$m/reference.safetensors" --seq-len 24 --samples 4 --allow-fallback \
            >"$T/stdout" 2>"$T/stderr" || fail "$arch $set: $(cat "$T/stderr")"
        "$SWAGE" verify "$T/out" --against "$m" --text "$m/reference.safetensors" --window 48 \
            --quiet --threads 1 >"$T/stdout" 2>"$T/stderr" || fail "$arch $set: $(cat "$T/stdout")"
    done
done

# experts of one tensor: modules of their own with their biases, routers left alone
rm -rf "$T/out"
OSS=$ARCHS/gpt_oss
expect 0 '' "$SWAGE" quantize "$OSS" -o "$T/out" --method rtn --format compressed-tensors --quiet \
    --group-size 32
header=$(tail -c +9 "$T/out/model.safetensors" | head -c 60000 | tr -d '\0' | tr '}' '\n')
for name in 0.gate_proj.weight_packed 3.up_proj.weight_packed 2.down_proj.weight_packed 1.up_proj.bias; do
    grep -aq "\"model.layers.1.mlp.experts.$name\"" <<<"$header" || fail "no $name"
done
grep -aq 'experts.gate_up_proj' <<<"$header" && fail 'the fused tensor is still there'
grep -q '"model.layers.0.mlp.router"' "$T/out/config.json" || fail 'the router is not ignored'
absent "$T/none"
expect 2 'all experts or none' "$SWAGE" quantize "$OSS" -o "$T/none" --method rtn --quiet \
    --group-size 32 --ignore 'layers\.0\.mlp\.experts\.1\.'
absent "$T/none"
rm -rf "$T/out"
expect 0 '' "$SWAGE" quantize "$OSS" -o "$T/out" --method rtn --quiet --group-size 32 \
    --ignore 'layers\.0\.mlp\.experts\.'
expect 0 '' "$SWAGE" verify "$T/out" --against "$OSS" --quiet

# codes of all experts in one tensor are found again in floats, and expert by expert
expect 0 '' "$SWAGE" quantize "$OSS" -o "$T/mx" --method rtn --scheme MXFP4A16 --format mxfp4 \
    --ignore self_attn --quiet
for format in bf16 swage; do
    expect 0 '' "$SWAGE" convert "$T/mx" --to "$format" -o "$T/mx-$format" --quiet
    expect 0 '' "$SWAGE" verify "$T/mx-$format" --against "$T/mx" --quiet
done

# learned positions end where their table does
model long "$ARCHS/gpt2"
expect 2 'context of 128' "$SWAGE" quantize "$T/long" -o "$T/none" --quiet --group-size 32 \
    --calib "$ARCHS/gpt2/reference.safetensors" --seq-len 129
absent "$T/none"
finish
