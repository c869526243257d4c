#!/bin/bash
# The table of whole runs: every job of it runs with toys, figures of a report that is made up are what the head of
# the script says, and a job that fails is named while the others run. And the models of random weights.
. "$(dirname "$0")/lib.bash"
mkdir "$T/tmp" "$T/kept"
# runs CODE OPTION...: stdout in $T/lines
runs() {
    local code=$1 have
    shift
    TMPDIR=$T/tmp bash tests/bench/whole_runs.sh "$@" >"$T/lines" 2>"$T/stderr"
    have=$?
    [ $have -eq "$code" ] || fail "exit $have, want $code: $* ($(head -c 400 "$T/stderr"))"
    [ -z "$(ls "$T/tmp")" ] || fail "left behind: $(ls "$T/tmp")"
}
# column NAME JOB
column() {
    awk -F, -v name="$1" -v job="$2" 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i } $3 == job { print $at[name] }' "$T/lines"
}
# figures JOB NAME=VALUE...
figures() {
    local job=$1 pair have
    shift
    for pair in "$@"; do
        have=$(column "${pair%%=*}" "$job")
        [ "$have" = "${pair#*=}" ] || fail "$job: ${pair%%=*} is '$have', want '${pair#*=}' ($(cat "$T/lines"))"
    done
}

runs 0 --toy --keep "$T/kept"
sed -n 's/^\([a-z0-9-]*\) *|.*/\1/p' tests/bench/whole-runs.txt >"$T/jobs"
cut -d, -f3 "$T/lines" | tail -n +2 | cmp -s - "$T/jobs" || fail "not every job has its line: $(cat "$T/lines")"
while IFS= read -r job; do
    [ -s "$T/kept/$job.profile.json" ] || fail "$job: no profile is kept"
    # not that they are above 0: a toy's layer may take less than a figure shows
    for name in seconds host_gb $([ "$job" = 8b-verify ] && echo tokens_per_second || echo layer_seconds); do
        [[ $(column "$name" "$job") =~ ^[0-9]+\.[0-9]+$ ]] || fail "$job: $name is '$(column "$name" "$job")'"
    done
done <"$T/jobs"

# four blocks of which the first and the last are unlike the others, of a model of ten layers
cat >"$T/swage" <<'FAKE'
#!/bin/bash
while [ $# -gt 0 ]; do [ "$1" = --profile ] && echo '{"traceEvents":[' >"$2"; shift; done
printf '{"seconds": 20,\n\t"peak_bytes":\t5000000000, "timeline": [{"step": "prepare", "begin_s": 0, "end_s": 3},
 {"step": "block 0", "begin_s": 3, "end_s": 8}, {"step": "block 1", "begin_s": 8, "end_s": 10.5},
 {"step": "block 2", "begin_s": 10.5, "end_s": 13}, {"step": "block 3", "begin_s": 13, "end_s": 14},
 {"step": "write", "begin_s": 14, "end_s": 16}, {"step": "read back", "begin_s": 16, "end_s": 20}]}\n'
FAKE
chmod +x "$T/swage"
printf '%s\n' 'some | 8b toy | 4 10 | quantize {model} {out}' 'all | 8b toy | 4 4 | quantize {model} {out}' >"$T/table"
export TABLE=$T/table
SWAGE=$T/swage runs 0 --toy
# 10 layers of 2.5, 3 of preparing, and the 6 of writing and reading back as for 10
figures some layers=4 seconds=20.00 layer_seconds=2.500 ends_seconds=9.00 whole_layers=10 scaled_seconds=43.0 host_gb=5.00
figures all layer_seconds=2.500 whole_layers=4 scaled_seconds= tokens_per_second= card_gb=
SWAGE=$T/swage runs 0 --toy --only some --layers 5
figures some layers=5 scaled_seconds=40.0

# a card, by what another program says of it: 1500 MiB beside 700 that were in use before
mkdir "$T/bin"
cat >"$T/bin/nvidia-smi" <<FAKE
#!/bin/bash
case "\$*" in
    *query-gpu=name*) echo 'Some, card' ;;
    '-i 0,2 '*) if [ -e "$T/uses" ]; then touch "$T/seen"; echo 2000; else echo 500; fi; echo 200 ;;
esac
FAKE
# the run goes on when its use of the card has been asked for
sed -i "s#^printf#touch '$T/uses'; for i in {1..1000}; do [ ! -e '$T/seen' ] || break; sleep 0.01; done; rm '$T/uses'; printf#" "$T/swage"
chmod +x "$T/bin/nvidia-smi"
PATH=$T/bin:$PATH SWAGE=$T/swage runs 0 --toy --only all --device cuda:0,2
figures all card_gb=1.57 "device=Some card and $(nproc) cores"
# the second and the fourth of those that a run sees
rm "$T/seen"
CUDA_VISIBLE_DEVICES=5,0,7,2 PATH=$T/bin:$PATH SWAGE=$T/swage runs 0 --toy --only all --device cuda:1,3
figures all card_gb=1.57

# what fails is named, and the others run
printf '%s\n' 'bad | 8b toy | 1 32 | quantize {model} {out} --scheme W9A9' \
    'good | 8b toy | 4 4 | quantize {model} {out} --method rtn' >"$T/worse"
TABLE=$T/worse runs 1 --toy --only bad,good
grep -q '^bad failed: exit 2: .*W9A9' "$T/stderr" || fail "why is not said: $(cat "$T/stderr")"
figures good layers=4 scaled_seconds=
runs 2 --toy --only none
grep -q 'no job none in .*: some all' "$T/stderr" || fail "which jobs there are: $(cat "$T/stderr")"
runs 2 --layers x
runs 2 --only

# the same model by any number of threads
MAKE_MODEL=$BUILD/tests/tools/synthetic_model
for n in 1 3; do expect 0 '' "$MAKE_MODEL" "$T/by$n" toy-deepseek layers=2 threads=$n; done
diff -r "$T/by1" "$T/by3" >/dev/null || fail 'another number of threads, another model'
"$MAKE_MODEL" "$T/none" 9b 2>"$T/stderr" && fail 'a shape that is not there'
grep -q 'no shape 9b; there are 8b 70b' "$T/stderr" || fail "which shapes there are: $(cat "$T/stderr")"
finish
