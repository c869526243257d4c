#!/usr/bin/env bash
# A sweep by several processes, which share quantizing and measuring: what is made and found is that of
# one, but for the times, also where a checkpoint cannot be judged; a rank that is killed ends the run,
# and the same command continues; ranks of a launcher with another text are refused by name.
. "$(dirname "$0")/lib.bash"
. tests/e2e/ranks.bash
MOE=$PWD/tests/golden/arch/qwen3_moe

toy_tokens $((5 * 2048)) >"$T/toy.u16"
SWEEP=("$SWAGE" sweep "$MOE" --calib "$T/toy.u16" --samples 4 --seq-len 128 --text "$T/toy.u16" --window 128
       --group-size 32 --schemes W8A16,W4A16 --allow-fallback -o "$T/dir" --threads 1 --quiet)
without_times() { # NAME
    find "$T/dir" -name '*.verify.json' -type f -exec sed -i '/"seconds"/d' {} +
    rm -rf "${T:?}/$1"
    mv "$T/dir" "$T/$1"
}

# --- 80 windows in 5 batches for 1, 2 and 3 ranks; and one batch for two, of which the first has none
for n in 1 2 3; do
    expect 0 '' "${SWEEP[@]}" --ranks $n
    cp "$T/stdout" "$T/table.$n"
    without_times swept.$n
done
for n in 2 3; do
    same "$T/swept.1" "$T/swept.$n"
    same "$T/table.1" "$T/table.$n"
done
for n in 1 2; do
    expect 0 '' "${SWEEP[@]}" --max-windows 3 --ranks $n
    without_times few.$n
done
same "$T/few.1" "$T/few.2"

# --- from here on 33 windows, which are a batch for each of three ranks
WHOLE=("${SWEEP[@]}")
SWEEP+=(--max-windows 33)
made() { # the checkpoints, of which nothing is measured
    cp -r "$T/swept.1" "$T/dir"
    rm "$T"/dir/sweep.* "$T"/dir/*.verify.json
}
made
expect 0 '' "${SWEEP[@]}"
without_times less.1

# --- what cannot be judged is its row's failure, whoever meets it first, and the others are measured:
# a result that cannot be written (rank 0, when the others are through), a checkpoint that does not
# decode any more (nothing is run), a config that cannot be read (all of them), a text that does not
# fit the model (all of them, each time)
spoilt() { # CODE MESSAGE
    for n in 1 2 3; do
        made
        spoil "$T/dir"
        expect "$1" "$2" "${SWEEP[@]}" --ranks $n
        cp "$T/stdout" "$T/table.$n"
        grep -q '^W8A16-swage .*%' "$T/stdout" || fail "W8A16 is not measured by $n ranks: $2"
        grep -q '^W4A16-swage .*%' "$T/stdout" && fail "W4A16 is sound all the same by $n ranks: $2"
        without_times spoilt.$n
        [ $n -eq 1 ] || same "$T/spoilt.1" "$T/spoilt.$n"
        [ $n -eq 1 ] || same "$T/table.1" "$T/table.$n"
    done
}
spoil() { mkdir -p "$1/W4A16-swage.verify.json/mine"; }
spoilt 2 'W4A16-swage.verify.json: is a directory'
spoil() { poke "$1/W4A16-swage/config.json" 0 '[[['; }
spoilt 3 'config.json'
spoil() {
    local file=$1/W4A16-swage/model.safetensors
    poke "$file" "$(offset_of "$file" model.layers.0.self_attn.q_proj.tile_shape)" '\x07'
}
spoilt 1 '2 findings, first: differs: model.safetensors'
for n in 1 3; do
    expect 3 'token id 2148 at position 1' "${SWEEP[@]}" --text "$PWD/calib_data/eval.u16" --ranks $n
    grep -c 'token id 2148' "$T/stdout" | grep -q '^2$' || fail "not both rows by $n ranks: $(cat "$T/stdout")"
    without_times wrong.$n
done
same "$T/wrong.1" "$T/wrong.3"

# --- a rank dies while checkpoints are measured, before the first is and after; then the same command
killed_at() { # CALL NAME: when rank 0 has made this call, see hold
    rm -rf "$T/dir"
    hold "$1" "$2" 1 "${SWEEP[@]}" --ranks 3 >/dev/null 2>"$T/stderr"
    kill -KILL "$(children_of $pid | tail -n 1)" || fail 'there is no rank to kill'
    kill -CONT $pid
    wait $pid
    died $? sweep
    if grep -q 'without a word' "$T/dir/sweep.json" 2>/dev/null; then fail "a checkpoint is blamed"; fi
    expect 0 '' "${SWEEP[@]}" --ranks 2
    without_times resumed
    same "$T/less.1" "$T/resumed"
}
killed_at rename /W4A16-swage
killed_at rename /W8A16-swage.verify.json

# --- the choice and its gate, by ranks
cp -r "$T/less.1" "$T/dir"
expect 1 'no checkpoint keeps the limits' "${SWEEP[@]}" --ranks 2 --max-kl 0
expect 0 '' "${SWEEP[@]}" --ranks 3 --max-kl 1e9 --keep-best
[ "$(ls "$T/dir")" = "$(printf '%s\n' W4A16-swage W4A16-swage.verify.json sweep.html sweep.json)" ] ||
    fail "kept: $(ls "$T/dir")"
rm -rf "$T/dir"

# --- ranks that a launcher gives another text, or more of it
if launches; then
    one=("${WHOLE[@]}")
    toy_tokens $((5 * 2048)) | tr a b >"$T/other.u16"
    refused() { # WHAT
        two >"$T/stdout" 2>"$T/stderr" && fail "not refused: $1"
        grep -q -F "rank 1 has another $1 than rank 0" "$T/stderr" || fail "no word of $1: $(head -c 600 "$T/stderr")"
    }
    other=("${WHOLE[@]}" --text "$T/other.u16")
    refused 'cut of the text into windows'
    other=("${WHOLE[@]}" --max-windows 3)
    refused 'cut of the text into windows'
    other=("${WHOLE[@]}" --schemes W3A16)
    refused 'setting "scheme"'
    other=("${WHOLE[@]}")
    two >/dev/null 2>"$T/stderr" || fail "mpirun: $(head -c 600 "$T/stderr")"
    without_times launched
    same "$T/swept.1" "$T/launched"
fi
finish
