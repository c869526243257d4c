#!/usr/bin/env bash
# The C interface as a stranger has it: the shared library exports what the header declares and
# nothing else, the header is C and C++, and the example programs do what they say.
. "$(dirname "$0")/lib.bash"
[ "${BUILD:-build/release}" = build/release ] || { echo 'only the release build has a shared library'; exit 77; }
made_by_one shared examples >"$T/log" 2>&1 || fail "make shared examples: $(tail -n 3 "$T/log")"
so=$BUILD/libswage.so.0
E=$BUILD/tests/examples

# exported, declared, and used by an example or named as what only some callers need
nm -D --defined-only "$so" | awk '$2 != "A" {sub(/@.*/, "", $3); print $3}' | sort >"$T/exported"
${CC:-cc} -E -P tools/library/libswage.h | tr ';' '\n' | grep -oE '\bsw_[a-z0-9_]+ *\(' | tr -d ' (' | sort >"$T/declared"
diff "$T/exported" "$T/declared" >"$T/diff" || fail "exported (<) and declared (>): $(cat "$T/diff")"
[ "$(wc -l <"$T/exported")" -ge 36 ] || fail "only $(wc -l <"$T/exported") functions"
nm -D "$so" | grep -qE ' [tTdDbBuV] [^s]' && fail "exported: $(nm -D "$so" | grep -E ' [tTdDbBuV] [^s]' | head -n 3)"
readelf -d "$so" | grep -q 'SONAME.*\[libswage.so.0\]' || fail 'soname'
readelf -d "$so" | grep -q TEXTREL && fail 'text is patched at load time'
readelf -d "$so" | grep NEEDED | grep -q cuda && fail 'needs a CUDA library'

printf '#include <libswage.h>\nint main(void) { return sw_library_version() != SW_LIBRARY_VERSION; }\n' >"$T/v.c"
cp "$T/v.c" "$T/v.cpp"
for compile in "${CC:-cc} -std=c11" "${CC:-cc} -std=c99 -pedantic" "${CXX:-c++} -std=c++11 -pedantic"; do
    [[ $compile != *c++* ]] || command -v "${CXX:-c++}" >/dev/null || continue
    source=v.c
    [[ $compile == *c++11* ]] && source=v.cpp
    # shellcheck disable=SC2086
    $compile -Wall -Wextra -Werror -Itools/library "$T/$source" "$so" -Wl,-rpath,"$PWD/$BUILD" -o "$T/v" 2>"$T/log" &&
        "$T/v" || fail "$compile: $(head -n 3 "$T/log")"
done
text=$(sed -nE 's/#define SW_LIBRARY_VERSION_TEXT "(.*)"/\1/p' tools/library/libswage.h)
"$SWAGE" --version | grep -q "^swage $text " || fail "the header is of $text"
awk -v text="$text" '$2 == "SW_LIBRARY_VERSION" { split(text, v, "."); exit $3 != v[1] * 10000 + v[2] * 100 + v[3] }' \
    tools/library/libswage.h || fail 'the number of the version is not its text'

M=model.layers.1.mlp.up_proj
"$SWAGE" quantize "$TOY" --method rtn --scheme W4A16 --group-size 64 --format gptq -o "$T/q" -q >/dev/null || fail quantize
expect 0 '' "$E/inspect" "$T/q"
grep -q "^$M 256x128 int4, groups of 64, scales F16, inputs 16 bit$" "$T/stdout" || fail "inspect: $(cat "$T/stdout")"
grep -c int4 "$T/stdout" | grep -qx 14 || fail 'inspect: not 14 quantized linears'
expect 5 'no such directory' "$E/inspect" "$T/none"

# floats are those of the reference decoder: converted by the program, read by the interface
"$SWAGE" convert "$T/q" --to f32 -o "$T/f32" -q >/dev/null || fail convert
for name in $M model.norm.weight model.embed_tokens.weight; do
    expect 0 '' "$E/decode" "$T/q" $name
    mv "$T/stdout" "$T/of-codes"
    expect 0 '' "$E/decode" "$T/f32" $name
    cmp -s "$T/of-codes" "$T/stdout" || fail "$name: $(cat "$T/of-codes" "$T/stdout")"
done
expect 2 'no linear and no tensor "model.nothing"' "$E/decode" "$T/q" model.nothing

expect 0 '' "$E/quantize" "$TOY" $M
expect 2 'model.nothing' "$E/quantize" "$TOY" model.nothing

# inputs are floats in this scheme, so every kernel is within the rounding of sums
expect 0 '' "$E/multiply" "$T/q" $M
grep -q '^w4a16_ref: ' "$T/stdout" || fail "multiply: $(cat "$T/stdout")"
awk -F'error ' '$2 > 1e-5 || $2 == 0 { exit 1 }' "$T/stdout" || fail "multiply: $(cat "$T/stdout")"
expect 0 '' "$E/multiply" "$T/q" $M w4a16_ref
expect 2 'no kernel "w5a16"' "$E/multiply" "$T/q" $M w5a16
expect 2 'cannot multiply this weight' "$E/multiply" "$T/q" $M w8a16_ref

# there and back gives the same bytes, as the program writes them
expect 0 '' "$E/convert" "$T/q" compressed-tensors "$T/ct"
grep -q '^14 linears exact' "$T/stdout" || fail "convert: $(cat "$T/stdout")"
expect 0 '' "$E/convert" "$T/ct" gptq "$T/back"
cmp "$T/q/model.safetensors" "$T/back/model.safetensors" || fail 'there and back'
expect 2 'exists' "$E/convert" "$T/ct" gptq "$T/back"
expect 2 'no format "nothing"' "$E/convert" "$T/q" nothing "$T/x"
expect 4 'holds e4m3 weights, not int4' "$E/convert" "$T/q" fp8 "$T/x"
absent "$T/x"
expect 0 '' "$E/convert" "$T/q" compressed-tensors $M -
grep -q "^$M.weight_packed I32 256 16 sum" "$T/stdout" || fail "convert -: $(cat "$T/stdout")"
finish
