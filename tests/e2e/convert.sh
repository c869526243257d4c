#!/bin/bash
# Conversions by the command line: every pair of formats there and back, refusals, dtypes.
. "$(dirname "$0")/lib.bash"
names() { "$SWAGE" list "$1" | tail -n +2 | cut -d' ' -f1; }
tensors() { find "$1" -name '*.safetensors' -print0 | sort -z | xargs -0 cat | sha256sum; }

# a quantized head goes wherever linears go
expect 0 '' "$SWAGE" quantize "$TOY" -o "$T/head" -q --method rtn --format gptq --group-size 32 --asym --lm-head
for to in gptq awq compressed-tensors marlin swage; do
    rm -rf "$T/b" "$T/c"
    "$SWAGE" convert "$T/head" --to "$to" -o "$T/b" -q >"$T/stdout" 2>"$T/stderr" ||
        { grep -q use "$T/stderr" || fail "head: gptq -> $to: $(cat "$T/stderr")"; continue; }
    expect 0 '' "$SWAGE" convert "$T/b" --to gptq -o "$T/c" -q
    [ "$(tensors "$T/head")" = "$(tensors "$T/c")" ] || fail "head: gptq -> $to -> gptq"
    grep -q '"lm_head": true' "$T/c/config.json" || fail "head: gptq -> $to -> gptq: not said"
done
expect 2 '*tie_word_embeddings*' "$SWAGE" quantize "$TINY" -o "$T/tied" -q --method rtn --lm-head
expect 2 '*--lm-head*' "$SWAGE" quantize "$T/head" -o "$T/again" -q --method rtn

# every pair: exact there and back, or one line with the reason and what to do
n_exact=0
for scheme in W4A16_ASYM FP8_BLOCK; do
    model=$TOY
    [ $scheme != FP8_BLOCK ] || model=$TINY # whose linears are whole blocks
    for from in $(names formats); do
        rm -rf "$T/a"
        "$SWAGE" quantize "$model" -o "$T/a" -q --method rtn --format "$from" --scheme $scheme \
            >/dev/null 2>&1 || continue
        for to in $(names formats); do
            rm -rf "$T/b" "$T/c"
            "$SWAGE" convert "$T/a" --to "$to" -o "$T/b" -q >"$T/stdout" 2>"$T/stderr"
            case $? in
                0) ;;
                4) [ "$(wc -l <"$T/stderr")" -eq 1 ] || fail "$from $to: $(cat "$T/stderr")"
                    grep -q -e '--allow-requantize' -e use "$T/stderr" || fail "no remedy: $from $to"
                    absent "$T/b"
                    continue ;;
                *) fail "$from -> $to: $(cat "$T/stderr")"; continue ;;
            esac
            expect 0 '' "$SWAGE" convert "$T/b" --to "$from" -o "$T/c" -q
            [ "$(tensors "$T/a")" = "$(tensors "$T/c")" ] || fail "$scheme $from -> $to -> $from"
            n_exact=$((n_exact + 1))
        done
    done
done
[ $n_exact -ge 60 ] || fail "only $n_exact pairs were exact"

# what was written is read by the second decoder; JSON and manifest say what became of what
rm -rf "$T/a"
expect 0 '' "$SWAGE" quantize "$TINY" -o "$T/a" -q --method rtn --format awq --scheme W4A16_ASYM
expect 0 '' "$SWAGE" convert "$T/a" --to marlin -o "$T/m" -q --verify --json
grep -q '"exact":[[:space:]]*42' "$T/stdout" || fail 'no count of exact linears'
expect 4 '--allow-requantize' "$SWAGE" convert "$T/a" --to fp8 -o "$T/r" -q
absent "$T/r"
expect 0 '' "$SWAGE" convert "$T/a" --to fp8 -o "$T/r" -q --allow-requantize --verify
grep -q '"fate": "requantized"' "$T/r/manifest.json" || fail 'manifest'
expect 0 '' "$SWAGE" convert "$T/a" --to gptq_v2 -o "$T/w" -q --allow-requantize --scheme W8A16
rm -rf "$T/r" "$T/w" "$T/m"

expect 0 '' "$SWAGE" convert "$T/a" --to gptq_v2 -o "$T/s" -q --sidecar --verify
[ -s "$T/s/model.tiles" ] || fail 'no sidecar'
# a quantized source is an original to be held to: nothing of it may have changed
expect 0 '' "$SWAGE" verify "$T/s" --against "$T/a" -q
grep -q '84 quantized, 56 bit-identical' "$T/stdout" || fail "$(cat "$T/stdout")"
# with a sidecar linears go whole, without in windows: the same bytes
expect 0 '' "$SWAGE" convert "$T/a" --to gptq_v2 -o "$T/w" -q --shard-size 1M
expect 0 '' "$SWAGE" convert "$T/a" --to gptq_v2 -o "$T/v" -q --shard-size 1M --sidecar
[ "$(tensors "$T/w")" = "$(tensors "$T/v")" ] || fail 'in windows it is another'
# digests taken while files grow are those of the files
for file in "$T"/w/*.safetensors; do
    grep -q "$(sha256sum <"$file" | cut -d' ' -f1)" "$T/w/manifest.json" || fail "digest of $file"
done
rm -rf "$T/w" "$T/v"
expect 2 'no tiles' "$SWAGE" convert "$T/a" --to swage -o "$T/x" -q --sidecar

# inputs that were quantized need a word before they are not
expect 0 '' "$SWAGE" quantize "$TINY" -o "$T/i" -q --method rtn --format swage --scheme W8A8
expect 4 'with inputs as they are' "$SWAGE" convert "$T/i" --to gptq -o "$T/o" -q
expect 0 '' "$SWAGE" convert "$T/i" --to gptq -o "$T/o" -q --weights-only --verify

# floats: up and down again is the same; shards; the bytes do not depend on threads
expect 0 '' "$SWAGE" convert "$TINY" --to f32 -o "$T/f" -q --shard-size 5M
[ "$(find "$T/f" -name '*.safetensors' | wc -l)" -gt 2 ] || fail 'not sharded'
expect 0 '' "$SWAGE" convert "$T/f" --to bf16 -o "$T/g" -q
expect 0 '' "$SWAGE" convert "$TINY" --to bf16 -o "$T/h" -q
expect 0 '' "$SWAGE" verify "$T/g" --against "$TINY" -q
grep -q '0 quantized, 56 bit-identical' "$T/stdout" || fail "bf16 -> f32 -> bf16: $(cat "$T/stdout")"
cmp -s "$T/h/model.safetensors" "$T/g/model.safetensors" || fail 'the order hangs on more than names'
expect 0 '' "$SWAGE" convert "$T/a" --to bf16 -o "$T/p" -q --threads 1
expect 0 '' "$SWAGE" convert "$T/a" --to bf16 -o "$T/q" -q --threads 3
diff -r "$T/p" "$T/q" >/dev/null || fail 'threads change the bytes'
[ -s "$T/p/tokenizer.json" ] || fail 'no tokenizer'

# misuse
expect 2 '--to' "$SWAGE" convert "$T/a" -o "$T/x"
expect 2 '-o' "$SWAGE" convert "$T/a" --to gptq
expect 2 'exists' "$SWAGE" convert "$T/a" --to gptq -o "$T/p"
expect 2 'did you mean' "$SWAGE" convert "$T/a" --to gptqv2 -o "$T/x"
expect 2 '--allow-requantize' "$SWAGE" convert "$T/a" --to gptq --scheme W8A16 -o "$T/x"
expect 4 'swage quantize' "$SWAGE" convert "$TINY" --to gptq -o "$T/x" -q
absent "$T/x"
finish
