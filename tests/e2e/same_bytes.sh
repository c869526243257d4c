#!/bin/bash
# The same inputs give the same bytes: one and two threads, two runs, two directories.
. "$(dirname "$0")/lib.bash"

# every file of two directories, manifest included
same() {
    diff -r "$1" "$2" >/dev/null || fail "$1 and $2 differ: $(diff -rq "$1" "$2" | head -n 3)"
}
toy_tokens 8192 >"$T/toy.u16"
mkdir -p "$T/elsewhere/deep"
cp -r "$TOY" "$T/elsewhere/toy"
cp "$T/toy.u16" "$T/elsewhere/"

for format in swage gptq gptq_v2 compressed-tensors; do
    for kind in --sym --asym; do
        set -- --format $format $kind --samples 4 --seq-len 64 --quiet
        expect 0 '' "$SWAGE" quantize "$TOY" -o "$T/one" --threads 1 --calib "$T/toy.u16" "$@"
        expect 0 '' "$SWAGE" quantize "$TOY" -o "$T/two" --threads 2 --calib "$T/toy.u16" "$@"
        same "$T/one" "$T/two"
        expect 0 '' env -C "$T/elsewhere" "$SWAGE" quantize toy -o deep/three --threads 3 \
            --calib toy.u16 "$@"
        same "$T/one" "$T/elsewhere/deep/three"
        rm -r "$T/two" "$T/elsewhere/deep/three"
        [ $kind = --sym ] && rm -r "$T/one"
    done
    # a run that should differ does
    expect 0 '' "$SWAGE" quantize "$TOY" -o "$T/two" --calib "$T/toy.u16" "$@" --seed 1
    cmp -s "$T/one/model.safetensors" "$T/two/model.safetensors" && fail 'the seed has no effect'
    rm -r "$T/one" "$T/two"
done

# a dtype that the config leaves open is the stored one, in all that is made of it
grep -q '"torch_dtype": "bfloat16"' "$TINY/config.json" || fail 'the model says no dtype'
expect 0 '' "$SWAGE" quantize "$TINY" -o "$T/said" --method rtn --format compressed-tensors --quiet
for edit in 's/"torch_dtype": "bfloat16"/"torch_dtype": null/' '/torch_dtype/d'; do
    cp -r "$TINY" "$T/open"
    sed -i "$edit" "$T/open/config.json"
    expect 0 '' "$SWAGE" quantize "$T/open" -o "$T/out" --method rtn --format compressed-tensors --quiet
    cmp "$T/said/model.safetensors" "$T/out/model.safetensors" || fail "another dtype by $edit"
    expect 0 '' "$SWAGE" verify --quiet "$T/out" --against "$T/open"
    rm -r "$T/open" "$T/out"
done

for threads in 1 2; do
    expect 0 '' "$SWAGE" quantize "$TINY" -o "$T/$threads" --threads $threads --quiet \
        --calib "$PWD/calib_data/calib.u16" --samples 2 --seq-len 128 --ignore 'layers\.[2-5]' # linears that are wider than the toy's
    expect 0 '' "$SWAGE" generate "$T/$threads" -n 64 --samples 2 --temperature 1 --seed 5 \
        --threads $threads -o "$T/$threads.u16" --quiet
done
same "$T/1" "$T/2"
cmp "$T/1.u16" "$T/2.u16" || fail 'generate depends on the number of threads'
finish
