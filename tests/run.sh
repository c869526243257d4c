#!/bin/sh
# Run test programs and scripts, show what failed, and close with "N passed, N failed".
#
# A cmocka program counts each of its tests; a script or a replay counts as one. Scripts exit 77 to
# say "skipped", with the reason as their last line.
set -u
# Toy problems cross many parallel regions: threads that spin at each would starve their neighbours.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}"
passed=0 failed=0 skipped=0
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
for t in "$@"; do
    case $t in
        *.sh) BUILD=${BUILD:-build/release} bash "$t" >"$log" 2>&1 ;;
        */replay_*) "$t" "tests/fuzz/corpus/${t##*/replay_}" >"$log" 2>&1 ;;
        *) "$t" >"$log" 2>&1 ;;
    esac
    rc=$?
    ok=$(grep -c '^\[       OK \]' "$log")
    bad=$(sed -n 's/^ *\([0-9][0-9]*\) FAILED TEST(S)$/\1/p' "$log" | head -n 1)
    if [ "$rc" -eq 77 ]; then
        skipped=$((skipped + 1))
        echo "  SKIP $t: $(tail -n 1 "$log")"
    elif [ "$rc" -eq 0 ]; then
        [ "$ok" -gt 0 ] || ok=1
        passed=$((passed + ok))
        echo "  PASS $t ($ok)"
    else
        [ "${bad:-0}" -gt 0 ] || bad=1
        passed=$((passed + ok))
        failed=$((failed + bad))
        echo "  FAIL $t (exit $rc)"
        grep -vE '^\[( RUN      |       OK )\]' "$log" | tail -n "${LOG_LINES:-40}" | sed 's/^/    /'
    fi
done
[ "$skipped" -eq 0 ] || echo "$skipped skipped"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
