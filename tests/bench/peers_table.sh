#!/bin/bash
# Our kernels beside others', of one run on one device: matrix products, or layers of routed experts.
#
#   peers_table.sh FORMAT... [K N]... -- M...
#   BENCH=experts peers_table.sh [FORMAT:]E,HIDDEN,WIDE,TOP_K... -- M...
#
# Arguments are those of tests/gpu/bench_gemm, which checks and times ours and cuBLASLt, or of
# bench_experts. PEERS has other programs, one a line: NAME=COMMAND. Each is run by bash with what is
# timed in FORMATS, SHAPES and TOKENS ("w4a16,fp8"; "8192x8192,4096x28672" as KxN, or
# "128x2048x768x8" as ExHIDDENxWIDExTOP_K; "1,16") and prints
#   FORMAT,SHAPE,M,us     or     FORMAT,SHAPE,M,us,OTHER
# for what it has, under another name where it times several kernels; times with the quantization of
# X where the format has one. Lines that begin with '#' are passed on. Of several lines for one cell the smallest counts.
# What they multiply must be drawn as ours: E4M3 below 2 of both signs, integers as sums of two draws, inputs as sums of
# three. A device at its power limit is faster the less its sums change, and with one NaN a channel they do not.
#
# The table has a line for each cell: our time, the peers', and the ratio of ours to the best of
# them, with a star where we are slower; the worst ratio comes last. cuBLASLt in FP8 gets codes of X,
# so its ratio is that of our time with codes given. LIMIT=R: exit code 1 when the worst ratio is
# above R. CSV=FILE: the same as lines format,K,N,M,name,us (of experts:
# format,experts,hidden,wide,top_k,M,name,us). BENCH: gemm, experts, or a command that prints their
# tables.
# Exit code 2: a program failed, or printed what is not understood.
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 2
bench=${BENCH:-gemm}
case $bench in gemm | experts) bench=${BUILD:-build/release}/tests/gpu/bench_$bench ;; esac
T=$(mktemp -d "${TMPDIR:-/tmp}/swage-peers.XXXXXX") || exit 2
trap 'rm -rf "$T"' EXIT
die() {
    echo "peers_table.sh: $*" >&2
    exit 2
}

$bench "$@" >"$T/bench" 2>"$T/stderr" || die "$bench: $(tail -n 1 "$T/bench" "$T/stderr" | tail -n 1)"
# name,format,shape,M,us,us to be compared with
awk -F, '
/^#/ || NF < 2 { print > "/dev/stderr"; next }
$1 == "format" || $1 == "scheme" { for (i = 1; i <= NF; i++) at[$i] = i; next }
!("us" in at) { exit 1 }
{
    cell = $1 "," $2 "x" $3 "," $4
    if ("experts" in at) cell = $1 "," $2 "x" $3 "x" $4 "x" $5 "," $at["tokens"]
    print "swage," cell "," $at["us"]
    for (i = 1; i <= split("cublas_bf16 cublas_fp8", peer, " "); i++) {
        if (!(peer[i] "_us" in at) || $at[peer[i] "_us"] + 0 <= 0) continue
        own = peer[i] == "cublas_fp8" ? $at["us_codes_given"] : $at["us"]
        if (own + 0 > 0) print peer[i] "," cell "," $at[peer[i] "_us"] "," own
    }
}' "$T/bench" >"$T/times" || die "$bench prints no table of times"
[ -s "$T/times" ] || die "$bench timed nothing: $(tail -n 1 "$T/bench")"

column() { cut -d, -f"$1" "$T/times" | awk '!seen[$0]++' | paste -sd,; }
FORMATS=$(column 2) SHAPES=$(column 3) TOKENS=$(column 4)
export FORMATS SHAPES TOKENS
while IFS='=' read -r name command; do
    [ -n "$name" ] || continue
    [[ $name =~ ^[A-Za-z0-9_-]+$ && -n $command && $name != swage && $name != cublas_* ]] ||
        die "PEERS: '$name=$command' is no NAME=COMMAND with a name of its own"
    bash -c "$command" >"$T/peer" 2>"$T/stderr" ||
        die "$name: exit $?: $(tail -n 1 "$T/stderr")"
    grep '^#' "$T/peer" >&2
    bad=$(grep -v '^#' "$T/peer" | grep -Evm 1 \
        '^[a-z0-9_]+,[0-9]+(x[0-9]+)+,[0-9]+,[0-9]+(\.[0-9]+)?(,[A-Za-z0-9_-]+)?$')
    [ -z "$bad" ] || die "$name prints '$bad'; want FORMAT,SHAPE,M,us"
    awk -F, -v name="$name" '!/^#/ {
        print (NF > 4 ? $5 : name) "," $1 "," $2 "," $3 "," $4 }' "$T/peer" >>"$T/times"
done <<<"${PEERS:-}"

if [ -n "${CSV:-}" ]; then
    awk -F, 'NR == 1 {
        print "format," ($3 ~ /x.*x/ ? "experts,hidden,wide,top_k" : "K,N") ",M,name,us" }
        { gsub("x", ",", $3); print $2 "," $3 "," $4 "," $1 "," $5 }' "$T/times" >"$CSV" || exit 2
fi
awk -F, -v limit="${LIMIT:-0}" '
function keep(name, cell, us, own) {
    if (!(name in seen)) { seen[name] = 1; names[++n_names] = name }
    if ((name, cell) in time) {
        if (time[name, cell] < us) return
        if (time[name, cell] == us && of[name, cell] <= own) return # one baseline of several of ours
    }
    time[name, cell] = us
    of[name, cell] = own
}
{ cell = $2 "," $3 "," $4 }
$1 == "swage" && !(cell in order) { order[cell] = ++n_cells; cells[n_cells] = cell }
{ if ($5 > 0) keep($1, cell, $5 + 0, $6) }
END {
    is_moe = cells[1] ~ /x.*x/
    start = is_moe ? "%-9s %16s %6s" : "%-9s %13s %6s"
    for (i = 1; i <= n_names; i++) broad[i] = length(names[i]) > 12 ? length(names[i]) : 12
    printf start, "format", is_moe ? "experts" : "K x N", "M"
    for (i = 1; i <= n_names; i++) printf " %" broad[i] "s", names[i]
    print "    ratio"
    for (c = 1; c <= n_cells; c++) {
        cell = cells[c]
        split(cell, part, ",")
        printf start, part[1], part[2], part[3]
        ratio = 0
        for (i = 1; i <= n_names; i++) {
            name = names[i]
            if (!((name, cell) in time)) { printf " %" broad[i] "s", "-"; continue }
            printf " %" broad[i] ".2f", time[name, cell]
            if (name == "swage") continue
            own = of[name, cell] ? of[name, cell] : time["swage", cell]
            if (own / time[name, cell] > ratio) { ratio = own / time[name, cell]; best = name }
        }
        if (!ratio) { printf " %8s\n", "-"; continue }
        printf " %8.3f%s\n", ratio, (ratio > 1 ? "*" : "")
        n_compared++
        n_lost += ratio > 1
        if (ratio > worst) { worst = ratio; where = cell " beside " best }
    }
    if (!n_compared) { print "no cell has a peer"; exit 2 }
    gsub(",", " ", where)
    printf "%d cells, slower in %d; worst ratio %.3f: %s\n", n_compared, n_lost, worst, where
    exit limit > 0 && worst > limit ? 1 : 0
}' "$T/times"
