#!/bin/bash
# The model card of an output: where it goes, what it says, who writes it anew.
. "$(dirname "$0")/lib.bash"

OUT=$T/out
COMMIT=0123456789abcdef0123456789abcdef01234567
says() { grep -qF -- "$2" "$1" || fail "${1##*/} does not say: $2"; }
silent() { grep -qF -- "$2" "$1" && fail "${1##*/} says: $2"; }

# A model of the Hub with a card of its own.
SNAPSHOT=$T/cache/models--org--name/snapshots/$COMMIT
mkdir -p "$SNAPSHOT" "$T/cache/models--org--name/refs"
printf %s $COMMIT >"$T/cache/models--org--name/refs/main"
cp "$TINY"/*.json "$TINY"/*.safetensors "$SNAPSHOT/"
printf -- '---\nlicense: llama3.1 # theirs\nlicense_name: "a \\ b"\n---\n# the original\n' >"$SNAPSHOT/README.md"
export HF_HUB_CACHE=$T/cache

expect 0 '' "$SWAGE" quantize -q org/name --method rtn --format compressed-tensors -o "$OUT"
cmp -s "$OUT/README.md" "$SNAPSHOT/README.md" || fail 'the card of the source is not copied as it is'
CARD=$OUT/SWAGE.md
[ "$(head -n 4 "$CARD")" = '---
base_model: "org/name"
base_model_relation: "quantized"
license: "llama3.1"' ] || fail "the metadata begin otherwise: $(head -n 4 "$CARD")"
silent "$CARD" license_name
says "$CARD" '- "compressed-tensors"'
says "$CARD" '- "4-bit"'
says "$CARD" "swage quantize org/name@$COMMIT -o OUT --method rtn --format compressed-tensors"
says "$CARD" 'vllm serve OUT'
says "$CARD" 'python -m sglang.launch_server --model-path OUT'
says "$CARD" 'hf upload YOU/NAME OUT/SWAGE.md README.md'
silent "$CARD" KL
expect 0 '' "$SWAGE" verify -q "$OUT" --against org/name

# --- the next output has a card of its own, and only that
expect 0 '' "$SWAGE" convert -q "$OUT" --to gptq -o "$T/gptq"
says "$T/gptq/SWAGE.md" 'base_model: "org/name"'
says "$T/gptq/SWAGE.md" 'swage convert MODEL -o OUT --to gptq'
says "$T/gptq/SWAGE.md" "swage quantize org/name@$COMMIT"
cmp -s "$T/gptq/README.md" "$SNAPSHOT/README.md" || fail 'convert lost the card of the source'

# --- without a card in the source it is README.md, of the same bytes each time
W4A8=(quantize -q "$TINY" --scheme W8A8 --method rtn --format compressed-tensors)
expect 0 '' "$SWAGE" "${W4A8[@]}" -o "$T/one"
mkdir "$T/sub"
expect 0 '' env -C "$T/sub" "$SWAGE" "${W4A8[@]}" -o two --threads 1
cmp -s "$T/one/README.md" "$T/sub/two/README.md" || fail 'the cards of one output differ'
says "$T/one/README.md" 'hf upload YOU/NAME OUT .'
silent "$T/one/README.md" base_model:
absent "$T/one/SWAGE.md"
expect 0 '' "$SWAGE" "${W4A8[@]}" -o "$T/one" --force
expect 0 '' "$SWAGE" "${W4A8[@]}" -o "$T/none" --no-card
absent "$T/none/README.md"
expect 0 '' "$SWAGE" convert -q "$T/one" --to bf16 -o "$T/dense"
silent "$T/dense/README.md" base_model_relation
silent "$T/dense/README.md" 8-bit
absent "$T/dense/SWAGE.md"
expect 0 '' "$SWAGE" convert -q "$T/one" --to bf16 -o "$T/bare" --no-card
absent "$T/bare/README.md"

# --- engines that refuse an output are named, without a command
expect 0 '' "$SWAGE" quantize -q "$TINY" --method rtn --format swage -o "$T/tiles"
silent "$T/tiles/README.md" 'vllm serve'
says "$T/tiles/README.md" 'all but Swage: refused'

# --- an edited card is no broken checkpoint, and is not replaced
echo 'my own words' >>"$T/one/README.md"
expect 0 '' "$SWAGE" verify -q "$T/one" --against "$TINY"
grep -q '^remark *README.md, the model card, was changed' "$T/stdout" || fail 'no remark on an edited card'
expect 2 'README.md, which was changed after swage wrote it' "$SWAGE" "${W4A8[@]}" -o "$T/one" --force

# --- with the figures of a run
head -c 1500 calib_data/eval.txt >"$T/text.txt"
VERIFY=(verify -q "$OUT" --against org/name --text "$T/text.txt" --window 64 --no-gap)
expect 0 '' "$SWAGE" "${VERIFY[@]}" --card "$T/card.md"
says "$T/card.md" '| KL from the original | 0.'
says "$T/card.md" '| perplexity of the original | '
says "$T/card.md" 'license: "llama3.1"'
says "$T/card.md" "swage quantize org/name@$COMMIT"
expect 2 'card.md: exists' "$SWAGE" "${VERIFY[@]}" --card "$T/card.md"
expect 0 '' "$SWAGE" "${VERIFY[@]}" --card "$T/card.md" --force
cp -r "$OUT" "$T/before"
expect 2 'SWAGE.md: ' "$SWAGE" "${VERIFY[@]}" --card "$CARD" --force
diff -r "$OUT" "$T/before" >/dev/null || fail 'verify wrote into what it judges'
expect 0 '' "$SWAGE" convert -q "$TINY" --to gguf --type Q8_0 -o "$T/tiny.gguf"
expect 0 '' "$SWAGE" verify -q "$T/tiny.gguf" --card "$T/gguf.md"
says "$T/gguf.md" 'llama-server -m OUT'
says "$T/gguf.md" 'library_name: "gguf"'

# --- a hostile card: nothing of it leaves its value
for text in '---\nlicense: "x\ny"\n---' '---\nlicense: "]: {x"\n---' '---\nlicense: !!python/x y\n---'; do
    printf -- "$text" >"$SNAPSHOT/README.md"
    rm -rf "$OUT"
    expect 0 '' "$SWAGE" quantize -q org/name --method rtn --format gptq -o "$OUT"
    [ "$(grep -c '^---$' "$CARD")" -eq 2 ] || fail 'the metadata have another end'
    silent "$CARD" '!!python'
    silent "$CARD" 'license: "x"'
done
finish
