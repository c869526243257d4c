#!/usr/bin/env bash
# `swage doctor`: what it finds on this machine, and that what is broken on purpose is a fault with a
# remedy and exit code 1.
. "$(dirname "$0")/lib.bash"
unset SWAGE_CUDA_LIBRARY
export TMPDIR=$T

# line NAME: its first line; health NAME: its first word
line() { grep -E -m 1 "^(ok|warning|fault) +$1 " "$T/stdout"; }
health() { line "$1" | cut -d ' ' -f 1; }

expect 0 '' "$SWAGE" doctor
for name in processor kernels threads blas libcjson libcrypto libpcre2-8 libutf8proc libzstd driver cuda memory \
    directory temporary hub; do
    [ -n "$(line $name)" ] || fail "nothing about $name"
done
line processor | grep -qF "$(sed -n 's/^model name[\t ]*: //p' /proc/cpuinfo | head -n 1)" || fail 'which processor?'
line threads | grep -q " $(nproc), of " || fail "threads: $(line threads), nproc says $(nproc)"
line blas | grep -q 'OpenBLAS [0-9]' || fail "blas: $(line blas)"
for lib in libcjson libcrypto libzstd; do
    file=$(ldd "$SWAGE" | sed -n "s|.*$lib\.so[^ ]* => \([^ ]*\) .*|\1|p")
    line $lib | grep -qF "$file" || fail "$lib: $(line $lib), ldd says $file"
done
total=$(awk '/^MemTotal/ { printf "%.1f GB", $2 * 1024 / 1e9 }' /proc/meminfo)
line memory | grep -qF " $total, " || fail "memory: $(line memory), want $total"
free=$(df -B1 --output=avail "$T" | tail -n 1 | awk '{ printf "%.0f", $1 / 1e9 }')
said=$(line temporary | grep -oE '[0-9.]+ [kMGT]?B free' | awk '{ printf "%.0f", $1 * ($2 == "TB" ? 1000 : $2 == "MB" ? 0.001 : 1) }')
[ $((said - free)) -ge -2 ] && [ $((said - free)) -le 2 ] || fail "free: $said GB, df says $free"
# kernels that are named are those that `list kernels` knows, for features that the processor has
for k in $(line kernels | sed 's/^[a-z]* *kernels *//'); do
    "$SWAGE" list kernels | grep -q "^$k " || fail "no such kernel: $k"
done

# fewer processors than there are is a warning, and no fault
if [ "$(nproc)" -gt 1 ]; then
    first=$(sed -n 's/^Cpus_allowed_list:[^0-9]*\([0-9]*\).*/\1/p' /proc/self/status) # a container may not have 0
    expect 0 '' taskset -c "$first" "$SWAGE" doctor
    [ "$(health threads)" = warning ] && line threads | grep -q ' 1, of ' || fail "taskset: $(line threads)"
fi

# what is broken on purpose
expect 1 'swage doctor: 1 fault; the first: /nonexistent/tmp' env TMPDIR=/nonexistent/tmp "$SWAGE" doctor
[ "$(health temporary)" = fault ] || fail "no fault: $(line temporary)"
grep -A1 '^fault  *temporary' "$T/stdout" | grep -q -- '-> .*TMPDIR' || fail 'no remedy'
expect 1 '1 fault; the first: /nonexistent.so' env SWAGE_CUDA_LIBRARY=/nonexistent.so "$SWAGE" doctor
grep -A1 '^fault  *cuda' "$T/stdout" | grep -q -- '-> SWAGE_CUDA_LIBRARY is /nonexistent.so' || fail 'no remedy for the library'
expect 1 '2 faults; the first' env SWAGE_CUDA_LIBRARY=/nonexistent.so TMPDIR=/nonexistent "$SWAGE" doctor -q
[ "$(grep -cE '^(ok|warning|fault)' "$T/stdout")" -eq "$(grep -cE '^(warning|fault)' "$T/stdout")" ] || fail '-q shows what is well'

# the cache of the Hub: counted where it is, no fault where it is not
mkdir -p "$T/hub/models--a--b" "$T/hub/models--c--d" "$T/hub/datasets--e--f"
expect 0 '' env HF_HUB_CACHE="$T/hub" "$SWAGE" doctor
line hub | grep -q "$T/hub/*: .* free, models: 2\$" || fail "hub: $(line hub)"
expect 0 '' env HF_HUB_CACHE="$T/none" "$SWAGE" doctor
line hub | grep -q 'no cache yet' || fail "hub: $(line hub)"

# JSON says the same, also with a fault
expect 1 '1 fault' env TMPDIR=/nonexistent "$SWAGE" doctor --json
grep -q '"swage.doctor/1"' "$T/stdout" && grep -Eq '"faults":[ 	]*1' "$T/stdout" || fail "JSON: $(head -c 300 "$T/stdout")"
[ "$(head -c 1 "$T/stdout")" = '{' ] && [ "$(grep -c '"swage":' "$T/stdout")" -eq 1 ] || fail 'not one object'

# colours where they are asked for, and nowhere else
expect 0 '' "$SWAGE" doctor --color always
grep -q $'\x1b\[32mok' "$T/stdout" || fail 'no colours'
expect 0 '' env CLICOLOR_FORCE=1 "$SWAGE" doctor
grep -q $'\x1b\[' "$T/stdout" || fail 'CLICOLOR_FORCE'
expect 0 '' env CLICOLOR_FORCE=1 NO_COLOR=1 "$SWAGE" doctor
! grep -q $'\x1b' "$T/stdout" || fail 'NO_COLOR'
expect 0 '' "$SWAGE" doctor
! grep -q $'\x1b' "$T/stdout" || fail 'colours in a file'
finish
