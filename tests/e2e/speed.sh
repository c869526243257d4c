#!/bin/bash
# verify --speed and bench CHECKPOINT: their tables, JSON, page, card and exit codes. No figure is looked at: gates are
# such that every machine answers them alike, however noisy.
. "$(dirname "$0")/lib.bash"

expect 0 '' "$SWAGE" quantize -q "$TOY" --method rtn --scheme W4A16 -o "$T/out"
FEW=(--batch 1,3 --prompt 16 --steps 2 --rounds 6)
has() { tr -d ' \t\n' <"$T/stdout" | grep -qF "$1" || fail "the JSON lacks $1"; }

# --- verify
expect 0 '' "$SWAGE" verify -q "$T/out" --against "$TOY" --speed "${FEW[@]}" --min-tokens-per-s 0.001 --min-speedup 1e-6 \
    --report "$T/report.json" --card "$T/card.md" --html "$T/page.html"
for words in 'tokens/s' original speed-up 'of the roof' spread 'decode, batch 1 ' 'decode, batch 3 ' 'prefill 16, batch 3 ' \
    'in turns with the original' 'gate        min_tokens_per_s: ' 'verdict     passed'; do
    grep -qF "$words" "$T/stdout" || fail "the table lacks \"$words\""
done
awk 'length > 100 && !/^(loaders|verdict)/' "$T/stdout" | grep -q . && fail 'a line of more than 100 columns'
grep -q '^| decoding, 3 sequences | .* tokens/s, original ' "$T/card.md" || fail 'the card lacks the speed'
grep -q '^| timed on | ' "$T/card.md" || fail 'the card does not say where'
grep -q 'Speed, measured' "$T/page.html" || fail 'the page lacks the section'
grep -q 'prefill, batch 3' "$T/page.html" || fail 'the page lacks a batch'
expect 1 'min-tokens-per-s failed: have' "$SWAGE" verify -q "$T/out" --speed "${FEW[@]}" --min-tokens-per-s 1e12
expect 1 'min-speedup failed: have' "$SWAGE" verify -q "$T/out" --against "$TOY" --speed "${FEW[@]}" --min-speedup 1e6 --json
for key in '"speed":{' '"device":"cpu"' '"memory_gb_s":' '"arithmetic_gflop_s":' '"cells":[{"what":"decode"' '"what":"prefill"' \
    '"checkpoint":{"tokens_per_second":{"value":' '"roof_share":' '"speedup":{"value":' '"spread":' '"linears":[{"name":' \
    '"loses":' '"kernel":"' '"min_speedup":{"limit":'; do
    has "$key"
done
# the report's file carries it into a page of its own
expect 0 '' "$SWAGE" report -q "$T/out" --results "$T/report.json" -o "$T/other.html"
grep -q 'decode, batch 3' "$T/other.html" || fail 'the report lacks the speed'

# --- bench
expect 1 'min-tokens-per-s failed: have' "$SWAGE" bench -q "$T/out" "${FEW[@]}" --min-tokens-per-s 1e12
grep -q 'nothing: no original given' "$T/stdout" || fail 'an original from nowhere'
grep -q 'speed-up' "$T/stdout" && fail 'a speed-up of one model'
expect 0 '' "$SWAGE" bench -q "$T/out" --against "$TOY" "${FEW[@]}" --min-tokens-per-s 0.001 --json
has '"result":"swage.bench_checkpoint/1"'
has '"verdict":"passed"'
has '"cells":[{"what":"decode"'
expect 1 'min-speedup failed: have' "$SWAGE" bench -q "$T/out" --against "$TOY" "${FEW[@]}" --min-speedup 1e6
# experts, and floats alone
expect 0 '' "$SWAGE" bench -q tests/golden/arch/qwen3_moe "${FEW[@]}" --json
has '"name":"mlp.experts.*.gate_proj"'
has '"tokens":1'

# --- what cannot be
expect 2 'gate min_tokens_per_s is about speed: give --speed' "$SWAGE" verify "$TOY" --min-tokens-per-s 1
expect 2 'gate min_speedup is about speed of two models: give --speed and the original' \
    "$SWAGE" verify "$TOY" --speed --min-speedup 1
expect 2 'give --against MODEL' "$SWAGE" bench "$TOY" --min-speedup 1
expect 2 'a batch of 5000 sequences; give 1 to 1024' "$SWAGE" bench "$TOY" --batch 5000
expect 2 '--decode, --weights and --csv are about random weights' "$SWAGE" bench "$TOY" --csv
expect 2 'give 6 to 101' "$SWAGE" bench "$TOY" --rounds 2
expect 2 '--batch' "$SWAGE" bench "$TOY" --batch 1,x
expect 2 'another model than' "$SWAGE" bench -q "$TOY" --against tests/golden/models/tiny-moe "${FEW[@]}"
expect 5 'none' "$SWAGE" bench -q "$T/none" "${FEW[@]}"
finish
