#!/bin/bash
# What every family gets: inspect recommends a recipe, which quantizes a toy of it and passes the
# judge; no matrix of its layers is unknown, and the manifest has the counts; every layer with keys
# and values of its own gets scales of a cache, and a family without such layers says so.
# ONLY=REGEX: those families alone.
. "$(dirname "$0")/lib.bash"
use_recipes
toy_tokens 1536 >"$T/calib.u16"
export OMP_NUM_THREADS=1

# Of toys whose inputs are no groups of 128, what cannot be held is left: fits OPTIONS...
fits() {
    local left=()
    for _ in 1 2 3 4 5 6 7 8; do
        rm -rf "$T/out"
        "$SWAGE" quantize "$T/$name" -o "$T/out" --calib "$T/calib.u16" --samples 24 \
            --seq-len "$window" --threads 1 -q "$@" "${left[@]}" \
            >"$T/stdout" 2>"$T/stderr" && return
        grep -q 'do not divide its' "$T/stderr" || break
        left+=(--ignore "\\.$(sed -n 's/.*\.\([a-z0-9_]*\): groups of .*/\1/p' "$T/stderr")\$")
    done
    fail "$name $*: $(head -c 300 "$T/stderr")"
}

# Layers of the toys that cache keys and values apart, of which most have two: the others keep a
# state, a common form of both, or keys that stand for several tokens.
layers_of() {
    case $1 in
    deepseek_v32* | deepseek_v4 | glm4_moe_lite | glm_moe_dsa* | kimi_linear | mamba2) echo 0 ;;
    bamba | granitemoehybrid* | lfm2* | nemotron_h* | qwen3_5* | qwen3_next) echo 1 ;;
    gemma3n | gemma4 | gemma4_text | llama4*) echo 4 ;;
    *) echo 2 ;;
    esac
}
scales() { grep -ao "\"[A-Za-z0-9_.]*\.$1\"" "$T/out/model.safetensors" | sort -u | wc -l; }

for dir in "$RECIPES"/*/; do
    name=$(basename "$dir")
    [[ $name =~ ${ONLY:-.} ]] || continue
    window=48
    [[ $name != *_sparse ]] || window=16
    "$EXPAND" "$RECIPES/$name" "$T/$name" || fail "no $name"
    recipe=$("$SWAGE" inspect "$T/$name" -q 2>/dev/null | sed -n 's/^recipe  *\([a-z0-9-]*\):.*/\1/p')
    [ -n "$recipe" ] || { fail "$name: no recipe is recommended" && continue; }
    if [ "$recipe" = w4a16 ]; then
        fits --recipe "$recipe" --group-size 32
    else
        fits --recipe "$recipe"
    fi
    grep -q '^left  *[0-9]* linears by rule, [0-9]* by pattern, 0 unknown' "$T/stdout" ||
        fail "$name: $(grep '^left' "$T/stdout")"
    grep -q '"linear_counts"' "$T/out/manifest.json" || fail "$name: no counts in the manifest"
    expect 0 '' "$SWAGE" verify "$T/out" --against "$T/$name" -q --window "$window" \
        --text "$RECIPES/$name/reference.safetensors" --gap-windows 1 --threads 1

    rm -rf "$T/out"
    kv=(quantize "$T/$name" -o "$T/out" --scheme FP8 --method rtn --kv-cache fp8 -q --threads 1
        --format compressed-tensors --calib "$T/calib.u16" --samples 4 --seq-len "$window")
    n=$(layers_of "$name")
    if [ "$n" -eq 0 ]; then
        expect 4 'no layer caches keys and values apart*leave out --kv-cache' "$SWAGE" "${kv[@]}"
        absent "$T/out"
    else
        "$SWAGE" "${kv[@]}" >"$T/stdout" 2>"$T/stderr" || fail "$name: $(head -c 300 "$T/stderr")"
        [ "$(scales k_scale) $(scales v_scale)" = "$n $n" ] ||
            fail "$name: $(scales k_scale) scales of keys, $(scales v_scale) of values, want $n"
    fi
    rm -rf "${T:?}/$name" "$T/out"
done
finish
