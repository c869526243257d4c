#!/bin/sh
# Run test programs and scripts, show what failed, and close with "N passed, N failed".
#
# A cmocka program counts each of its tests; a script or a replay counts as one. Scripts exit 77 to
# say "skipped", with the reason as their last line. JOBS of them run at a time (default: one a
# processor; many of them keep no more busy), and are named as they end.
set -u
# Toy problems cross many parallel regions: threads that spin at each would starve their neighbours.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}" BUILD="${BUILD:-build/release}" LOG_LINES
LOG_LINES=${LOG_LINES:-40}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

# One test: a line on what became of it, and "passed failed skipped" into a file of its own.
one='
    dir=$1 t=$2 log=$(mktemp "$1/log.XXXXXX")
    case $t in
        *.sh) bash "$t" >"$log" 2>&1 ;;
        */replay_*) "$t" "tests/fuzz/corpus/${t##*/replay_}" >"$log" 2>&1 ;;
        *) "$t" >"$log" 2>&1 ;;
    esac
    rc=$?
    ok=$(grep -c "^\[       OK \]" "$log")
    bad=$(sed -n "s/^ *\([0-9][0-9]*\) FAILED TEST(S)\$/\1/p" "$log" | head -n 1)
    if [ "$rc" -eq 77 ]; then
        echo "  SKIP $t: $(tail -n 1 "$log")"
        echo 0 0 1 >"$log.count"
    elif [ "$rc" -eq 0 ]; then
        [ "$ok" -gt 0 ] || ok=1
        echo "  PASS $t ($ok)"
        echo "$ok" 0 0 >"$log.count"
    else
        [ "${bad:-0}" -gt 0 ] || bad=1
        { echo "  FAIL $t (exit $rc)"
          grep -vE "^\[( RUN      |       OK )\]" "$log" | tail -n "$LOG_LINES" | sed "s/^/    /"
        } >"$log.said"
        cat "$log.said"
        echo "$ok" "$bad" 0 >"$log.count"
    fi'
for t in "$@"; do printf '%s\0' "$t"; done |
    xargs -0 -P "${JOBS:-$(nproc)}" -I{} sh -c "$one" sh "$dir" {}
cat "$dir"/log.*.count | awk -v all=$# '
    { passed += $1; failed += $2; skipped += $3 }
    END {
        failed += all - NR # a test of which nothing is known
        if (skipped) print skipped " skipped"
        print passed + 0 " passed, " failed + 0 " failed"
        exit failed > 0
    }'
