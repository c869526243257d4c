#!/bin/bash
# The judge against damaged checkpoints: judge_corpus.sh CSV [share]
#
# Makes checkpoints of bundled models in every dialect and number format, without manifests, damages
# each in every way of tests/support/damage*.h, and writes one line a damage to CSV: kind, dialect,
# format, what was damaged, what found it, and the message. Prints what escaped or was blamed on
# something else, false alarms on sound checkpoints, and counts. `share`: a few bases and damages,
# in seconds. Exit code 1 when something escaped, was misnamed, or a sound checkpoint failed.
set -u
cd "$(dirname "$0")/../.." || exit 2
csv=$1 part=${2:-whole} build=${BUILD:-build/release}
swage=$build/swage corpus=$build/tests/tools/judge_corpus
tmp=${TMPDIR:-/tmp}
T=$(mktemp -d "$tmp/swage-corpus.XXXXXX") || exit 2
trap 'rm -rf "$T"' EXIT
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} TMPDIR=$T
bad=0 n_sixths=0 n_sound=0 n_alarms=0
calib=(--calib calib_data/calib.u16 --samples 6 --seq-len 256)

echo 'kind,dialect,format,what,caught by,message' >"$csv"
count() {
    awk -F, 'NR > 1 { n++; if ($0 ~ /,escaped,/) e++ } END {
        printf "%d damaged checkpoints, %d found, %d escaped\n", n, n - e, e }' "$csv"
}

if [ "$part" = whole ] && [ -z "${ONLY:-}" ]; then
    names=$(seq -f 'b%g' 35; printf '%s.gguf\n' Q4_0 Q4_1 Q8_0 Q4_K Q6_K)
    echo "$names" | xargs -P "${JOBS:-$(nproc)}" -I{} sh -c \
        'TMPDIR=$2 ONLY="^{}\$" bash "$0" "$1/{}.csv" >"$1/{}.said" 2>&1 || echo {} >>"$1/bad"' \
        "$0" "$T" "$tmp"
    for name in $names; do
        tail -n +2 "$T/$name.csv" >>"$csv"
        grep -vE '^[0-9]+ (damaged|sound) checkpoints' "$T/$name.said"
    done
    count
    cat "$T"/*.said | awk '/^[0-9]+ sound checkpoints/ { n += $1; a += $4 } END {
        printf "%d sound checkpoints, %d false alarms\n", n, a }'
    [ ! -e "$T/bad" ]
    exit
fi
"$corpus" cut calib_data/tiny-llama 1 "$T/llama" || exit 2
"$corpus" cut calib_data/tiny-llama 2 "$T/llama2" || exit 2
"$corpus" cut tests/golden/models/tiny-moe 1 "$T/moe" || exit 2
cp calib_data/tiny-llama/{tokenizer,tokenizer_config,generation_config}.json "$T/llama2/"
# a source whose weights lie on codes already
"$swage" quantize "$T/llama" -o "$T/codes" -q --format compressed-tensors --scheme W4A16 --method awq \
    "${calib[@]}" >"$T/log" 2>&1 || { cat "$T/log"; exit 2; }
ln -s "$PWD/tests/golden/arch/gpt_oss" "$T/gpt_oss"
# ids below 310: those above stand for images and the like
for i in $(seq 0 3071); do
    printf '%b' "\\x$(printf %x $((i * i % 251)))\\x00"
done >"$T/toy.u16"

# sound CHECKPOINT MODEL: it passes, with its manifest and without.
sound() {
    n_sound=$((n_sound + 1))
    "$corpus" sound "$1" "$2" && rm -f "$1/manifest.json" && "$corpus" sound "$1" "$2" && return
    n_alarms=$((n_alarms + 1))
    bad=1
    return 1 # whatever is done to it, it fails
}

# make NAME MODEL DIALECT SCHEME METHOD [OPTION...]
make() {
    local name=$1 model=$2 dialect=$3 scheme=$4 method=$5
    shift 5
    [[ $name =~ ${ONLY:-.} ]] || return 1
    "$swage" quantize "$T/$model" -o "$T/$name" -q --format "$dialect" --scheme "$scheme" \
        --method "$method" "${calib[@]}" --threads 1 --allow-fallback "$@" >"$T/log" 2>&1 ||
        { echo "cannot make $name: $(tail -n 1 "$T/log")"; bad=1; return 1; }
    sound "$T/$name" "$T/$model"
}

# damage NAME MODEL DIALECT FORMAT [EVERY [PHASE [bytes]]]
damage() {
    local name=$1 model=$2
    shift 2
    "$corpus" all "$T/$name" "$T/$model" "$1" "$2" "$csv" "${@:3}" || bad=1
    rm -rf "${T:?}/$name"
}

# NAME MODEL DIALECT SCHEME METHOD [OPTION...]: every damage; those to files and a sixth of those to
# tensors, in turns.
base() { make "$@" && damage "$1" "$2" "$3" "$4 $5"; }
sixth() {
    n_sixths=$((n_sixths + 1))
    make "$@" && damage "$1" "$2" "$3" "$4 $5" 6 $n_sixths
}

# NAME FAMILY DIALECT SCHEME METHOD [OPTION...]: every damage to a toy of tests/golden/recipes.
toy() {
    [[ $1 =~ ${ONLY:-.} ]] || return 1
    local calib=(--calib "$T/toy.u16" --samples 24 --seq-len 48)
    [ -d "$T/$2" ] || "$build/tests/tools/expand_recipe" "tests/golden/recipes/$2" "$T/$2" || exit 2
    make "$@" && JUDGE_TEXT=tests/golden/recipes/$2/reference.safetensors \
        damage "$1" "$2" "$3" "$2 $4 $5"
}

gguf() { # NAME MODEL TYPE
    n_sixths=$((n_sixths + 1))
    [[ $1 =~ ${ONLY:-.} ]] || return 1
    "$swage" convert "$T/$2" --to gguf --type "$3" -o "$T/$1" -q --threads 1 \
        --no-tokenizer >"$T/log" 2>&1 ||
        { echo "cannot make $1: $(tail -n 1 "$T/log")"; bad=1; return 1; }
    sound "$T/$1" "$T/$2" || return 1
    damage "$1" "$2" gguf "$3" 3 $n_sixths
}

if [ "$part" = share ]; then
    make s1 llama compressed-tensors W4A16 rtn && damage s1 llama compressed-tensors 'W4A16 rtn' 14 2 bytes
    make s2 llama compressed-tensors FP8_DYNAMIC rtn &&
        damage s2 llama compressed-tensors 'FP8_DYNAMIC rtn' 14 5 bytes
    make s3 moe gptq W4A16 rtn && damage s3 moe gptq 'W4A16 rtn' 14 3 bytes
else
    base b1 llama2 compressed-tensors W4A16 gptq
    sixth b2 llama compressed-tensors W4A16_ASYM gptq
    sixth b3 llama compressed-tensors W8A16 rtn
    sixth b4 llama compressed-tensors W8A8 smoothquant+gptq
    sixth b5 llama compressed-tensors FP8_DYNAMIC gptq
    sixth b6 llama compressed-tensors MXFP4A16 gptq
    sixth b7 llama compressed-tensors NVFP4A16 gptq
    sixth b8 llama compressed-tensors MXFP8 gptq
    sixth b9 llama gptq W4A16 gptq
    sixth b10 llama gptq_v2 W4A16_ASYM gptq
    sixth b11 llama gptq_v2 W3A16 gptq
    sixth b12 llama gptq_v2 W2A16 gptq
    sixth b13 llama awq W4A16_ASYM gptq
    sixth b14 llama awq_gemv W4A16_ASYM rtn
    sixth b15 llama marlin W4A16 gptq
    sixth b16 llama machete W4A16 rtn
    sixth b17 llama swage W4A16 gptq
    sixth b18 llama swage NVFP4 gptq
    sixth b19 llama fp8 FP8_BLOCK gptq
    sixth b20 llama fp8_hf FP8 rtn
    sixth b21 llama modelopt NVFP4 rtn
    sixth b22 llama modelopt FP8 gptq
    sixth b23 llama swage W3A16 gptq --outliers 0.02
    sixth b24 moe compressed-tensors W4A16 gptq
    sixth b25 moe awq W4A16_ASYM rtn
    sixth b26 gpt_oss mxfp4 MXFP4A16 rtn --samples 2 --seq-len 32 --ignore self_attn
    toy b27 qwen3_next compressed-tensors W4A16 gptq --group-size 32
    toy b28 qwen3_5_moe compressed-tensors NVFP4A16 rtn
    toy b29 qwen3_5_moe compressed-tensors FP8_DYNAMIC rtn --ignore mlp.experts
    toy b30 qwen3_5_mtp compressed-tensors W4A16 gptq --group-size 32
    toy b31 glm4_moe_lite compressed-tensors FP8_DYNAMIC rtn
    toy b32 glm4_moe_mtp gptq W4A16 gptq --group-size 32
    toy b33 gemma4 compressed-tensors W4A16 rtn --group-size 32
    for type in Q4_0 Q4_1 Q8_0 Q4_K Q6_K; do gguf "$type.gguf" llama $type; done
    # last, since the turns of all before decide their damages
    sixth b34 codes compressed-tensors W4A16 rtn
    sixth b35 codes gptq W4A16 gptq
fi
count
echo "$n_sound sound checkpoints, $n_alarms false alarms"
exit "$bad"
