#!/bin/bash
# What there is to run on a card, in a checkout or, as run.sh, in the archive of `make gpu-bundle`:
#
#   on_card.sh tests [-j N] [-t SECONDS] [PROGRAM...]     the GPU tests, side by side
#   on_card.sh sanitize [TOOL... | TOOL REGEX]            compute-sanitizer: see sanitize.sh; REGEX picks lines of it
#   on_card.sh bench NAME [ARGUMENT...]                   bench_NAME: attention, experts, gemm, ...
#   on_card.sh pending [-l] [-j N] [-t SECONDS]           what pending.txt lists; -l: show the list only
#   on_card.sh test PROGRAM [FILTER] | script PATH [ARGUMENT...] | swage ARGUMENT...      one of them
#
# A line for each program: its exit code, how many tests passed, seconds, and of what failed the first messages.
# -j: as many at a time (default: one a processor, 16 at most: they share the card's memory). -t: seconds for each
# (default 300). Logs go to LOGS (default build/on_card). Exit code: 1 when something failed or did not
# end, 77 when all was skipped.
set -u
here=$(dirname "$(readlink -f "$0")")
cd "$here/../.." || exit 2
export BUILD=${BUILD:-build/release} LOGS=${LOGS:-build/on_card}
PENDING=${PENDING:-$here/pending.txt}
# Those that take longest begin first.
LONGEST='test_engine_recipes test_gemm test_quantize_moe test_engine_mixers test_engine_schemes test_quantize '
LONGEST+='test_routed test_engine_spread test_engine_ops test_solver_wide'

usage() {
    sed -n '4,8s/^#   //p' "$here/on_card.sh" >&2
    exit 2
}

# --- commands that pending.txt may name; each is run alone and its exit code counts

run_test() { "$BUILD/tests/gpu/$1" "${@:2}"; }
run_script() { bash "$@"; }
run_bench() { "$BUILD/tests/gpu/bench_$1" "${@:2}"; }
run_swage() {
    local said rc
    said=$("$BUILD/swage" "$@" 2>&1)
    rc=$?
    printf '%s\n' "$said"
    [ $rc -ne 7 ] || [[ $said != *'no NVIDIA driver is loaded'* ]] || return 77
    return $rc
}
# A check that was not done is no clean one. Its limit leaves time to say so.
run_sanitize() {
    local regex=${2-} log rc
    log=$(mktemp "$LOGS/sanitize.XXXXXX")
    [ -z "${LIMIT_S-}" ] || export LIMIT_S=$((LIMIT_S > 20 ? LIMIT_S - 10 : LIMIT_S))
    if [[ $regex =~ ^(racecheck|initcheck|synccheck|memcheck)?$ ]]; then
        bash tests/gpu/sanitize.sh "$@"
    else
        ONLY=$regex bash tests/gpu/sanitize.sh "$1"
    fi 2>&1 | tee "$log"
    rc=${PIPESTATUS[0]}
    [ "$rc" -ne 0 ] || grep -q ', 0 not done in .* in 0 the tool failed' "$log" || rc=124
    rm -f "$log"
    return "$rc"
}
export -f run_test run_script run_bench run_swage run_sanitize

# --- one line on what became of a command

# failures LOG: the first messages of what failed, or else where it was when it ended.
failures() {
    { grep -aE '^\[  (FAILED|ERROR) |^\[   LINE |^FAIL |REPORTS|^ERROR|error:' "$1" | grep -v '^\[  FAILED  \] [0-9]* test' ||
        { grep -a '^\[ RUN ' "$1" || tail -n 3 "$1"; } | tail -n 3
    } | head -n 6 | cut -c 1-200 | sed 's/^/      /'
}

# log_of COMMAND: where its output goes.
log_of() { echo "$LOGS/$(tr -cs 'A-Za-z0-9_=.\n' - <<<"$1" | cut -c 1-100).log"; }

# one COMMAND, with a time limit: its line, and its log.
one() {
    local log rc start=$SECONDS said
    log=$(log_of "$1")
    timeout -k 10 "$LIMIT_S" bash -c "$(sed -E 's/^(([A-Z_]+=[^ ]* )*)([a-z]+)/\1 run_\3/' <<<"$1")" >"$log" 2>&1
    rc=$?
    case $rc in
        0) said=passed ;;
        77) said="skipped: $(tail -n 1 "$log" | sed 's/^skipped: //')" ;;
        124) said="NOT DONE in $LIMIT_S s" ;;
        *) said="FAILED, exit $rc" ;;
    esac
    { echo "  $1: $said, $(grep -ac '^\[       OK \]' "$log") ok, $((SECONDS - start)) s"
      grep -aE '^\[  SKIPPED \] [^0-9]|^left out: ' "$log" | sort -u | sed 's/^/      /'
      [ $rc -eq 0 ] || [ $rc -eq 77 ] || failures "$log"
    } >"$log.said"
    cat "$log.said"
}
export -f log_of one failures

# Commands from stdin, so many at a time. Threads that spin would starve their neighbours, and most programs wait for
# the card.
# shellcheck disable=SC2016 # of the shell that is started
all() {
    tr '\n' '\0' | OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive} OMP_NUM_THREADS=${OMP_NUM_THREADS:-3} \
        xargs -0 -P "$1" -I{} bash -c 'one "$1"' sh {}
}

count() {
    cat "$LOGS"/*.said 2>/dev/null | awk '
        /^  [^ ]/ { n++ }
        /: passed, [0-9]+ ok, / { passed++ }
        /: skipped: / { skipped++ }
        /: NOT DONE in / { undone++ }
        END {
            failed = n - passed - skipped - undone
            printf "%d passed, %d failed, %d not done, %d skipped\n", passed, failed, undone, skipped
            exit !n || failed + undone ? 1 : skipped == n ? 77 : 0
        }'
}

# --- options and what may be asked for

list_only=false n_jobs=$(nproc)
[ "$n_jobs" -le 16 ] || n_jobs=16
options() {
    export LIMIT_S=300
    while getopts 'lj:t:' option; do
        case $option in
            l) list_only=true ;;
            j) n_jobs=$OPTARG ;;
            t) LIMIT_S=$OPTARG ;;
            *) usage ;;
        esac
    done
    [[ $n_jobs =~ ^[1-9][0-9]*$ && $LIMIT_S =~ ^[1-9][0-9]*$ ]] || usage
}

begin() {
    rm -f "$LOGS"/*.said
    [ ! -f COMMIT ] || echo "commit $(cat COMMIT), programs of $(cat "$BUILD/COMMIT" 2>/dev/null)"
    nvidia-smi --query-gpu=name,memory.total --format=csv,noheader 2>/dev/null
}

do_tests() {
    options "$@"
    shift $((OPTIND - 1))
    begin
    if [ $# -gt 0 ]; then printf '%s\n' "$@"; else (cd "$BUILD/tests/gpu" && find . -name 'test_*' -type f -perm -u+x); fi |
        sed 's|.*/||' | sort | awk -v longest="$LONGEST" '
        BEGIN { n = split(longest, names, " "); for (i = 1; i <= n; i++) rank[names[i]] = i }
        { print ($1 in rank ? rank[$1] : n + NR) " test " $1 }' | sort -n | cut -d ' ' -f 2- | all "$n_jobs"
    count
}

# pending ALONE: the commands of the list that are to run by themselves (1) or not (0).
pending() {
    grep -vE '^#|^ *$' "$PENDING" | sed -E 's/ *\| .*//' | awk -v want="$1" '{ is = sub(/^alone /, "") } is == want'
}

do_pending() {
    options "$@"
    if $list_only; then
        grep -vE '^#|^ *$' "$PENDING"
        exit 0
    fi
    grep -qvE '^#|^ *$' "$PENDING" || { echo 'nothing is pending'; exit 0; }
    begin
    pending 0 | all "$n_jobs"
    pending 1 | while IFS= read -r command; do
        one "$command"
        sed 's/^/    /' "$(log_of "$command")"
    done
    count
}

mkdir -p "$LOGS" || exit 2
case ${1-} in
    tests | pending) "do_$1" "${@:2}" ;;
    test | script | bench | swage | sanitize)
        [ $# -gt 1 ] || [ "$1" = sanitize ] || usage
        "run_$1" "${@:2}" ;;
    *) usage ;;
esac
