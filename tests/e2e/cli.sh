#!/bin/bash
# The command line itself: help, versions, JSON, where words go, and what the bundled files claim.
. "$(dirname "$0")/lib.bash"
commands=$("$SWAGE" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p')
[ "$(echo "$commands" | wc -l)" -ge 6 ] || fail "commands: $commands"

# help: to stdout and 0 when asked for, to stderr and 2 on misuse; each command has examples
expect 0 '' "$SWAGE" --help
expect 0 '' "$SWAGE" --version
grep -Eq '^swage [0-9]+\.[0-9]+\.[0-9]+ \(' "$T/stdout" || fail 'version'
for c in $commands; do
    expect 0 '' "$SWAGE" "$c" --help
    for part in "usage: swage $c" options: examples: --json --quiet; do
        grep -q -e "$part" "$T/stdout" || fail "$c --help lacks $part"
    done
    twice=$(grep -E '^ {2,6}(-[a-z], )?--' "$T/stdout" | grep -oE '(^  -[a-z], |  )--[a-z-]+' | sed 's/.*--//' | sort | uniq -d)
    [ -z "$twice" ] || fail "$c --help lists twice: $twice"
    [ "$(sed '/^options:/,$d' "$T/stdout" | grep -c '^  swage')" -ge 2 ] || fail "$c --help begins without examples"
    "$SWAGE" help "$c" | cmp -s - "$T/stdout" || fail "help $c is not $c --help"
    [ "$(awk 'length > 100' "$T/stdout")" = '' ] || fail "$c --help is wider than 100 columns"
    expect 2 "swage $c: unknown option --no-such-thing" "$SWAGE" "$c" --no-such-thing
done
"$SWAGE" >"$T/stdout" 2>"$T/stderr"
[ $? -eq 2 ] && [ ! -s "$T/stdout" ] && [ -s "$T/stderr" ] || fail 'no command'
expect 2 'too few arguments; usage: swage inspect PATH' "$SWAGE" inspect
expect 2 "'b' is one argument too many" "$SWAGE" inspect a b

# the examples of the help run, as printed, on the bundled model (those with MODEL are patterns);
# those for a device may say that there is none
mkdir "$T/run"
ln -s "$PWD/calib_data" "$T/run/calib_data"
mkdir -p "$T/run/build/demo"
ln -s "$SWAGE" "$T/run/swage"
"$SWAGE" quantize calib_data/tiny-llama -o "$T/run/build/demo/gptq" --method rtn --quiet >/dev/null
n_run=0
for c in $commands; do
    while IFS= read -r line; do
        case $line in *MODEL* | *OUT*) continue ;; esac
        case $line in *--samples*) line="$line --samples 4 --seq-len 128" ;; *bench*) line="$line --shape 512x256 --rounds 1 --seconds 0" ;; esac
        case $line in *--text*) line="$line --window 128 --max-windows 1" ;; esac
        (cd "$T/run" && PATH=.:$PATH bash -c "$line" >"$T/stdout" 2>"$T/stderr")
        rc=$?
        case $line,$rc in
        *,0) ;;
        *cuda*,7) grep -q -- '--device cpu' "$T/stderr" || fail "example: $line: no remedy" ;; # no CUDA device
        *) fail "example: $line: $(tail -n 1 "$T/stderr")" ;;
        esac
        n_run=$((n_run + 1))
    done < <("$SWAGE" "$c" --help | sed -n '/^examples:/,$p' | sed -n 's/^  swage/swage/p')
done
[ "$n_run" -ge 8 ] || fail "only $n_run examples were run"

# --json: one object, also when the run fails
json() { # KEY: stdout is one object that names its result
    [ "$(head -c 1 "$T/stdout")" = '{' ] && [ "$(tail -n 1 "$T/stdout")" = '}' ] || fail "not one object"
    grep -q "$1" "$T/stdout" || fail "no $1"
}
expect 0 '' "$SWAGE" list --json
json '"swage.list/1"'
expect 0 '' "$SWAGE" inspect "$TINY" --json --tensors
json '"swage.inspect/1"'
expect 0 '' "$SWAGE" generate "$TINY" --json --quiet -n 3
json '"swage.generate/1"'
expect 0 '' "$SWAGE" quantize "$TOY" --json --quiet --method rtn -o "$T/out"
json '"swage.quantize/1"'
expect 2 'exists' "$SWAGE" quantize "$TOY" --json --quiet --method rtn -o "$T/out"
json '"swage.error/1"'
expect 0 '' "$SWAGE" verify "$T/out" --json --quiet
json '"report_version"'

# what generate draws can be asked for again, and the greedy text is the known one
expect 0 '' "$SWAGE" generate "$TINY" -p 'The function returns' -n 24 --quiet
[ "$(cat "$T/stdout")" = ' the number of times the function is called. The function is called with the number of times the function is called. The' ] ||
    fail "greedy: $(cat "$T/stdout")"
expect 0 '' "$SWAGE" generate "$TINY" -p 'The function returns' -n 3 --ids --quiet
[ "$(cat "$T/stdout")" = '263 731 291' ] || fail "ids: $(cat "$T/stdout")"

# the token counts that the manifest claims are what the tokenizer counts
while read -r _ bytes tokens _ path; do
    case $path in
        *.u16) [ "$((bytes / 2))" -eq "$tokens" ] || fail "$path: $tokens tokens in $bytes bytes" ;;
        *.txt) expect 2 "calibration text: $tokens tokens," "$SWAGE" quantize "$TINY" -o "$T/none" \
            --calib "calib_data/$path" --samples 1000000 --quiet ;;
    esac
done <calib_data/MANIFEST
# the device's kernels are listed whatever the build, and what is missing is said
expect 0 '' "$SWAGE" list kernels
cp "$T/stdout" "$T/kernels"
for name in $(sed -n 's/^SW_CUDA_KERNEL("\([a-z0-9_]*\)".*/\1/p' kernels/cuda_kernels.def); do
    grep -q "^$name  *[A-Z0-9, ]*CUDA [0-9]*\.[0-9]" "$T/kernels" || fail "kernel $name is not listed"
done
n_rows=$(grep -c '^SW_CUDA_KERNEL(' kernels/cuda_kernels.def)
[ "$(grep -c ' CUDA ' "$T/kernels")" -eq "$n_rows" ] || fail 'not every kernel of the device is listed once'
if "$SWAGE" --version | grep -q 'CPU only'; then
    [ "$(grep -c ' CUDA .*(not in this build)' "$T/kernels")" -eq "$n_rows" ] || fail 'not said to be missing'
fi
finish
