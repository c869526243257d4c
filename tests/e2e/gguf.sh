#!/bin/bash
# GGUF by the command line: there and back with the same tokens said, refusals, and
# conversions that are stopped half-way.
. "$(dirname "$0")/lib.bash"
said() { "$SWAGE" generate "$1" -q --ids -p 'The function' -n 24 2>&1; }
weights() { find "$1" -name '*.safetensors' -print0 | sort -z | xargs -0 cat | sha256sum; }

# floats: the same bytes come back, in the order in which every output has its tensors; the file itself
# is a model
expect 0 '' "$SWAGE" convert "$TINY" --to gguf --type BF16 -o "$T/b.gguf" -q
expect 0 '' "$SWAGE" convert "$T/b.gguf" --to bf16 -o "$T/b" -q
expect 0 '' "$SWAGE" convert "$TINY" --to bf16 -o "$T/plain" -q
[ "$(weights "$T/b")" = "$(weights "$T/plain")" ] || fail 'bf16 -> gguf -> bf16'
[ "$(said "$T/b.gguf")" = "$(said "$TINY")" ] || fail 'the file says something else'

# blocks: decoded once, they mean the same from the directory as from the file, and they are
# carried over into the dialects that have them
for type in Q8_0 Q4_K; do
    expect 0 '' "$SWAGE" convert "$TINY" --to gguf --type $type -o "$T/$type.gguf" -q
    expect 0 '' "$SWAGE" convert "$T/$type.gguf" --to f32 -o "$T/$type" -q
    text=$(said "$T/$type.gguf")
    [ -n "$text" ] && [ "$text" = "$(said "$T/$type")" ] || fail "$type says something else"
    expect 0 '' "$SWAGE" convert "$T/$type" --to gguf --type F32 -o "$T/again.gguf" -q --force
    [ "$text" = "$(said "$T/again.gguf")" ] || fail "$type -> f32 -> gguf"
done
expect 0 '' "$SWAGE" inspect "$T/Q4_K.gguf"
grep -q 'problems *none' "$T/stdout" || fail "inspect: $(tail -n 3 "$T/stdout")"

# codes go out into the dialects that hold them, and come back as the same bytes; others are refused
expect 0 '' "$SWAGE" convert "$T/Q8_0.gguf" --to gptq -o "$T/gptq" -q
grep -q '"exact": *42' "$T/gptq/manifest.json" || fail 'Q8_0 -> gptq is not exact'
[ "$(said "$T/gptq")" = "$(said "$T/Q8_0.gguf")" ] || fail 'Q8_0 -> gptq says something else'
expect 4 'blocks of Q4_K' "$SWAGE" convert "$T/Q4_K.gguf" --to gptq -o "$T/x" -q
expect 0 '' "$SWAGE" convert "$T/Q4_K.gguf" --to gptq --allow-requantize -o "$T/again" -q
expect 4 'allow-requantize' "$SWAGE" convert "$T/Q4_K.gguf" --to gguf --type Q8_0 -o "$T/x.gguf" -q

# fp4 with a factor of each weight beside it goes there and back, bit by bit
expect 0 '' "$SWAGE" quantize "$TINY" -o "$T/fp4" --method rtn --scheme NVFP4A16 -q \
    --format compressed-tensors
expect 0 '' "$SWAGE" convert "$T/fp4" --to gguf -o "$T/fp4.gguf" -q
expect 0 '' "$SWAGE" convert "$T/fp4.gguf" --to compressed-tensors -o "$T/fp4-back" -q
grep -q '"exact": *42' "$T/fp4-back/manifest.json" || fail 'NVFP4 does not come back exactly'
[ "$(said "$T/fp4-back")" = "$(said "$T/fp4")" ] || fail 'NVFP4 through GGUF says something else'

# codes of a model with latent attention, whose keys and values go as floats: the judge finds every
# code again, also where the largest of a block is -128 and rounding would have scaled it otherwise
use_recipes
"$EXPAND" "$RECIPES/glm4_moe_lite" "$T/latent"
expect 0 '' "$SWAGE" quantize "$T/latent" -o "$T/latent8" --method rtn --scheme W8A16 -q \
    --group-size 32 --ignore q_b_proj --format compressed-tensors
expect 0 '' "$SWAGE" convert "$T/latent8" --to gguf --type Q8_0 --no-tokenizer -q -o "$T/latent.gguf"
expect 0 '' "$SWAGE" verify "$T/latent.gguf" --against "$T/latent8" -q
rm -rf "$T/latent8"
expect 0 '' "$SWAGE" quantize "$T/latent" -o "$T/latent8" --method rtn --scheme NVFP4A16 -q \
    --format compressed-tensors
expect 4 'inputs are no whole blocks of NVFP4' "$SWAGE" convert "$T/latent8" --to gguf --type NVFP4 \
    --no-tokenizer -q -o "$T/no.gguf"
absent "$T/no.gguf"

# a file written again keeps the types and the bytes; what goes into blocks a second time says what
# that costs, by a command that works, and what costs less
expect 0 '' "$SWAGE" convert "$T/Q4_K.gguf" --to gguf -o "$T/same.gguf" -q
cmp -s "$T/same.gguf" "$T/Q4_K.gguf" || fail 'a file written again differs'
"$SWAGE" convert "$T/Q4_K.gguf" --to gptq_v2 --allow-requantize -o "$T/twice" >"$T/stdout" ||
    fail 'requantize'
grep -q 'rounded again, to int4 with zero points' "$T/stdout" || fail "$(cat "$T/stdout")"
grep -q 'swage quantize .*--scheme W4A16_ASYM --group-size 32' "$T/stdout" || fail 'no better way'
verify=$(sed -n 's/.*swage \(verify .*\) --text TEXT$/\1/p' "$T/stdout")
[ -n "$verify" ] || fail 'no command measures the cost'
# shellcheck disable=SC2086
expect 0 '' "$SWAGE" $verify --text calib_data/eval.txt --window 32 --max-windows 1 --no-gap -q
grep -q 'KL' "$T/stdout" || fail 'the command measures nothing'
grep -q 'Q4_K *42 ' <("$SWAGE" inspect "$T/Q4_K.gguf") || fail 'inspect does not count the blocks'
grep -q 'eos_token_id' "$T/twice/generation_config.json" || fail 'no generation_config.json'

# judged: alone with its own tokenizer, from a directory, and against the model it was made of; its
# likelihood is that of the same weights as plain floats
expect 0 '' "$SWAGE" verify "$T/Q4_K.gguf" --text calib_data/eval.txt --window 128 --max-windows 1 -q
grep -q 'Q4_K (most)' "$T/stdout" && grep -q 'perplexity' "$T/stdout" || fail 'verify of a file alone'
mkdir "$T/dir" && ln "$T/Q8_0.gguf" "$T/dir/model.gguf"
expect 0 '' "$SWAGE" verify "$T/dir" --against "$TINY" --text calib_data/eval.txt \
    --window 128 --max-windows 1 --max-kl 0.01 -q
for type in Q8_0 Q4_K; do
    expect 0 '' "$SWAGE" verify "$T/$type.gguf" --against "$T/$type" --text calib_data/eval.txt \
        --window 32 --max-windows 1 --no-gap --max-kl 1e-9 --json -q
done
cp "$T/Q8_0.gguf" "$T/bad.gguf"
printf '\377\177' | dd of="$T/bad.gguf" bs=1 seek=$(($(stat -c %s "$T/bad.gguf") - 34)) \
    conv=notrunc status=none
expect 1 'model.norm.weight' "$SWAGE" verify "$T/bad.gguf" --against "$TINY" -q

# the same bytes, whatever the number of threads; and no file is replaced unasked
expect 0 '' "$SWAGE" convert "$TINY" --to gguf --type Q4_K -o "$T/one.gguf" -q --threads 1
cmp -s "$T/one.gguf" "$T/Q4_K.gguf" || fail 'threads change the bytes'
expect 2 'exists' "$SWAGE" convert "$TINY" --to gguf --type Q4_K -o "$T/one.gguf" -q

# bad input: one line that names the file
head -c 5000 "$T/b.gguf" >"$T/cut.gguf"
expect 3 'cut.gguf' "$SWAGE" convert "$T/cut.gguf" --to bf16 -o "$T/x" -q
{ printf 'GGUF'; printf '\x09\0\0\0'; head -c 64 /dev/zero; } >"$T/new.gguf"
"$SWAGE" convert "$T/new.gguf" --to bf16 -o "$T/x" -q 2>"$T/stderr" && fail 'version 9 was read'
grep -q 'new.gguf' "$T/stderr" || fail "no file is named: $(cat "$T/stderr")"
expect 2 'type' "$SWAGE" convert "$TINY" --to gguf --type Q9_Z -o "$T/x.gguf" -q
expect 2 '.gguf' "$SWAGE" convert "$TINY" --to gguf -o "$T/x" -q
absent "$T/x"

# stopped, or out of room: nothing is left, neither the file nor a temporary
for signal in INT TERM; do
    for n in 1 4; do
        hold pwrite /output $n "$SWAGE" convert "$TINY" --to gguf --type Q4_K -o "$T/s.gguf" -q 2>/dev/null
        kill -$signal $pid
        kill -CONT $pid
        wait $pid
        have=$?
        [ $have -eq 130 ] || fail "exit $have after SIG$signal, want 130"
        absent "$T/s.gguf"
    done
done
limited() { (ulimit -f 200 && exec "$@"); }
expect 5 's.gguf*' limited "$SWAGE" convert "$TINY" --to gguf --type Q4_K -o "$T/s.gguf" -q
absent "$T/s.gguf"

# importance matrices: both forms weigh alike, and a model is none
toy_tokens 256 >"$T/toy.u16"
for form in gguf dat; do
    expect 0 '' "$SWAGE" calibrate "$TOY" --calib "$T/toy.u16" --samples 2 --seq-len 128 -q \
        -o "$T/$form.stats" --imatrix "$T/i.$form"
    expect 0 '' "$SWAGE" convert "$TOY" --to gguf --type Q4_0 --imatrix "$T/i.$form" -q \
        --no-tokenizer -o "$T/weighed.$form.gguf"
done
expect 0 '' "$SWAGE" convert "$TOY" --to gguf --type Q4_0 -q --no-tokenizer -o "$T/plain.gguf"
cmp -s "$T/weighed.gguf.gguf" "$T/weighed.dat.gguf" || fail 'the two forms weigh otherwise'
cmp -s "$T/weighed.dat.gguf" "$T/plain.gguf" && fail 'an imatrix weighs nothing'
# an imatrix weighs plain rounding too, and nothing that needs whole Hessians
for form in gguf dat; do
    expect 0 '' "$SWAGE" quantize "$TOY" -o "$T/weighed.$form" --method rtn -q --imatrix "$T/i.$form"
done
[ "$(weights "$T/weighed.gguf")" = "$(weights "$T/weighed.dat")" ] || fail 'the two forms round otherwise'
grep -q '"sha256"' <<<"$(grep -A3 '"imatrix"' "$T/weighed.dat/manifest.json")" || fail 'no imatrix in the manifest'
# what it is good for shows on a trained model: KL of 0.13 with it, and of 0.23 without
judged() {
    "$SWAGE" verify "$1" --against "$TINY" -q --text calib_data/eval.u16 --window 128 --max-windows 2 \
        --no-gap --max-kl 0.17
}
expect 0 '' "$SWAGE" calibrate "$TINY" --calib calib_data/calib.u16 --samples 2 --seq-len 128 -q \
    -o "$T/i.stats" --imatrix "$T/tiny.gguf"
expect 0 '' "$SWAGE" quantize "$TINY" -o "$T/weighed" --method rtn -q --imatrix "$T/tiny.gguf"
expect 0 '' judged "$T/weighed"
expect 0 '' "$SWAGE" quantize "$TINY" -o "$T/rounded" --method rtn -q
expect 1 'max-kl' judged "$T/rounded"
expect 2 '--imatrix: method gptq needs whole Hessians' "$SWAGE" quantize "$TINY" -o "$T/no" -q \
    --imatrix "$T/tiny.gguf"
expect 2 'serves many rows' "$SWAGE" quantize "$TINY" -o "$T/no" -q --method rtn --scheme FP8_BLOCK \
    --imatrix "$T/tiny.gguf"
expect 3 'no imatrix' "$SWAGE" quantize "$TINY" -o "$T/no" -q --method rtn --imatrix "$T/b.gguf"
expect 3 'no imatrix' "$SWAGE" convert "$TINY" --to gguf --type Q4_0 --imatrix "$T/b.gguf" -q \
    -o "$T/x.gguf"
expect 2 'FILE.dat' "$SWAGE" calibrate "$TINY" --calib calib_data/calib.u16 -o "$T/x" \
    --imatrix "$T/x.txt" -q
finish
