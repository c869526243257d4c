#!/bin/bash
# The tests of the kernels under compute-sanitizer, as many at a time as JOBS says (default: one a
# processor), each for LIMIT_S seconds at most (default 150): a line on what became of it, and at
# the end how many were clean, reported something, or were not done.
# Exits 1 when a tool reported something or a test failed, 77 without a device or the tool.
#
#   bash tests/gpu/sanitize.sh [TOOL...]     racecheck, initcheck, synccheck, memcheck: all of them
#   ONLY='test_router|narrow' bash ...        what matches of tool, build, program, filter and kernel
#   LIST=1 bash ...                          what it would run, a line each
#
# Programs are those of CHECKED (CONFIG=checked: smaller tests, and kernels whose order the tools can
# follow: see arrive.cuh and cuda_check.h in kernels/cuda); the matrix kernels that memcheck and
# synccheck see are those of BUILD. SANITIZER names another compute-sanitizer than CUDA_HOME has.
set -u
export BUILD="${BUILD:-build/release}" CHECKED="${CHECKED:-build/checked}" LIMIT_S="${LIMIT_S:-150}"
export CUDA_HOME="${CUDA_HOME:-/usr/local/cuda}"
export SANITIZER="${SANITIZER:-$CUDA_HOME/bin/compute-sanitizer}"

# Program, filter and, of test_gemm, the kernel: the longest first.
by_kernel=$(sed -n 's/^SW_CUDA_KERNEL("\([a-z0-9_]*\)".*/\1/p' kernels/cuda_kernels.def | while read -r k; do
    echo "test_gemm ring_turns $k"
    echo "test_gemm each_kernel_once $k"
done)
gemm='test_gemm ring_turns
test_gemm each_kernel_once'
ops='test_router
test_scores
test_made_codes
test_dense_few
test_quantizers special_values
test_quantizers every_way
test_gemm shared_rounds
test_gemm_blocks
test_gemm_gates
test_gemm_parts
test_outputs
test_expert_lists
test_routed several_blocks
test_routed exact_sums
test_routed odd_shapes
test_routed bytes
test_routed same_bytes_in_columns
test_routed int4_with_bytes
test_routed whole_units
test_routed e2m1
test_routed e2m1_with_biases
test_engine_products test_one
test_engine_products test_experts
test_engine_products test_combine
test_engine_ops test_prefill
test_engine_ops test_prefill_here
test_engine_ops test_decode
test_engine_ops test_decode_here
test_newest_key
test_engine_ops test_cache
test_engine_ops test_pick
test_engine_ops test_tiles
test_engine_ops test_rounding
test_engine_mixers
test_engine_streams
test_engine_chosen
test_block_put llama
test_block_put deepseek_v3
test_block_put gpt_oss'
models='test_quantize_moe weights_and_blends_are_the_cpus
test_quantize_moe sums_of_experts_are_the_cpus
test_quantize_moe every_sparse_architecture
test_quantize every_dense_architecture
test_engine_memory qwen3_moe
test_engine_memory gemma2
test_engine_spread
test_solver
test_solver_sums
test_solver_wide
test_streams scales_are_divided_out
test_streams original_moves_while_it_is_seen
test_streams held_experts_move_the_streams
test_streams streams_begin_with_rows_of_the_table
test_search
test_marlin'

# Does log $2 of tool $1 report something that is not inside a library's kernel? initcheck has reads of
# cuBLAS of what cuBLAS wrote by ways that it does not see.
reports()
{
    if [ "$1" = initcheck ]; then
        grep -q '^========= Host API memory access error' "$2" ||
            grep -A1 '^========= Uninitialized __' "$2" | grep -q ' at .*swk_'
    else
        grep -q "^========= .*\(Error: Race\|error detected\|Invalid\|Uninit\|exited\|entered\)" "$2"
    fi
}
export -f reports

# tool directory program [filter [kernel]]: a line on it; its log into $dir where it is not clean.
one()
{
    local tool=$1 build=$2 program=$3 filter=${4-} log rc said what=
    local options='--error-exitcode 9'

    # other people's kernels have hazards of their own
    [ "$tool" != racecheck ] || options="$options --kernel-name kns=swk_"
    [ $# -lt 5 ] || export SW_GEMM_KERNEL=$5
    log=$dir/$tool.${build##*/}.$program.$filter.${5-}.log
    timeout "$LIMIT_S" "$SANITIZER" --tool "$tool" $options "$build/tests/gpu/$program" $filter >"$log" 2>&1
    rc=$?
    ! reports "$tool" "$log" || what=REPORTS
    case $rc in
        0) said=clean
           grep -q '^\[       OK \]' "$log" || said='REPORTS: no such test' ;;
        9) said="REPORTS: $(grep "SUMMARY" "$log" | tail -n 1)"
           [ -n "$what" ] || grep -q '^\[  FAILED' "$log" || said="clean, but for kernels of libraries" ;;
        124) said="${what:+$what, and }not done in $LIMIT_S s" ;;
        *) said="REPORTS (exit $rc): $(grep "SUMMARY" "$log" | tail -n 1)" ;;
    esac
    # The tests may have failed because the tool did: its summary counts its own error.
    [ -n "$what" ] || ! grep -q "Internal Sanitizer Error" "$log" || said='the tool failed'
    echo "  $tool ${build##*/} $program${filter:+ $filter}${5:+ $5}: $said"
    echo "$said" >"$log.said"
    case $said in REPORTS*) grep "^=========\|^\[  ERROR\|^\[  FAILED" "$log" | head -n 16 ;; esac
}
export -f one

# table TOOL...: "tool directory program [filter [kernel]]" of each check.
table() {
    local tool
    for tool in "$@"; do
        case $tool in
            racecheck) printf '%s\n' "$by_kernel" "$ops" | sed "s|^|$tool $CHECKED |" ;;
            initcheck) printf '%s\n' "$models" "$gemm" "$ops" | sed "s|^|$tool $CHECKED |" ;;
            *) printf '%s\n' "$gemm" | sed "s|^|$tool $BUILD |"
               printf '%s\n' "$models" "$ops" | sed "s|^|$tool $CHECKED |" ;;
        esac
    done | grep -E "${ONLY:-.}"
}

[ $# -gt 0 ] || set -- racecheck initcheck synccheck memcheck
checks=$(table "$@") || { echo "no check of $* is called '${ONLY:-}'; LIST=1 shows them"; exit 1; }
[ -z "${LIST:-}" ] || { echo "$checks"; exit 0; }
[ -x "$SANITIZER" ] || { echo "skipped: no $SANITIZER (CUDA_HOME says where)"; exit 77; }
[ -x "$CHECKED/tests/gpu/test_engine_ops" ] || { echo "no $CHECKED: make CONFIG=checked gpu-programs"; exit 1; }
"$CHECKED/tests/gpu/test_engine_ops" test_limits >/dev/null 2>&1
[ $? -ne 77 ] || { echo 'skipped: no GPU'; exit 77; }
dir=$(mktemp -d) || exit 1
export dir
trap 'rm -rf "$dir"' EXIT
"$SANITIZER" --version | tail -n 1
echo "$checks" | tr '\n' '\0' | xargs -0 -P "${JOBS:-$(nproc)}" -I{} bash -c 'one $0' {}
said() { cat "$dir"/*.said | grep -c "$1"; }
echo "$(said '^clean') clean, $(said '^REPORTS') reported something, $(said '^not done') not done in $LIMIT_S s," \
    "in $(said '^the tool') the tool failed"
[ "$(said '^REPORTS')" -eq 0 ]
