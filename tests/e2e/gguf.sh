#!/bin/bash
# GGUF by the command line: there and back with the same tokens said, refusals, and
# conversions that are stopped half-way.
. "$(dirname "$0")/lib.bash"
said() { "$SWAGE" generate "$1" -q --ids -p 'The function' -n 24 2>&1; }
weights() { find "$1" -name '*.safetensors' -print0 | sort -z | xargs -0 cat | sha256sum; }

# floats: the same bytes come back; the file itself is a model
expect 0 '' "$SWAGE" convert "$TINY" --to gguf --type BF16 -o "$T/b.gguf" -q
expect 0 '' "$SWAGE" convert "$T/b.gguf" --to bf16 -o "$T/b" -q
[ "$(weights "$T/b")" = "$(weights "$TINY")" ] || fail 'bf16 -> gguf -> bf16'
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
    for wait_s in 0.02 0.1 0.3; do
        "$SWAGE" convert "$TINY" --to gguf --type Q4_K -o "$T/s.gguf" -q >/dev/null 2>&1 &
        pid=$!
        sleep $wait_s
        kill -$signal $pid 2>/dev/null
        wait $pid && rm -f "$T/s.gguf" # it had finished
        absent "$T/s.gguf"
    done
done
limited() { (ulimit -f 200 && exec "$@"); }
expect 5 's.gguf*' limited "$SWAGE" convert "$TINY" --to gguf --type Q4_K -o "$T/s.gguf" -q
absent "$T/s.gguf"
finish
