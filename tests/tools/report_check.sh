#!/bin/bash
# The page of `swage report` in a real browser: no error on its console, every mark labelled by the
# script, tables that sort and filter, labels that follow pointer and keys. Skips without a browser.
#
#   tests/tools/report_check.sh [FILE...]     pages to check; none: two are made of the bundled model
#
# Pictures of the last page, 1280 and 390 pixels wide, go to build/report-check.
set -u
cd "$(dirname "$0")/../.." || exit 1
browser=
for b in chromium chromium-browser google-chrome; do
    command -v "$b" >/dev/null && browser=$b && break
done
[ -n "$browser" ] || { echo "report-check: skipped, no chromium or google-chrome"; exit 0; }
swage=${BUILD:-build/release}/swage
out=$PWD/build/report-check
rm -rf "$out"
mkdir -p "$out"
trap 'rm -rf "$out/profile"' EXIT

show() { # URL ARGUMENT...: what the browser prints
    local url=$1
    shift
    timeout 120 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --allow-file-access-from-files \
        --user-data-dir="$out/profile" --enable-logging=stderr --virtual-time-budget=8000 "$@" "$url" 2>"$out/log"
}

if [ $# -eq 0 ]; then
    "$swage" quantize calib_data/tiny-llama -o "$out/rtn" --method rtn --quiet >/dev/null || exit 1
    "$swage" verify "$out/rtn" --against calib_data/tiny-llama --text calib_data/eval.u16 --max-windows 4 --quiet \
        --report "$out/rtn.json" --html "$out/one.html" >/dev/null || exit 1
    "$swage" report "$out/rtn" calib_data/tiny-llama --results "$out/rtn.json" -o "$out/two.html" --quiet >/dev/null ||
        exit 1
    set -- "$out/one.html" "$out/two.html"
fi

# What a reader does, from a page around: the report itself runs no script but its own.
driver() {
    cat <<END
<!DOCTYPE html><html><body><iframe id="f" src="file://$1" width="1280" height="900"></iframe><pre id="o"></pre><script>
document.getElementById('f').onload = function () {
  const d = this.contentDocument, w = this.contentWindow, say = [];
  const marks = Array.from(d.querySelectorAll('svg.chart .m'));
  const tip = d.getElementById('tip');
  say.push('marks ' + marks.length);
  say.push('labelled ' + marks.filter(m => m.getAttribute('aria-label')).length);
  say.push('charts ' + d.querySelectorAll('svg.chart').length);
  say.push('named ' + d.querySelectorAll('svg.chart[aria-label][aria-describedby]').length);
  for (const x of d.querySelectorAll('details')) x.open = true;
  const table = Array.from(d.querySelectorAll('table.sort')).find(t => t.tBodies[0].rows.length > 3);
  if (table) {
    const heads = Array.from(table.tHead.rows[0].cells);
    const column = heads.findIndex(c => c.classList.contains('n'));
    const values = () => Array.from(table.tBodies[0].rows).map(r => Number(r.cells[column].dataset.v));
    const falls = v => v.every((x, i) => !i || v[i - 1] >= x), rises = v => v.every((x, i) => !i || v[i - 1] <= x);
    heads[column].querySelector('button').click();
    const first = falls(values());
    heads[column].querySelector('button').click();
    say.push('sorts ' + (first && rises(values()) && heads[column].getAttribute('aria-sort') === 'ascending'));
  }
  const field = d.querySelector('input.filter');
  if (field) {
    field.value = 'down_proj';
    field.dispatchEvent(new w.Event('input'));
    const rows = Array.from(d.querySelectorAll('table.sort tbody tr')).filter(r => r.hidden);
    say.push('filters ' + (rows.length > 0 && rows.every(r => !r.textContent.includes('down_proj'))));
  }
  marks[0].dispatchEvent(new w.PointerEvent('pointermove', { bubbles: true, clientX: 50, clientY: 50 }));
  say.push('points ' + (!tip.hidden && tip.textContent.length > 3));
  marks[0].focus();
  const chart = marks[0].closest('svg'), next = chart.querySelectorAll('.m')[1];
  marks[0].dispatchEvent(new w.KeyboardEvent('keydown', { bubbles: true, key: 'ArrowRight' }));
  say.push('moves ' + (!next || d.activeElement === next));
  say.push('fits ' + (d.documentElement.scrollWidth <= 1280));
  this.width = 390;
  d.body.offsetWidth;
  say.push('narrow ' + (d.documentElement.scrollWidth <= 390));
  document.getElementById('o').textContent = say.join('\n');
};
</script></body></html>
END
}

failures=0
for page in "$@"; do
    page=$(realpath "$page")
    driver "$page" >"$out/driver.html"
    show "file://$out/driver.html" --dump-dom --window-size=1300,1000 >"$out/dom"
    want=$(grep -o '<g class="m"' "$page" | wc -l)
    said=$(sed -n '/<pre id="o">/,/<\/pre>/p' "$out/dom" | sed 's/<[^>]*>//g')
    for line in "marks $want" "labelled $want" 'points true' 'moves true' 'fits true' 'narrow true'; do
        grep -qx "$line" <<<"$said" || { echo "FAIL $page: not '$line'"; failures=$((failures + 1)); }
    done
    grep -q ' false$' <<<"$said" && { echo "FAIL $page: $(grep ' false$' <<<"$said" | tr '\n' ' ')"; failures=$((failures + 1)); }
    [ "$(grep -c '^charts' <<<"$said")" -eq 1 ] &&
        [ "$(sed -n 's/^charts //p' <<<"$said")" = "$(sed -n 's/^named //p' <<<"$said")" ] ||
        { echo "FAIL $page: charts without names"; failures=$((failures + 1)); }
    grep 'CONSOLE' "$out/log" && { echo "FAIL $page: its console is not empty"; failures=$((failures + 1)); }
    echo "$(basename "$page"): $(tr '\n' ',' <<<"$said")"
done
show "file://$page" --window-size=1280,1800 --screenshot="$out/1280.png"
echo "<body style='margin:0'><iframe src='file://$page' width=390 height=1800 style='border:0'></iframe>" >"$out/narrow.html"
show "file://$out/narrow.html" --window-size=500,1800 --screenshot="$out/390.png"
exit $((failures > 0))
