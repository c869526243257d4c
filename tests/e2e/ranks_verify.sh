#!/usr/bin/env bash
# Several processes judge one checkpoint: the report is that of one, whatever they judge; one message
# when a rank dies or all fail alike; what one process alone can do is refused; ranks with another
# text or model are refused by name.
. "$(dirname "$0")/lib.bash"
. tests/e2e/ranks.bash
toy_tokens $((5 * 2048)) >"$T/toy.u16"
TEXT=(--text "$T/toy.u16" --window 128)
expect 0 '' "$SWAGE" quantize "$TOY" -o "$T/q" --method rtn --quiet

# one_report CODE MESSAGE RANKS CHECKPOINT OPTION...: of one rank and of so many
one_report() {
    local code=$1 message=$2 ranks=$3 n
    shift 3
    for n in 1 $ranks; do
        expect "$code" "$message" "$SWAGE" verify "$@" --ranks $n --threads 1 --report "$T/report.$n" --quiet
        sed -i '/"seconds"/d' "$T/report.$n"
        cmp -s "$T/report.1" "$T/report.$n" ||
            fail "another report by $n ranks: $* $(diff "$T/report.1" "$T/report.$n" | head -n 4)"
        [ $n -eq 1 ] || rm -f "$T/report.$n"
    done
    rm -f "$T/report.1"
}
one_report 0 '' '2 3 5' "$T/q" --against "$TOY" "${TEXT[@]}" # 80 windows in batches of 16
one_report 0 '' 3 "$T/q" --text "$T/toy.u16" --window 512 --max-windows 2 # a batch for three
one_report 1 '--max-kl failed' 2 "$T/q" --against "$TOY" "${TEXT[@]}" --max-kl 1e-9
head -n 3 "$PWD/calib_data/tasks.jsonl" >"$T/few.jsonl"
one_report 0 '' 2 "$TINY" --task "$T/few.jsonl"
# what rank 0 finds out decides whether there is anything for the others to do
one_report 1 'other original' 2 "$T/q" --against "$PWD/tests/golden/arch/qwen3" "${TEXT[@]}"
model fewer "$T/q"
sed -i 's/"vocab_size": *[0-9]*/"vocab_size": 100/' "$T/fewer/config.json"
one_report 1 'findings, first' 2 "$T/fewer" --against "$TOY" "${TEXT[@]}" # forgiven: it has failed already
model cut "$T/q"
poke "$T/cut/config.json" 0 '[[['
expect 3 'config.json' "$SWAGE" verify "$T/cut" --against "$TOY" "${TEXT[@]}" --ranks 2 --quiet

expect 2 'cuda:0 is named twice' "$SWAGE" verify "$T/q" --device cuda:1,0,0 --quiet
expect 2 '--speed times one process' "$SWAGE" verify "$T/q" --speed --ranks 2 --quiet
expect 2 'states of an original are read and written by one process' "$SWAGE" verify "$T/q" \
    --against "$TOY" "${TEXT[@]}" --original-states "$T/states" --ranks 2 --quiet
absent "$T/states"
expect 3 'token id 2148 at position 1' "$SWAGE" verify "$T/q" --text "$PWD/calib_data/eval.u16" --ranks 3 --quiet

# a rank that dies ends the run: one line, exit 5, no report
hold open /toy.u16 1 "$SWAGE" verify "$T/q" --against "$TOY" "${TEXT[@]}" --ranks 3 --quiet --report "$T/report" \
    >/dev/null 2>"$T/stderr"
kill -KILL "$(children_of $pid | tail -n 1)" || fail 'there is no rank to kill'
kill -CONT $pid
wait $pid
died $? verify
absent "$T/report"

# ranks that a launcher gives different files
if launches; then
    toy_tokens $((5 * 2048)) | tr a b >"$T/other.u16"
    one=("$SWAGE" verify "$T/q" --against "$TOY" "${TEXT[@]}" --threads 1 --quiet)
    other=("$SWAGE" verify "$T/q" --against "$TOY" --text "$T/other.u16" --window 512 --threads 1 --quiet)
    differs text
    other=("${one[@]}" --max-windows 3)
    differs 'cut of the text into windows'
    other=("$SWAGE" verify "$T/q" --against "$T/twin" "${TEXT[@]}" --threads 1 --quiet)
    differs model.safetensors
    other=("${one[@]}")
    two >/dev/null 2>"$T/stderr" || fail "mpirun: $(head -c 600 "$T/stderr")"
fi
finish
