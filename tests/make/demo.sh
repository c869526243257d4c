#!/bin/sh
# The whole job on the bundled model: look at it, quantize it twice, judge both, let it speak, time it.
set -eu
cd "$(dirname "$0")/../.."
swage=build/swage
out=build/demo
model=calib_data/tiny-llama

say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '\n== %s\n' "$*"; }
run() { echo "\$ $*"; "$@"; }
begin=$(date +%s)
rm -rf "$out" && mkdir -p "$out"

say "1. The bundled files are the ones the manifest names"
sh tests/lint/check_calib_data.sh && echo "calib_data matches calib_data/MANIFEST"

say "2. A trained model of 6.8 million parameters, as it came"
run $swage inspect $model

say "3. Four bits by plain rounding, as a GPTQ-format checkpoint: what there is to beat"
run $swage quantize $model -o $out/rtn --scheme W4A16 --method rtn --format gptq

say "4. Four bits by GPTQ, calibrated block by block on its own samples, in kernel-ready tiles"
run $swage quantize $model -o $out/gptq --scheme W4A16 --calib calib_data/calib.u16 --samples 64

say "5. Plain rounding, judged through the int4 kernel on text that calibration has not seen"
run $swage verify $out/rtn --against $model --text calib_data/eval.u16

say "6. GPTQ, judged the same way, with gates that decide the exit code"
run $swage verify $out/gptq --against $model --text calib_data/eval.u16 --report $out/report.json \
    --max-kl 0.08 --max-ppl-ratio 1.10 --min-top1 0.80

say "7. What they say: the original, then the 4-bit model through the int4 kernel"
run $swage generate $model --prompt "The function returns" -n 40 --quiet
run $swage generate $out/gptq --prompt "The function returns" -n 40 --quiet

say "8. The kernels against OpenBLAS in float32, on a matrix of a real model's size"
run $swage bench --shape 4096x4096 --m 1,16 --seconds 0.5 --rounds 5

say "Done in $(($(date +%s) - begin)) s. Checkpoints and report.json are in $out/"
