#!/bin/bash
# The tests of the kernels under compute-sanitizer, as many at a time as JOBS says (default: one a
# processor), each for LIMIT_S seconds at most (default 200): a line on what became of it.
# Exits 1 when a tool reported something or a test failed, 77 without a card or the tool.
#
#   sh tests/gpu/sanitize.sh [TOOL...]     memcheck, synccheck, initcheck, racecheck: all of them
#
# racecheck follows every access to shared memory and is slow: it gets the small tests alone. What it
# reports of copies of the copy engine that a single lane awaits is known (kernels/cuda/NOTES.md).
set -u
export BUILD="${BUILD:-build/release}" LIMIT_S="${LIMIT_S:-200}" CUDA_HOME="${CUDA_HOME:-/usr/local/cuda}"
export SANITIZER="${SANITIZER:-$CUDA_HOME/bin/compute-sanitizer}"

small='test_gemm ring_turns
test_gemm each_kernel_once
test_engine_ops test_tiles
test_engine_ops test_rounding
test_engine_ops test_decode
test_engine_ops test_prefill
test_engine_ops test_cache
test_engine_products
test_chain
test_block_put'
large='test_engine_memory
test_marlin
test_solver
test_search
test_quantize
test_quantize_moe'

# tool program [filter]: a line on it, and its log into $dir where it is not clean
one='
    set -- $2 "$1"
    tool=$1 program=$2 filter=
    [ $# -eq 3 ] || { filter=$3; shift; }
    dir=$3
    log=$dir/$tool.$program.$filter.log
    timeout "$LIMIT_S" "$SANITIZER" --tool "$tool" --error-exitcode 9 "$BUILD/tests/gpu/$program" \
        $filter >"$log" 2>&1
    rc=$?
    case $rc in
        0) said=clean; rm -f "$log" ;;
        124) said="not done in $LIMIT_S s, nothing reported until then"
             if grep -q "^========= .*\(Error\|Invalid\|Uninit\|hazard\)" "$log"
             then said="REPORTS, and not done in $LIMIT_S s"; echo >"$log.bad"; fi ;;
        *) said="REPORTS (exit $rc): $(grep "ERROR SUMMARY\|RACECHECK SUMMARY" "$log" | tail -n 1)"
           echo >"$log.bad" ;;
    esac
    echo "  $tool $program${filter:+ $filter}: $said"
    [ ! -e "$log.bad" ] || grep "^=========" "$log" | head -n 12'

[ -x "$SANITIZER" ] || { echo "skipped: no $SANITIZER (CUDA_HOME says where)"; exit 77; }
"$BUILD/tests/gpu/test_engine_ops" test_limits >/dev/null 2>&1
[ $? -ne 77 ] || { echo 'skipped: no GPU'; exit 77; }
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
[ $# -gt 0 ] || set -- memcheck synccheck initcheck racecheck
for tool in "$@"; do
    [ "$tool" = racecheck ] && tests=$small || tests="$small
$large"
    printf '%s\n' "$tests" | sed "s/^/$tool /"
done | tr '\n' '\0' | xargs -0 -P "${JOBS:-$(nproc)}" -I{} sh -c "$one" sh "$dir" {}
[ -z "$(find "$dir" -name '*.bad')" ]
