#!/bin/sh
# Run test programs and scripts, show what failed, and close with "N passed, N failed".
#
# A cmocka program counts each of its tests; a script or a replay counts as one. Scripts exit 77 to
# say "skipped", with the reason as their last line. JOBS of them run at a time (default: one a
# processor; many of them keep no more busy), the longest first. They are named as they end, with the
# processor seconds that they and the processes which they started took: under load these hold where
# a clock does not. What failed is said again above the count, with its reasons.
set -u
# Toy problems cross many parallel regions: threads that spin at each would starve their neighbours.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}" BUILD="${BUILD:-build/release}" LOG_LINES
# OpenBLAS's own threads too, which the program never has.
export OPENBLAS_NUM_THREADS="${OPENBLAS_NUM_THREADS:-1}"
LOG_LINES=${LOG_LINES:-40}
# Those that keep a processor for more than ten seconds, the longest first; the others follow as they are given.
LONGEST='quality.sh ranks.sh test_fault_commands gguf.sh formats.sh every_family.sh architectures.sh
    experts.sh resume.sh target_size.sh ranks_sweep.sh test_rescale speed.sh hybrids.sh
    same_bytes.sh tasks.sh cli.sh calibrate.sh report.sh ranks_jobs.sh test_stats_schemes test_archs
    readme.sh unknown.sh progress.sh chat.sh test_transform test_fault_verify recipe.sh families.sh
    test_smooth test_pipeline plan.sh convert.sh recipes.sh mpi.sh interrupted.sh install.sh
    library.sh'
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

# One test: a line on what became of it; "passed failed skipped seconds" and, of one that failed, the
# lines that say why go into files of its own.
one='
    dir=$1 t=$2 log=$(mktemp "$1/log.XXXXXX")
    case $t in
        *.sh) bash "$t" >"$log" 2>&1 ;;
        */replay_*) "$t" "tests/fuzz/corpus/${t##*/replay_}" >"$log" 2>&1 ;;
        *) "$t" >"$log" 2>&1 ;;
    esac
    rc=$?
    times >"$log.times" # the second line: user and system time of what this shell has waited for
    took=$(awk "NR == 2 { for (i = 1; i <= 2; i++) { split(\$i, at, \"m\"); s += 60 * at[1] + at[2] }
                          printf \"%.1f\", s }" "$log.times")
    ok=$(grep -c "^\[       OK \]" "$log")
    bad=$(sed -n "s/^ *\([0-9][0-9]*\) FAILED TEST(S)\$/\1/p" "$log" | head -n 1)
    if [ "$rc" -eq 77 ]; then
        echo "  SKIP $t: $(tail -n 1 "$log")"
        echo 0 0 1 "$took" >"$log.count"
    elif [ "$rc" -eq 0 ]; then
        [ "$ok" -gt 0 ] || ok=1
        echo "  PASS $t ($ok) $took s"
        echo "$ok" 0 0 "$took" >"$log.count"
    else
        [ "${bad:-0}" -gt 0 ] || bad=1
        { echo "  FAIL $t (exit $rc) $took s"
          grep -vE "^\[( RUN      |       OK )\]" "$log" | tail -n "$LOG_LINES" | sed "s/^/    /"
        } >"$log.said"
        cat "$log.said"
        { echo "  $t (exit $rc)"
          { grep -E "^FAIL |^\[  (FAILED|ERROR) |^\[   LINE |^ERROR: |runtime error|SUMMARY: " "$log" ||
            tail -n 3 "$log"; } | cut -c 1-400 | head -n 8 | sed "s/^/    /"
        } >"$log.why"
        echo "$ok" "$bad" 0 "$took" >"$log.count"
    fi'
for t in "$@"; do echo "$t"; done |
    awk -v longest="$(echo $LONGEST)" '
    BEGIN { n = split(longest, names, " "); for (i = 1; i <= n; i++) rank[names[i]] = i }
    { name = $0; sub(/.*\//, "", name); print (name in rank ? rank[name] : n + NR) " " $0 }' |
    sort -n | cut -d ' ' -f 2- | tr '\n' '\0' |
    xargs -0 -P "${JOBS:-$(nproc)}" -I{} sh -c "$one" sh "$dir" {}
cat "$dir"/log.*.why 2>/dev/null | awk 'NR == 1 { print "failed:" } { print }'
cat "$dir"/log.*.count | awk -v all=$# '
    { passed += $1; failed += $2; skipped += $3; took += $4 }
    END {
        failed += all - NR # a test of which nothing is known
        printf "%.0f processor seconds\n", took
        if (skipped) print skipped " skipped"
        print passed + 0 " passed, " failed + 0 " failed"
        exit failed > 0
    }'
