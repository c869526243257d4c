#!/bin/bash
# The quality ledger: KL(original || checkpoint) of every scheme and method on one model, through the
# written checkpoint and the kernel that serves it.
#
#   ledger.sh record|check LEDGER.csv MODEL CALIB SAMPLES SEQ_LEN NAME=TEXT...
#
# A ledger's rows are scheme,method,options,text,kl,top1. `record` runs every row that LEDGER names
# and rewrites its figures; `check` compares instead: a KL may be worse than recorded by a tenth and
# 0.0005 nats (processors round differently), and no method may be worse than plain rounding (rtn)
# with the same scheme, options and text by more than that, nor a transform with GPTQ than GPTQ.
# ROW=REGEX takes matching rows alone, JOBS=N runs N at a time. The original runs once a text; its
# hidden states (2 KB a token of small-llama) wait under $TMPDIR for the other rows. Last line: "N passed, N failed".
set -u
cd "$(dirname "$0")/../.." || exit 1
mode=$1 ledger=$2 model=$3 calib=$4 samples=$5 seq_len=$6
shift 6
texts=("$@")
export SWAGE=${SWAGE:-$PWD/${BUILD:-build/release}/swage} model calib samples seq_len
work=$(mktemp -d "${TMPDIR:-/tmp}/swage-ledger.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
export work

# figure JSON KEY: the number behind "KEY": {"value": or "KEY":
figure() { tr -d ' \t\n' <"$1" | grep -oE "\"$2\":(\{\"value\":)?[-0-9.e+]+" | head -n 1 | sed 's/.*://'; }
export -f figure

# row SCHEME,METHOD,OPTIONS NAME=TEXT...: quantize once, judge on every text.
row() {
    local key=$1 scheme method options out text
    shift
    IFS=, read -r scheme method options <<<"$key"
    out=$work/$(tr -c 'A-Za-z0-9\n' _ <<<"$key")
    # shellcheck disable=SC2086
    "$SWAGE" quantize "$model" -o "$out" --scheme "$scheme" --method "$method" $options --quiet \
        --calib "$calib" --samples "$samples" --seq-len "$seq_len" --threads "${THREADS:-1}" \
        >/dev/null 2>"$out.err" || { echo "$key: quantize: $(tail -n 1 "$out.err")" >&2; return; }
    for text in "$@"; do
        "$SWAGE" verify "$out" --against "$model" --text "${text#*=}" --no-gap --json --quiet \
            --original-states "$work/${text%%=*}.states" --threads "${THREADS:-1}" \
            >"$out.json" 2>"$out.err" ||
            { echo "$key: verify: $(tail -n 1 "$out.err")" >&2; continue; }
        printf '%s,%s,%.5f,%.4f\n' "$key" "${text%%=*}" "$(figure "$out.json" kl_mean)" \
            "$(figure "$out.json" top1_agreement)"
    done
    rm -rf "$out"
}
export -f row

# The first row alone: it leaves the original's states on every text to the others.
grep -E '^[A-Z0-9_]+,' "$ledger" | cut -d, -f1-3 | sort -u | grep -E "${ROW:-.}" >"$work/keys"
row "$(head -n 1 "$work/keys")" "${texts[@]}" >"$work/first"
tail -n +2 "$work/keys" |
    xargs -P "${JOBS:-2}" -I{} bash -c 'row "$@"' _ {} "${texts[@]}" | sort - "$work/first" >"$work/have"

if [ "$mode" = record ]; then
    { grep -vE '^[A-Z0-9_]+,' "$ledger"; { cat "$work/have"; [ -z "${ROW:-}" ] ||
        grep -E '^[A-Z0-9_]+,' "$ledger" | grep -vE "$ROW"; } | sort -u; } >"$work/new"
    wanted=$(($(grep -E '^[A-Z0-9_]+,' "$ledger" | cut -d, -f1-3 | sort -u | grep -cE "${ROW:-.}") * ${#texts[@]}))
    lost=$((wanted - $(wc -l <"$work/have")))
    cp "$work/new" "$ledger"
    echo "$(wc -l <"$work/have") passed, $lost failed"
    [ "$lost" -eq 0 ]
    exit
fi
awk -F, -v only="${ROW:-.}" '
    function bound(kl) { return kl * 1.1 + 0.0005 }
    FNR == NR { if ($0 ~ /^[A-Z0-9_]+,/) want[$1 "," $2 "," $3 "," $4] = $5; next }
    { have[$1 "," $2 "," $3 "," $4] = $5; of[$1 "," $3 "," $4 "," $2] = $5 }
    END {
        for (k in want) {
            split(k, part, ",")
            if (part[1] "," part[2] "," part[3] !~ only) continue
            plain = part[1] "," part[3] "," part[4] ",rtn"
            alone = part[2] ~ /\+gptq$/ ? part[1] "," part[3] "," part[4] ",gptq" : plain
            if (!(k in have)) { print k ": no figure"; bad++ }
            else if (have[k] > bound(want[k])) { print k ": KL " have[k] ", recorded " want[k]; bad++ }
            else if ((plain in of) && have[k] > bound(of[plain])) {
                print k ": KL " have[k] ", worse than rounding, " of[plain]; bad++ }
            else if ((alone in of) && have[k] > bound(of[alone])) {
                print k ": KL " have[k] ", worse than gptq alone, " of[alone]; bad++ }
            else good++
        }
        printf "%d passed, %d failed\n", good, bad
        exit bad > 0
    }' "$ledger" "$work/have"
