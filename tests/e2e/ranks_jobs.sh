#!/usr/bin/env bash
# Several processes on what is not one checkpoint: calibrate and several outputs make the files of one
# rank; a rank that is killed ends the run, and the same command makes the same; a rank that has
# another model, text or setting is refused by name. Single checkpoints are in ranks.sh, sweeps in
# ranks_sweep.sh.
. "$(dirname "$0")/lib.bash"
. tests/e2e/ranks.bash
MOE=$PWD/tests/golden/arch/qwen3_moe

# 3 chunks of at most 4096 tokens in as many pieces, as in ranks.sh; and what is less than one chunk
toy_tokens $((3 * 4096)) >"$T/toy.u16"
TEXT=(--calib "$T/toy.u16" --samples 130 --seq-len 64 --quiet)
SHORT=(--calib "$T/toy.u16" --samples 4 --seq-len 128 --quiet)

# One of three is killed when rank 0 has made a CALL on NAME (see hold): one line, exit 5, nothing unfinished
# under the name; then the same command: killed_then_same WANT OUT CALL NAME COMMAND...
killed_then_same() {
    local want=$1 out=$2
    hold "$3" "$4" 1 "${@:5}" --ranks 3 >/dev/null 2>"$T/stderr"
    shift 4
    kill_last_rank
    died $?
    [ -d "$out" ] || absent "$out"
    expect 0 '' "$@" --ranks 2
    same "$want" "$out"
}
# The last rank of the run that is held is killed, and the run goes on: its exit code.
kill_last_rank() {
    kill -KILL "$(children_of $pid | tail -n 1)" || fail 'there is no rank to kill'
    kill -CONT $pid
    wait $pid
}

# --- calibrate: dense and sparse, every policy, ranks without a part of the text
calibrated() { # NAME RANKS MODEL OPTION...
    local name=$1 ranks=$2 n
    shift 2
    expect 0 '' "$SWAGE" calibrate "$@" -o "$T/$name.1" --threads 2
    for n in $ranks; do
        expect 0 '' "$SWAGE" calibrate "$@" -o "$T/$name.$n" --threads 1 --ranks $n
        same "$T/$name.1" "$T/$name.$n"
    done
}
calibrated dense '2 3' "$TOY" "${TEXT[@]}"
calibrated sparse '2 3' "$MOE" "${TEXT[@]}"
calibrated routed 3 "$MOE" "${SHORT[@]}" --experts routed --no-text
expect 0 '' "$SWAGE" calibrate "$MOE" "${SHORT[@]}" -o "$T/x.1" --imatrix "$T/x.1.dat"
expect 0 '' "$SWAGE" calibrate "$MOE" "${SHORT[@]}" -o "$T/x.2" --imatrix "$T/x.2.dat" --ranks 2
same "$T/x.1.dat" "$T/x.2.dat"
calibrated all 2 "$MOE" "${SHORT[@]}" --experts all
expect 4 "imatrix: --experts all has no sums of an expert alone" "$SWAGE" calibrate "$MOE" "${SHORT[@]}" -o "$T/no" --experts all \
    --imatrix "$T/no.imatrix"
absent "$T/no"
killed_then_same "$T/all.1" "$T/killed" open /output "$SWAGE" calibrate "$MOE" "${SHORT[@]}" --experts all -o "$T/killed"
expect 2 'killed: exists' "$SWAGE" calibrate "$MOE" "${SHORT[@]}" -o "$T/killed" --ranks 2

# one message of all: a weight that is broken
model broken
poke "$T/broken/model.safetensors" "$(offset_of "$T/broken/model.safetensors" \
    model.layers.1.self_attn.q_proj.weight)" '\xff\xff\xff\x7f'
expect 3 'hold a NaN' "$SWAGE" calibrate "$T/broken" "${TEXT[@]}" -o "$T/out" --ranks 3
absent "$T/out"

# --- several outputs: three solves, one of which has two formats
Q=(--scheme W4A16,W8A16 --format swage,gptq_v2,compressed-tensors --group-size 32 --allow-fallback)
for model in "$TOY" "$MOE"; do
    MANY=("$SWAGE" quantize "$model" "${SHORT[@]}" "${Q[@]}" -o)
    expect 0 '' "${MANY[@]}" "$T/alone" --threads 2
    [ "$(ls "$T/alone" | wc -l)" -eq 6 ] || fail "not six outputs: $(ls "$T/alone")"
    for n in 2 3; do
        rm -rf "$T/many"
        expect 0 '' "${MANY[@]}" "$T/many" --threads 1 --ranks $n
        same "$T/alone" "$T/many"
    done
    # what is there is not made again, by any number of ranks
    rm -rf "$T/many/W4A16-gptq_v2" "$T/many/W8A16-swage"
    stamp=$(stat -c %i-%Y "$T/many/W4A16-swage/model.safetensors")
    expect 0 '' "${MANY[@]}" "$T/many" --ranks 2
    same "$T/alone" "$T/many"
    [ "$stamp" = "$(stat -c %i-%Y "$T/many/W4A16-swage/model.safetensors")" ] || fail 'made again'
    rm -rf "$T/many"
    killed_then_same "$T/alone" "$T/many" rename /W4A16-swage "${MANY[@]}" "$T/many"
    expect 2 'W4A16-swage: exists and was made with other settings*--force' "${MANY[@]}" "$T/many" \
        --damp 0.02 --ranks 2
    rm -rf "$T/alone" "$T/many"
done

# what cannot be written leaves the others whole: one of a solve, and all of one
for name in W4A16-gptq_v2 W8A16-swage W8A16-gptq_v2; do
    mkdir -p "$T/many/$name.partial"
    touch "$T/many/$name.partial/mine"
done
MANY=("$SWAGE" quantize "$TOY" "${SHORT[@]}" --scheme W8A16,W4A16 --format swage,gptq_v2 -o "$T/many")
expect 2 '3 of 4 outputs failed, the first W8A16-swage: *partial' "${MANY[@]}" --ranks 2
[ -d "$T/many/W4A16-swage" ] || fail 'the output that can be written is not there'
rm -r "$T"/many/*.partial
expect 0 '' "${MANY[@]}" --ranks 3
[ "$(ls "$T/many" | wc -l)" -eq 4 ] || fail "not four outputs: $(ls "$T/many")"
rm -r "$T/many"
MANY=("$SWAGE" quantize "$T/broken" "${SHORT[@]}" --scheme W8A16,W4A16 -o "$T/out" --ranks 3)
expect 3 'q_proj: *not finite' "${MANY[@]}"
[ -z "$(ls "$T/out")" ] || fail "made of a broken weight: $(ls "$T/out")"
rm -r "$T/out"
expect 4 'W8A16-awq: *holds 4 bits, not 8' "${MANY[@]}" --format awq,swage
absent "$T/out"

# --- ranks that a launcher gives different files or settings
if launches; then
    one=("$SWAGE" calibrate "$TOY" -o "$T/out" "${TEXT[@]}" --threads 1)
    other=("${one[@]}" --device cuda)
    differs 'kind of device (--device)'
    other=("${one[@]}" --experts all)
    differs 'setting "experts"'
    other=("${one[@]}" --seq-len 256 --samples 48)
    differs 'setting "seq-len"'
    other=("${one[@]}" --seed 7)
    differs 'calibration text'
    other=("$SWAGE" calibrate "$T/twin" "${one[@]:3}")
    differs model.safetensors
    other=("${one[@]}")
    two >/dev/null 2>"$T/stderr" || fail "mpirun: $(head -c 600 "$T/stderr")"
    same "$T/dense.1" "$T/out"
    rm -f "$T/out"

    # the same of several outputs
    one=("$SWAGE" quantize "$TOY" -o "$T/out" "${SHORT[@]}" --threads 1 --scheme W8A16,W4A16)
    other=("${one[@]}" --format swage,gptq)
    differs 'setting "format"'
    other=("${one[@]}" --scheme FP8_DYNAMIC)
    differs 'setting "scheme"'
    other=("${one[@]}" --damp 0.02)
    differs 'setting "damp"'
    other=("$SWAGE" quantize "$T/twin" "${one[@]:3}")
    differs model.safetensors
fi
finish
