#!/bin/bash
# Several outputs of one run: the bytes of runs of their own, failures that stay with one of them,
# and what is there already.
. "$(dirname "$0")/lib.bash"

MOE=$PWD/tests/golden/arch/qwen3_moe
DIR=$T/dir
alone() { # MODEL NAME OPTIONS...
    local name=$2
    rm -rf "$T/alone"
    expect 0 '' "$SWAGE" quantize --quiet "$1" -o "$T/alone" "${Q[@]}" --scheme "${name%%-*}" \
        --format "${name#*-}"
    diff -r "$T/alone" "$DIR/$name" >/dev/null || fail "$name differs from a run of its own"
}

for model in "$TOY" "$MOE"; do
    [ -d "$model" ] || fail "no $model"
    rm -rf "$DIR"
    Q=(--calib "$model/reference.safetensors" --samples 2 --seq-len 32 --group-size 32)
    MANY=("$SWAGE" quantize --quiet "$model" -o "$DIR" "${Q[@]}" --scheme W4A16,W8A16
          --format gptq_v2,compressed-tensors --format swage)
    expect 0 '' "${MANY[@]}"
    [ "$(ls "$DIR" | wc -l)" -eq 6 ] || fail "not six outputs: $(ls "$DIR")"
    for name in W4A16-gptq_v2 W8A16-swage W4A16-compressed-tensors W8A16-gptq_v2; do
        alone "$model" $name
    done
done

# --- a transform, and a method without calibration
rm -rf "$DIR"
Q=(--calib "$TOY/reference.safetensors" --samples 2 --seq-len 32 --group-size 32 --method awq)
expect 0 '' "$SWAGE" quantize --quiet "$TOY" -o "$DIR" "${Q[@]}" --format swage,gptq
alone "$TOY" W4A16-swage
alone "$TOY" W4A16-gptq
rm -rf "$DIR"
Q=(--method rtn)
expect 0 '' "$SWAGE" quantize --quiet "$TOY" -o "$DIR" "${Q[@]}" -f swage -f compressed-tensors \
    -s FP8_DYNAMIC,W8A16
alone "$TOY" W8A16-compressed-tensors
alone "$TOY" FP8_DYNAMIC-swage

# --- what is there already is not made again, and what is there otherwise stays
MANY=("$SWAGE" quantize "$TOY" -o "$DIR" --method rtn --scheme W8A16 --format)
stamp=$(stat -c %i-%Y "$DIR/W8A16-swage/model.safetensors")
"${MANY[@]}" swage,gptq_v2 >"$T/stdout" 2>"$T/stderr" || fail 'a further format'
grep -q 'W8A16-swage: finished before' "$T/stdout" || fail 'does not say that it was finished'
[ "$stamp" = "$(stat -c %i-%Y "$DIR/W8A16-swage/model.safetensors")" ] || fail 'made again'
[ -d "$DIR/W8A16-gptq_v2" ] || fail 'the further format is not there'
expect 2 "W8A16-swage: exists and was made with other settings*--force" "${MANY[@]}" swage,gptq_v2 \
    --quiet --group-size 64
rm "$DIR/W8A16-swage/tokenizer.json" "$DIR/W8A16-swage/config.json" 2>/dev/null
expect 2 'W8A16-swage: exists and lacks files' "${MANY[@]}" swage,gptq_v2 --quiet
expect 0 '' "${MANY[@]}" swage,gptq_v2 --quiet --force --restart

# --- one that cannot be written leaves the others whole
rm -rf "$DIR"
mkdir -p "$DIR/W8A16-gptq_v2.partial"
touch "$DIR/W8A16-gptq_v2.partial/mine"
expect 2 '1 of 3 outputs failed, W8A16-gptq_v2: *partial' "${MANY[@]}" swage,gptq_v2,compressed-tensors \
    --quiet --json
for text in '"state":"failed"' '"exit":2' '"state":"made"'; do
    tr -d ' \t\n' <"$T/stdout" | grep -q "$text" || fail "no $text in the result"
done
Q=(--method rtn)
alone "$TOY" W8A16-swage
alone "$TOY" W8A16-compressed-tensors
[ "$(ls "$DIR/W8A16-gptq_v2.partial")" = mine ] || fail 'touched what is not its own'
[ ! -e "$DIR/W8A16-gptq_v2" ] || fail 'an output in spite of its failure'
rm -r "$DIR/W8A16-gptq_v2.partial"
expect 0 '' "${MANY[@]}" swage,gptq_v2,compressed-tensors --quiet
alone "$TOY" W8A16-gptq_v2

# --- what can be refused is refused for all, before anything is written
rm -rf "$DIR"
expect 4 'W8A16-awq: *holds 4 bits, not 8' "${MANY[@]}" swage,awq --quiet
absent "$DIR"
expect 2 "does not know 'gguff'" "${MANY[@]}" swage,gguff --quiet
expect 2 'plan takes one scheme and one format' "$SWAGE" plan "$TOY" --scheme W4A16,W8A16
expect 2 'nor*lie inside it' "$SWAGE" quantize --quiet "$TOY" -o "$TOY/in" --method rtn \
    --scheme W8A16,FP8_DYNAMIC
absent "$TOY/in"

# --- interrupted between the journals of two outputs, it continues to the same bytes
head -c 2048 "$PWD/calib_data/calib.u16" >"$T/calib.u16"
Q=(--calib "$T/calib.u16" --samples 2 --seq-len 64 --ignore mlp o_proj)
MANY=("$SWAGE" quantize --quiet "$TINY" -o "$DIR" "${Q[@]}" --format swage,gptq)
for blocks in 1 3; do
    rm -rf "$DIR"
    hold pwrite /W4A16-gptq.partial/journal $blocks "${MANY[@]}" >/dev/null
    kill -9 $pid
    wait $pid 2>/dev/null
    head -n $blocks "$DIR/W4A16-gptq.partial/journal" >"$T/journal" # one that is a block behind the other
    cp "$T/journal" "$DIR/W4A16-gptq.partial/journal"
    expect 0 '' "${MANY[@]}"
    alone "$TINY" W4A16-gptq
    alone "$TINY" W4A16-swage
done

finish
