#!/bin/bash
# The page of `swage report`, `verify --html` and `quantize --html`: well formed, whole, loading
# nothing, the same every time, and true to what the files say, whatever they hold.
. "$(dirname "$0")/lib.bash"
calib=$PWD/calib_data/calib.u16
eval=$PWD/calib_data/eval.u16

# Tags that match, of a page whose script and style are taken out.
well_formed() {
    sed -e 's/<!DOCTYPE html>//' "$1" | awk '
    BEGIN { RS = "<"; n = 0 }
    NR == 1 { next }
    /^!\[CDATA\[/ || /^\/\/\]\]>/ { next }
    inside { if ($0 !~ /^\/script>/) next; inside = 0 }
    { end = index($0, ">"); if (!end) { print "no end: " substr($0, 1, 60); exit 1 }
      tag = substr($0, 1, end - 1); name = tag; sub(/[ \/\n].*/, "", name) }
    tag ~ /^\// { name = substr(tag, 2)
        if (!n || open[n] != name) { print "</" name "> closes <" open[n] ">"; exit 1 }
        n--; next }
    tag ~ /\/$/ { next }
    { open[++n] = name; if (name == "script") inside = 1 }
    END { if (n) { print "open: " open[n]; exit 1 } }' || fail "$1 is not well formed"
    # shellcheck disable=SC2015
    command -v xmllint >/dev/null && { sed 1d "$1" | xmllint --noout - 2>"$T/xml" ||
        fail "xmllint: $1: $(head -n 3 "$T/xml")"; }
}

# page FILE SECTION...: sound, and with exactly these sections.
page() {
    local file=$1 have
    shift
    well_formed "$file"
    have=$(grep -o '<section id="[a-z]*"' "$file" | cut -d'"' -f2 | grep -v missing | tr '\n' ' ')
    [ "$have" = "$* " ] || fail "$file: sections are $have, want $*"
    if grep -qE 'https?:|<[a-z][^>]* (src|href)="[^#]|url\(|@import|<link|<img|<iframe' "$file"; then
        fail "$file loads something"
    fi
    [ "$(grep -c '<script' "$file")" -eq 1 ] || fail "$file: other scripts"
    grep -q 'NaN\|>nan\|>inf\|(null)' "$file" && fail "$file shows what is no number"
    grep -q '<html lang="en">' "$file" && grep -q 'prefers-color-scheme' "$file" || fail "$file: head"
}

has() { grep -qF -- "$2" "$1" || fail "${1##*/} lacks $2"; }
lacks() { if grep -qF -- "$2" "$1"; then fail "${1##*/} has $2"; fi; }

# a dense model from its run to its comparison
expect 0 '' "$SWAGE" quantize "$TINY" -o "$T/w4" --calib "$calib" --samples 2 --seq-len 128 --json --quiet \
    --html "$T/made.html" --format compressed-tensors
cp "$T/stdout" "$T/w4.made"
page "$T/made.html" verdict layers worst bytes speed engines time origin
has "$T/made.html" 'There was no original and no text.'
has "$T/made.html" '<b>Quality of the output</b> needs'
has "$T/made.html" 'block 5; '
expect 2 'exists; give --force' "$SWAGE" quantize "$TINY" -o "$T/other" --method rtn --html "$T/made.html"
absent "$T/other"
expect 0 '' "$SWAGE" quantize "$TINY" -o "$T/w8" --scheme W8A16 --method rtn --quiet
for c in w4 w8; do
    expect 0 '' "$SWAGE" verify "$T/$c" --against "$TINY" --text "$eval" --window 128 --max-windows 2 --max-kl 9 \
        --report "$T/$c.json" --html "$T/$c.html" --quiet
done
page "$T/w4.html" verdict quality layers worst bytes speed engines origin
has "$T/w4.html" 'class="badge good">&#10003; passed'
has "$T/w4.html" '<th scope="row">max_kl</th>'
[ "$(grep -c '<rect class="h[0-8]" x' "$T/w4.html")" -ge $((42 * 4)) ] || fail 'cells of heat maps'
[ "$(grep -o 'data-v' "$T/w4.html" | wc -l)" -gt 300 ] || fail 'cells of tables'

# verify's own page and that of its report on disk differ in nothing but the run's times
expect 0 '' "$SWAGE" report "$T/w4" --results "$T/w4.json" -o "$T/again.html"
cmp -s "$T/w4.html" "$T/again.html" || fail 'verify --html is not report --results'
expect 0 '' "$SWAGE" report "$T/w4" --results "$T/w4.json" -o "$T/third.html" --threads 1
cmp -s "$T/third.html" "$T/again.html" || fail 'not the same for any number of threads'
expect 2 'third.html: exists' "$SWAGE" report "$T/w4" -o "$T/third.html"
expect 0 '' "$SWAGE" report "$T/w4" -o "$T/third.html" --force --json
grep -q '"swage.report/1"' "$T/stdout" || fail 'report --json'
page "$T/third.html" verdict layers worst bytes speed engines origin
has "$T/third.html" 'not verified'
lacks "$T/third.html" 'perplexity of the original'

# everything at once, with statistics; and several side by side
expect 0 '' "$SWAGE" calibrate "$TINY" --calib "$calib" --samples 2 --seq-len 64 -o "$T/tiny.stats" --quiet
expect 0 '' "$SWAGE" report "$T/w4" --results "$T/w4.json" "$T/w4.made" --stats "$T/tiny.stats" -o "$T/all.html"
page "$T/all.html" verdict quality layers worst activations bytes speed engines time origin
lacks "$T/all.html" 'id="missing">'
expect 0 '' "$SWAGE" report "$T/w4" "$T/w8" --results "$T/w8.json" "$T/w4.json" -o "$T/both.html"
page "$T/both.html" verdict quality compare layers worst bytes speed engines origin
has "$T/both.html" 'On the front'
[ "$(grep -o '<b>w[48]</b>' "$T/both.html" | sort -u | wc -l)" -eq 2 ] || fail 'both are on the front'

# one that was not measured has no figure beside one that was, neither in a table nor as a mark
expect 0 '' "$SWAGE" report "$T/w4" "$TINY" --results "$T/w4.json" -o "$T/mixed.html"
grep -A6 '^<tr><th scope="row">tiny-llama' "$T/mixed.html" | tr -d '\n' | grep -q '>0</td>\|>0.00 %</td>' && fail 'a figure of nothing'
lacks "$T/mixed.html" 'tiny-llama; 0'
has "$T/mixed.html" 'w4; 0.'

# a manifest whose files were changed since says nothing
cp -r "$T/w4" "$T/stale"
chmod -R u+w "$T/stale"
printf '\377\377\377\377' | dd of="$T/stale/model.safetensors" bs=1 seek=200000 conv=notrunc status=none
expect 1 '*changed after it was written' "$SWAGE" verify "$T/stale" --against "$TINY" --html "$T/stale.html" --quiet
well_formed "$T/stale.html"
has "$T/stale.html" 'class="badge bad">&#10007; failed'
has "$T/stale.html" 'manifest.json tells of other bytes'
lacks "$T/stale.html" 'Error of the outputs on calibration text'
printf ' ' >>"$T/stale/generation_config.json"
expect 0 '' "$SWAGE" report "$T/stale" -o "$T/stale.html" --force
has "$T/stale.html" 'manifest.json tells of other bytes'

# results belong to the files that they name
cp -r "$T/w4" "$T/changed"
sed -i 's/"rope_theta": *[0-9.]*/"rope_theta": 10001/' "$T/changed/config.json"
printf ' ' >>"$T/changed/config.json"
expect 2 'about none of the checkpoints given: their files have other digests' "$SWAGE" report "$T/changed" \
    --results "$T/w4.json" -o "$T/no.html"
expect 2 'about none of the checkpoints given: their manifests' "$SWAGE" report "$T/w8" \
    --results "$T/w4.made" -o "$T/no.html"
expect 2 'a second result of verify' "$SWAGE" report "$T/w4" --results "$T/w4.json" "$T/w4.json" -o "$T/no.html"
expect 2 'not a result of' "$SWAGE" report "$T/w4" --results "$TINY/config.json" -o "$T/no.html"
expect 2 'say where the page goes' "$SWAGE" report "$T/w4"
expect 2 'statistics for 2 checkpoints' "$SWAGE" report "$T/w4" "$T/w8" --stats "$T/tiny.stats" "$T/tiny.stats" "$T/tiny.stats" -o "$T/no.html"
absent "$T/no.html"

# an original alone, and a GGUF, whose blocks have scales inside
expect 0 '' "$SWAGE" report "$TINY" -o "$T/plain.html"
page "$T/plain.html" verdict bytes speed engines
expect 0 '' "$SWAGE" convert "$TINY" --to gguf --type Q6_K -o "$T/k.gguf" --allow-requantize --quiet
expect 0 '' "$SWAGE" report "$T/k.gguf" -o "$T/gguf.html"
page "$T/gguf.html" verdict worst bytes speed engines
has "$T/gguf.html" 'Q6_K'

# experts
model moe "$PWD/tests/golden/arch/qwen3_moe"
toy_tokens 4000 >"$T/toy.u16"
expect 0 '' "$SWAGE" quantize "$T/moe" -o "$T/moe4" --calib "$T/toy.u16" --samples 2 --seq-len 64 --allow-fallback \
    --group-size 32 --quiet --html "$T/moe.html"
page "$T/moe.html" verdict layers worst experts bytes speed engines time origin
has "$T/moe.html" 'Calibration tokens that reached each expert'

# a hostile checkpoint: markup in its name, its manifest and its results, numbers beyond all bounds
bad="$T/<b onload=x>&\"q'"
cp -r "$T/w4" "$bad"
chmod -R u+w "$bad"
sed -i -e 's#"gptq"#"</script><script>x()</script><img src=a onerror=y>"#' \
    -e 's#"output_error":\t*[^,]*#"output_error": 1e308#' -e 's#"scale_max":\t*[^,]*#"scale_max": "]]>"#' \
    -e 's#"model.layers.1.mlp.up_proj"#"\\"><svg/onload=z>\\u202e"#' "$bad/manifest.json"
sed -e 's#"reason":\t*null#"reason": "<!-- <script> --> \x01\u0007"#' -e 's#"value":\t*[^,]*#"value": 1e308#' \
    -e 's#"low":\t*[^,]*#"low": -1e308#' -e 's#"window":\t*[^,]*#"window": {"a": []}#' -e 's#\x01##' "$T/w4.json" >"$T/bad.json"
expect 0 '' "$SWAGE" report "$bad" -o "$T/bad.html" --results "$T/bad.json"
page "$T/bad.html" verdict quality layers worst bytes speed engines origin
lacks "$T/bad.html" '<img'
lacks "$T/bad.html" '<svg/onload'
lacks "$T/bad.html" '<b onload'
has "$T/bad.html" '&lt;b onload=x&gt;&amp;&quot;q&#39;'
has "$T/bad.html" '&lt;!-- &lt;script&gt;'
has "$T/bad.html" 'name no linear of this model'

finish
