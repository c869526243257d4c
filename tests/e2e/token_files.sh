#!/bin/bash
# Models without tokenizer.json: text is read, outputs have one, and what has no token is said.
. "$(dirname "$0")/lib.bash"
GOLDEN=tests/golden/token_files

# a model with the tokenizer files of a golden case in place of its own
with() {
    rm -rf "$T/m"
    mkdir "$T/m"
    cp "$TINY"/*.safetensors "$TINY/config.json" "$T/m/"
    [ -z "$1" ] || cp "$GOLDEN/$1"/* "$T/m/"
    rm -f "$T/m/expected.json"
}
quantize_toy() {
    "$SWAGE" quantize "$T/m" -o "$T/out" --force --method gptq --calib "$T/text" --samples 1 \
        --seq-len 32 --threads 2 --allow-fallback "$@" >"$T/stdout" 2>"$T/stderr"
}

i=0
while [ $i -lt 60 ]; do echo "the quick brown fox 12 jumps, <b>x</b> and"; i=$((i + 1)); done >"$T/text"

# every kind: written as tokenizer.json, its own files beside it
for kind in spm_bpe spm_unigram spm_unigram_bytes merges_qwen2 tekken; do
    with $kind
    "$SWAGE" convert "$T/m" --to bf16 -o "$T/out" -q --force >"$T/stdout" 2>"$T/stderr" ||
        fail "$kind: $(cat "$T/stderr")"
    grep -q '"added_tokens":\[' "$T/out/tokenizer.json" || fail "$kind: no tokenizer.json"
    for f in "$T/m"/*; do
        case $f in *.safetensors | */config.json) ;; *) cmp -s "$f" "$T/out/${f##*/}" ||
            fail "$kind: ${f##*/} was not copied" ;; esac
    done
    grep -q '"name":[[:space:]]*"tokenizer.json"' "$T/out/manifest.json" || fail "$kind: not in the manifest"
    "$SWAGE" inspect "$T/m" --json >"$T/stdout" || fail "$kind: inspect"
    grep -q '"tokenizer_vocab":[[:space:]]*[1-9]' "$T/stdout" || fail "$kind: its tokenizer is not read"
done

# a tokenizer.json that is there stays as it is
with merges_gpt2
cp "$TINY/tokenizer.json" "$T/m/"
expect 0 '' "$SWAGE" convert "$T/m" --to bf16 -o "$T/out" -q --force
cmp -s "$TINY/tokenizer.json" "$T/out/tokenizer.json" || fail 'tokenizer.json was changed'

# what has no form as tokenizer.json is said, and the checkpoint is whole without
with ''
echo 'IQ== 0' >"$T/m/qwen.tiktoken"
"$SWAGE" convert "$T/m" --to bf16 -o "$T/plain" --force >"$T/stdout" 2>"$T/stderr" ||
    fail "$(cat "$T/stderr")"
grep -q 'no tokenizer.json is written: .*qwen.tiktoken: a list of tiktoken' "$T/stderr" ||
    fail "no note: $(cat "$T/stderr")"
absent "$T/plain/tokenizer.json"
expect 4 '*put the model*tokenizer.json beside it*' "$SWAGE" quantize "$T/m" -o "$T/no" -q \
    --calib "$T/text"

# the class that many models name whose words are cut otherwise
with merges_gpt2
"$SWAGE" convert "$T/m" --to bf16 -o "$T/plain" --force >"$T/stdout" 2>"$T/stderr" ||
    fail "$(cat "$T/stderr")"
grep -q 'no tokenizer.json is written: .*"GPT2Tokenizer" with model_type "llama"' "$T/stderr" ||
    fail "no note: $(cat "$T/stderr")"

# two bytes that the vocabulary has no token for: a note, and figures in the manifest
with spm_unigram
{ printf 'fox \026 and \026'; cat "$T/text"; } >"$T/odd"
mv "$T/odd" "$T/text"
sed -i 's/^/~/' "$T/text"
quantize_toy || fail "$(cat "$T/stderr")"
grep -q "$T/text: [0-9]* characters that the tokenizer has no token for became its unknown token; \
the first is byte 0x7E at offset 0" "$T/stderr" || fail "no note: $(cat "$T/stderr")"
grep -q '"unspelled"' "$T/out/manifest.json" || fail 'not in the manifest'
"$SWAGE" verify "$T/out" --text "$T/text" --json --window 64 --max-windows 1 >"$T/stdout" 2>"$T/stderr"
grep -q '"unspelled"' "$T/stdout" || fail "not in the report: $(cat "$T/stderr")"
grep -q 'byte 0x7E at offset 0' "$T/stderr" || fail "verify: no note: $(cat "$T/stderr")"
"$SWAGE" generate "$T/m" --prompt 'fox ~' --n-tokens 1 --ids >"$T/stdout" 2>"$T/stderr" ||
    fail "generate: $(cat "$T/stderr")"
grep -q 'the prompt: 1 character ' "$T/stderr" || fail "generate: no note: $(cat "$T/stderr")"

# a bomb of seven characters is refused in no time, by file and step
with ''
{
    printf '{"normalizer":{"type":"Sequence","normalizers":['
    for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
        [ $i = 1 ] || printf ','
        printf '{"type":"Replace","pattern":{"String":"e"},"content":"eeeeeeeeee"}'
    done
    printf ']},"model":{"type":"BPE","vocab":{"e":0},"merges":[]}}'
} >"$T/m/tokenizer.json"
expect 3 '*tokenizer.json: normalizer step * (Replace): the text grows beyond*' "$SWAGE" generate \
    "$T/m" --prompt 'hee hee' --n-tokens 2
finish
