#!/usr/bin/env bash
# `swage man`: a page for the program and for every command, which groff, man and mandoc render
# without a warning, with every option of --help in it.
. "$(dirname "$0")/lib.bash"
COMMANDS=$("$SWAGE" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p')
missing=

# render PAGE: it is read without complaints by what there is of the three.
render() {
    if command -v groff >/dev/null; then
        groff -ww -Tutf8 -man "$1" 2>"$T/said" >"$T/text"
        [ ! -s "$T/said" ] || fail "groff: $(head -n 2 "$T/said")"
    fi
    if command -v man >/dev/null && man --warnings -l "$1" >/dev/null 2>&1; then
        LC_ALL=C.UTF-8 MANPAGER=cat man --warnings -E UTF-8 -l -Tutf8 -Z "$1" 2>"$T/said" >/dev/null
        [ ! -s "$T/said" ] || fail "man: $(head -n 2 "$T/said")"
    fi
    if command -v mandoc >/dev/null; then
        mandoc -Tlint -W warning "$1" >"$T/said" 2>&1 || fail "mandoc: $(head -n 2 "$T/said")"
    fi
}
for tool in groff man mandoc; do command -v $tool >/dev/null || missing="$missing $tool"; done

expect 2 'did you mean quantize?' "$SWAGE" man quantise
expect 0 '' "$SWAGE" man --json
grep -q '"roff":' "$T/stdout" || fail 'no JSON'
expect 0 '' "$SWAGE" man
cp "$T/stdout" "$T/swage.1"
grep -qE "^\.TH SWAGE 1 20[0-9]{2}-[0-9]{2}-[0-9]{2} \"swage $("$SWAGE" --version | cut -d ' ' -f 2)\"" "$T/swage.1" ||
    fail "title: $(sed -n 2p "$T/swage.1")"
for part in NAME SYNOPSIS COMMANDS 'EXIT STATUS' ENVIRONMENT 'SEE ALSO'; do
    grep -qx "\.SH $part" "$T/swage.1" || fail "swage.1 lacks $part"
done
for c in $COMMANDS; do grep -qx "\.B $c" "$T/swage.1" || fail "swage.1 lacks $c"; done
for code in 0 1 2 3 4 5 6 7 70 130; do grep -qx "\.B $code" "$T/swage.1" || fail "swage.1 lacks exit code $code"; done
render "$T/swage.1"

for c in $COMMANDS; do
    expect 0 '' "$SWAGE" man "$c"
    cp "$T/stdout" "$T/swage-$c.1"
    for part in NAME SYNOPSIS DESCRIPTION OPTIONS EXAMPLES 'EXIT STATUS' 'SEE ALSO'; do
        grep -qx "\.SH $part" "$T/swage-$c.1" || fail "swage-$c.1 lacks $part"
    done
    sed 's/\\-/-/g; s/\\f.//g' "$T/swage-$c.1" >"$T/plain"
    for o in $("$SWAGE" "$c" --help | grep -oE '^ {2,6}(-[a-z], )?--[a-z0-9-]+' | sed 's/.*--/--/' | sort -u); do
        grep -qE -e "^\.B (-[a-z], )?$o( |\$)" "$T/plain" || fail "swage-$c.1 lacks $o"
    done
    "$SWAGE" "$c" --help | sed -n '/examples:/,/^$/s/^  //p' | grep -v '^$' >"$T/examples"
    while IFS= read -r line; do
        grep -qF -e "$line" <(sed 's/\\(aq/'"'"'/g; s/\\(ti/~/g; s/\\(ha/^/g; s/\\(ga/`/g; s/\\e/\\/g' "$T/plain") ||
            fail "swage-$c.1 lacks the example $line"
    done <"$T/examples"
    render "$T/swage-$c.1"
done
if command -v groff >/dev/null; then # what a reader sees: dashes that can be copied, nothing lost
    grep -q -- '--target-bits X' <(groff -Tutf8 -man "$T/swage-quantize.1" | sed 's/\x1b\[[0-9;]*m//g; s/.\x08//g') ||
        fail 'options are not shown as they are typed'
fi
[ -z "$missing" ] || echo "not installed, so not tried:$missing"
[ "$missing" != ' groff man mandoc' ] || { [ "$failures" -gt 0 ] || exit 77; }
finish
