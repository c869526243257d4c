#!/bin/bash
# Whole runs on models of random weights, timed: whole_runs.sh [--only JOB,...] [--layers N] [--toy]
#   [--device D] [--keep DIR]
#
# The jobs are the lines of tests/bench/whole-runs.txt. Each makes its model, which the next one takes if it wants
# the same, runs the command with --profile, prints one CSV line on stdout and removes what it made.
# --layers N: so many of each model's layers instead of the table's. --toy: toys of the same families and 8
# windows of 64 tokens instead of 512 of 2048, on the processor. --device: cuda:0 by default. --keep DIR:
# profiles and reports go there. TMPDIR must have room for the largest model and its output: 30 GB.
#
# seconds: of the run. layer_seconds: of a layer, from its beginning to the next one's, the median.
# ends_seconds: all that is in no layer. scaled_seconds, where fewer layers ran than the model has, are foreseen:
#   whole_layers x layer_seconds + ends_seconds, of which what writes and reads back grows with the layers.
# tokens_per_second: of a text that is verified, both models, without the time of the judge of tensors.
# host_gb: most memory of the process. card_gb: most that was used on the card beyond what was used before.
#
# Exit code 1 when a job failed: stderr says which and why, and the others are run all the same.
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 2
BUILD=${BUILD:-build/release}
TABLE=${TABLE:-tests/bench/whole-runs.txt}
SWAGE=${SWAGE:-$PWD/$BUILD/swage}
only='' n_layers='' toy=false device='' keep=''
die() {
    echo "whole_runs.sh: $*" >&2
    exit 2
}

while [ $# -gt 0 ]; do
    case $1 in
        --toy) toy=true ;;
        --only) only=${2-} && shift ;;
        --layers) n_layers=${2-} && shift ;;
        --device) device=${2-} && shift ;;
        --keep) keep=${2-} && shift ;;
        *) die "what is $1? There are --only JOB,... --layers N --toy --device D --keep DIR" ;;
    esac
    shift || die 'the last option lacks its value'
done
[[ $n_layers =~ ^([1-9][0-9]*)?$ ]] || die "--layers takes a number, not '$n_layers'"
[ ! -f Makefile ] || make -s "$BUILD/tests/tools/synthetic_model" "$BUILD/swage" >/dev/null || die 'the build failed'
SIZES=(--samples 512 --seq-len 2048)
WINDOWS=(--window 2048 --max-windows 128)
if $toy; then
    SIZES=(--samples 8 --seq-len 64)
    WINDOWS=(--window 64 --max-windows 4)
    device=${device:-cpu}
fi
device=${device:-cuda:0}
T=$(mktemp -d "${TMPDIR:-/tmp}/swage-whole.XXXXXX") || exit 2
trap 'rm -rf "$T"' EXIT
[ -z "$keep" ] || mkdir -p "$keep" || exit 2

# Memory that is used on the cards of --device, in MiB; nothing where there is none.
card_mib() {
    local cards=${device#cuda} visible=() n names=''
    [[ $device == cuda* ]] || return 0
    cards=${cards#:}
    IFS=, read -ra visible <<<"${CUDA_VISIBLE_DEVICES-}" # numbers count these, if they are given
    for n in ${cards//,/ }; do names+=${names:+,}${visible[n]:-$n}; done
    nvidia-smi -i "${names:-${visible[0]:-0}}" --query-gpu=memory.used --format=csv,noheader,nounits 2>/dev/null |
        awk '/^[0-9]+/ { mib += $1 } END { if (mib != "") print mib }'
}

# COMMAND: its exit code; host_kib and used_mib are what it took at most, of the host and of the card.
watched() {
    local before now pid
    host_kib=0 used_mib=''
    before=$(card_mib)
    "$@" >"$T/stdout" 2>"$T/stderr" &
    pid=$!
    while kill -0 $pid 2>/dev/null; do
        now=$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$pid/status" 2>/dev/null)
        host_kib=${now:-$host_kib}
        now=$(card_mib)
        [ -z "$now" ] || [ $((now - before)) -le "${used_mib:-0}" ] || used_mib=$((now - before))
        sleep 0.05
    done
    wait $pid
}

# KEY FILE: the first number under this key; FILE has the JSON in one line.
number() { grep -o "\"$1\":[0-9.e+-]*" "$2" | head -n 1 | cut -d: -f2; }

# "STEP SECONDS", where a layer is "block": as the report of quantize has them.
reported_steps() {
    grep -o '{"step":"[^}]*}' "$T/json" | awk -F '[:,}]' '
        { name = $2; gsub(/[^a-z]/, "", name); printf "%s %.6f\n", name, $6 - $4 }'
}

# The same of other commands, out of the profile: a layer goes from its first observation to the one that follows
# the advance behind it. Where not every layer has an advance of its own, all are like their mean.
profiled_steps() {
    grep -oE '"name":"(observe|advance)","ts":[0-9.]*,"dur":[0-9.]*' "$T/profile.json" | awk -F '[:,]' -v layers="$layers" '
        $2 == "\"observe\"" && (!n || is_over) { at[++n] = $4; is_over = 0 }
        $2 == "\"advance\"" { is_over = 1; n_over++ }
        { end = $4 + $6 }
        END {
            if (n <= layers) at[n + 1] = end
            for (i = 1; i <= layers && n; i++)
                printf "block %.6f\n", 1e-6 * (n_over == layers ? at[i + 1] - at[i] : (end - at[1]) / layers)
        }'
}

# One CSV line about the job that has run.
line() {
    local judged
    reported_steps >"$T/steps" || profiled_steps >"$T/steps"
    judged=$(awk '/"name":"judge/ { sub(/.*"dur":/, ""); s += $0 * 1e-6 } END { print s + 0 }' "$T/profile.json")
    sort -k2,2g "$T/steps" | awk -v OFS=, -v head="$DEVICE,$COMMIT,$job" -v layers="$layers" -v whole="$whole" \
        -v seconds="$(number seconds "$T/json")" -v windows="$(number windows "$T/json")" \
        -v window="$(number window "$T/json")" -v judged="$judged" -v host_kib="$host_kib" \
        -v exact="$(number peak_bytes "$T/json")" -v used_mib="$used_mib" '
        function figure(x, digits) { return x == "" ? "" : sprintf("%.*f", digits, x) }
        $1 == "block" { took[++n] = $2; blocks += $2 } # the shortest first
        $1 == "write" || $1 == "readback" { growing += $2 }
        END {
            if (n) {
                layer = (took[int((n + 1) / 2)] + took[int((n + 2) / 2)]) / 2
                ends = seconds - blocks
                if (layers < whole) scaled = whole * layer + ends - growing + growing * whole / layers
            }
            if (windows) rate = windows * window / (seconds - (judged < seconds ? judged : 0))
            print head, layers, figure(seconds, 2), figure(layer, 3), figure(ends, 2), whole, figure(scaled, 1),
                figure(rate, 1), figure((exact ? exact / 1024 : host_kib) * 1024e-9, 2),
                figure(used_mib == "" ? "" : used_mib * 1048576e-9, 2)
        }'
}

# SHAPE LAYERS: $T/model has this shape, and no checkpoint is left of another.
model() {
    [ "$1 $2" != "${have-}" ] || return 0
    rm -rf "$T/model" "$T/rtn"
    have="$1 $2"
    "$BUILD/tests/tools/synthetic_model" "$T/model" "$1" "layers=$2" tokens=1050000 >"$T/made" 2>&1 || {
        have=''
        return 1
    }
    echo "# $1 of $2 layers: $(cat "$T/made")" >&2
}

# The model's own checkpoint by rounding, where the command wants it.
rounded() {
    [[ $1 != *'{rtn}'* ]] || [ -d "$T/rtn" ] ||
        "$SWAGE" quantize "$T/model" -o "$T/rtn" --scheme W4A16 --method rtn --no-card -q >"$T/made" 2>&1
}

# Runs the job's command; its report is in $T/json then, on one line.
run() {
    local words=() word
    for word in $1; do
        case $word in
            '{model}') words+=("$T/model") ;;
            '{rtn}') words+=("$T/rtn") ;;
            '{out}') words+=(-o "$T/out" --no-card) ;;
            '{stats}') words+=(-o "$T/out") ;;
            '{calib}') words+=(--calib "$T/model/tokens.u16" "${SIZES[@]}") ;;
            '{text}') words+=(--text "$T/model/tokens.u16" "${WINDOWS[@]}") ;;
            '{device}') words+=(--device "$device") ;;
            *) words+=("$word") ;;
        esac
    done
    rm -f "$T/profile.json"
    watched "$SWAGE" "${words[@]}" --profile "$T/profile.json" --json -q || return
    tr -d '\n\t ' <"$T/stdout" >"$T/json"
}

# Fails with the reason in $why.
do_job() {
    model "$shape" "$layers" || { why=$(tail -n 1 "$T/made"); return 1; }
    rounded "$command" || { why="rtn: $(tail -n 1 "$T/made")"; return 1; }
    run "$command" || { why="exit $?: $(tail -n 1 "$T/stderr")"; return 1; }
    line
    [ -z "$keep" ] || cp "$T/profile.json" "$keep/$job.profile.json" && cp "$T/stdout" "$keep/$job.json"
}

DEVICE=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1 | grep . ||
    sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
DEVICE="$(tr -d , <<<"$DEVICE") and $(nproc) cores"
COMMIT=$(cat COMMIT 2>/dev/null || git describe --always --dirty)
failed=0 n_jobs=0
echo device,commit,job,layers,seconds,layer_seconds,ends_seconds,whole_layers,scaled_seconds,tokens_per_second,host_gb,card_gb
while IFS='|' read -r job shapes counts command <&3; do
    job=${job// /}
    [[ $job != '#'* && -n $job ]] || continue
    [ -z "$only" ] || [[ ,$only, == *,$job,* ]] || continue
    read -r shape toy_shape <<<"$shapes"
    read -r layers whole <<<"$counts"
    ! $toy || shape=$toy_shape
    ! $toy || layers=$((layers < 4 ? layers : 4))
    layers=${n_layers:-$layers}
    n_jobs=$((n_jobs + 1))
    do_job || {
        echo "$job failed: $why" >&2
        failed=$((failed + 1))
    }
    rm -rf "$T/out" "$T"/out.*
done 3<"$TABLE"
[ $n_jobs -gt 0 ] || die "no job $only in $TABLE: $(sed -n 's/^\([^#|]*\) *|.*/\1/p' "$TABLE" | tr -s '\n ' ' ')"
[ $failed -eq 0 ]
