#!/bin/bash
# Models with towers, with further heads, with experts in one tensor and with layers of several kinds,
# quantized and judged. What is no part of the decoder stays as it is and is named to loaders.
. "$(dirname "$0")/lib.bash"
use_recipes
toy_tokens 1536 >"$T/calib.u16"

# try RECIPE SCHEME FORMAT MAX_KL [OPTION...]: quantized by GPTQ or as the scheme does, then judged
try() {
    local name=$1 scheme=$2 format=$3 max_kl=$4
    shift 4
    [ -d "$T/$name" ] || "$EXPAND" "$RECIPES/$name" "$T/$name" || fail "no $name"
    rm -rf "$T/out"
    expect 0 '' "$SWAGE" quantize "$T/$name" -o "$T/out" --scheme "$scheme" --format "$format" \
        --calib "$T/calib.u16" --samples 24 --seq-len 48 --quiet "$@"
    expect 0 '' "$SWAGE" verify "$T/out" --against "$T/$name" --quiet \
        --text "$RECIPES/$name/reference.safetensors" --window 48 --max-kl "$max_kl"
}

has() { grep -qF -- "$1" "$T/out/$2" || fail "$2 does not say $1"; }
hasnt() { grep -qF -- "$1" "$T/out/$2" && fail "$2 says $1"; }

for name in qwen3_vl gemma3 mistral3_ministral3 llama4_text gemma4 gemma4_moe cohere2 gpt_neox; do
    try "$name" W4A16 compressed-tensors 0.3 --method gptq --group-size 32
done
for name in qwen2_5_vl qwen3_vl_moe glm4_moe_lite ernie4_5_moe; do
    try "$name" W8A8 compressed-tensors 0.05 --method gptq
done

# inputs in fp8 send some tokens to other experts, which is no damage
try qwen3_next FP8_DYNAMIC swage 0.5 --method rtn
try minimax_m2 FP8_DYNAMIC swage 0.3 --method rtn

# the linear before the layers that has no slot in them, named to engines and missed where it is not
try gemma4 FP8_BLOCK compressed-tensors 0.3
has '"model.language_model.per_layer_model_projection"' config.json
sed -i 's/"model.language_model.per_layer_model_projection"/"none"/' "$T/out/config.json"
rm "$T/out/manifest.json"
for against in '' "--against $T/gemma4"; do
    # shellcheck disable=SC2086
    expect 1 'per_layer_model_projection.weight is stored in floats, but quantization_config tells engines' \
        "$SWAGE" verify "$T/out" $against
    grep -q '^loaders .*per_layer_model_projection' "$T/stdout" || fail 'nobody misses a linear in the list'
done

# towers by their modules, in each dialect's list
try qwen3_vl W4A16 compressed-tensors 0.3 --group-size 32
has '"model.visual.blocks.0.attn.qkv"' config.json
has '"part": "model.visual"' manifest.json
try qwen3_vl W4A16 gptq 0.3 --group-size 32
has 'model\\.visual\\.blocks\\.0\\.attn\\.qkv$' config.json
try qwen3_vl FP8_BLOCK fp8 0.1
has '"model.visual.merger.linear_fc1"' config.json
expect 0 '' "$SWAGE" plan "$T/qwen3_vl" --scheme W8A16
grep -q '^left  *model.visual: 27 tensors' "$T/stdout" || fail 'plan does not name the tower'

# a head for further tokens as a whole
try glm4_moe_mtp W4A16 compressed-tensors 0.3 --group-size 32
has '"re:^model\\.layers\\.2\\..*"' config.json
hasnt '"model.layers.2.eh_proj"' config.json
try glm4_moe_mtp W4A16 gptq 0.3 --group-size 32
has '"-:^model\\.layers\\.2\\..*"' config.json

# experts of one tensor become modules of their own
try qwen3_vl_moe W8A16 compressed-tensors 0.05 --group-size 32
grep -aq 'model.language_model.layers.1.mlp.experts.3.down_proj.weight_packed' "$T/out/model.safetensors" ||
    fail 'no expert of its own'

# a text longer than attention sees at once, calibrated and judged as any other
"$EXPAND" "$RECIPES/glm_moe_dsa_sparse" "$T/sparse"
expect 0 '' "$SWAGE" quantize "$T/sparse" -o "$T/sparse-out" --scheme W8A8 --method gptq \
    --calib "$T/calib.u16" --samples 2 --seq-len 48 --quiet
expect 0 '' "$SWAGE" verify "$T/sparse-out" --against "$T/sparse" --text "$T/calib.u16" --max-kl 0.05
grep -q 'indexer.wq_b' "$T/sparse-out/config.json" || fail 'the indexer is not left alone'
finish
