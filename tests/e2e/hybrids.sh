#!/bin/bash
# Decoders with recurrent mixers, quantized and judged: what sets the pace of a mixer stays in floats
# and is named to loaders, layers without attention get no scales of a cache, and what cannot be done
# is refused before any work.
. "$(dirname "$0")/lib.bash"
made_by_one -s "${BUILD:-build/release}/tests/tools/judge_corpus" >/dev/null || exit 1
CORPUS=$PWD/${BUILD:-build/release}/tests/tools/judge_corpus
use_recipes
toy_tokens 1536 >"$T/calib.u16"

# try RECIPE SCHEME MAX_KL [OPTION...]: quantized, then judged
try() {
    local name=$1 scheme=$2 max_kl=$3
    shift 3
    [ -d "$T/$name" ] || "$EXPAND" "$RECIPES/$name" "$T/$name" || fail "no $name"
    rm -rf "$T/out"
    expect 0 '' "$SWAGE" quantize "$T/$name" -o "$T/out" --scheme "$scheme" --device cpu \
        --format compressed-tensors --calib "$T/calib.u16" --samples 24 --seq-len 48 --quiet "$@"
    expect 0 '' "$SWAGE" verify "$T/out" --against "$T/$name" --quiet --device cpu \
        --text "$RECIPES/$name/reference.safetensors" --window 48 --max-kl "$max_kl"
}

has() { grep -qF -- "$1" "$T/out/$2" || fail "$2 does not say $1"; }
stored() { grep -aqF -- "$1" "$T/out/model.safetensors" || fail "no $1"; }
hasnt_stored() { grep -aqF -- "$1" "$T/out/model.safetensors" && fail "there is $1"; }

for name in lfm2 mamba2 bamba falcon_h1 granitemoehybrid_dense nemotron_h nemotron_h_latent; do
    try "$name" W4A16 0.5 --method gptq --group-size 32 # random weights: up to 0.37 was seen
done
for name in qwen3_5_moe qwen3_next lfm2_moe granitemoehybrid kimi_linear; do
    try "$name" W8A16 0.05 --method gptq --group-size 32
done
# Random weights make much of what e4m3 leaves of weights and inputs: KL of 0.16 to 0.33 was seen. The
# judge holds it against what noise of that size does to the original; damage it finds all the same.
for name in qwen3_next qwen3_5_moe granitemoehybrid; do
    try "$name" FP8_DYNAMIC 0.5 --method rtn
    rm "$T/out/manifest.json"
    expect 0 '' "$CORPUS" all "$T/out" "$T/$name" compressed-tensors FP8_DYNAMIC "$T/corpus.csv" 12 3 bytes
done
grep -aq 'block_sparse_moe.experts.3.gate_proj.weight_scale' "$T/out/model.safetensors" ||
    fail 'experts are not called as vLLM reads them'
try bamba NVFP4A16 0.8 # 0.58 was seen
try mamba2 W8A8 0.05 --method smoothquant+gptq

# What a linear changes to make good what was lost before it is no error of its own: behind attention
# of random weights it is more than rounding would lose, and still no linear is worse than rounding.
toy_tokens 8192 >"$T/long.u16"
for name in qwen3_5_text lfm2; do
    rm -rf "$T/out"
    [ -d "$T/$name" ] || "$EXPAND" "$RECIPES/$name" "$T/$name" || fail "no $name"
    expect 0 '' "$SWAGE" quantize "$T/$name" -o "$T/out" --group-size 32 --device cpu --quiet \
        --calib "$T/long.u16" --samples 32 --seq-len 256
    tr -d ' \t\n' <"$T/out/manifest.json" |
        grep -oE '"output_error":[^,]*,"output_error_rtn":[^,]*' | tr ',' ':' |
        awk -F: '{ n++; if (!($2 < $4)) bad++ } END { exit !(n > 10) || bad }' ||
        fail "$name: a linear has a larger error than rounding, or there are none"
done

# small linears beside the mixer, and the head for further tokens
try qwen3_5_mtp W4A16 0.3 --group-size 32
has '"model.language_model.layers.0.linear_attn.in_proj_a"' config.json
has '"model.language_model.layers.2.linear_attn.in_proj_b"' config.json
has '"re:^mtp.*"' config.json
stored 'layers.0.linear_attn.in_proj_qkv.weight_packed'
stored 'layers.0.linear_attn.in_proj_b.weight"'
stored 'layers.0.linear_attn.conv1d.weight"'
hasnt_stored 'in_proj_a.weight_packed'

# scales of a cache where keys are cached, and nowhere else
try lfm2 FP8 0.1 --kv-cache fp8
stored 'model.layers.1.self_attn.k_scale'
hasnt_stored 'model.layers.0.self_attn.k_scale'

# a config as Python writes it keeps its word
tr -d '\n' <"$T/mamba2/config.json" | sed 's/{ *"__float__": *"Infinity" *}/Infinity/' >"$T/config.json"
grep -q '0.0, *Infinity' "$T/config.json" || fail 'the fixture has no Infinity'
cp "$T/config.json" "$T/mamba2/config.json"
try mamba2 FP8_DYNAMIC 0.1 --method rtn
grep -q '0.0, *Infinity' "$T/out/config.json" || fail 'Infinity is lost'

expect 4 'is not known here as GGUF' "$SWAGE" convert "$T/falcon_h1" --to gguf --no-tokenizer -o "$T/no.gguf"
absent "$T/no.gguf"
finish
