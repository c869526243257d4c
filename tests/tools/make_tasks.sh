#!/bin/sh
# Writes calib_data/tasks.jsonl: questions of multiple choice out of calib_data/eval.txt, by which of
# four spans of the same sample goes on from the passage that is given. The same text gives the same
# questions: positions come from a generator of its own.
set -eu
cd "$(dirname "$0")/../.."
LC_ALL=C awk -v n_items=300 -v n_query=40 -v n_choice=8 -v seed=1 '
function draw(n) { seed = (seed * 16807) % 2147483647; return int(seed / 2147483647 * n) }
function quoted(text) { return "\"" text "\"" } # nothing that JSON would escape is taken
function span(words, at, n,    text, i) {
    for (i = at; i < at + n; i++) text = text (i > at ? " " : "") words[i]
    return text
}
BEGIN { RS = ""; FS = "[ \t\n]+" }
{ samples[++n_samples] = $0 }
END {
    while (n_made < n_items && n_tries++ < 100000) {
        n = split(samples[1 + draw(n_samples)], words)
        if (n < 3 * n_query) continue
        at = 1 + draw(n - n_query - n_choice)
        gold = draw(4)
        text = ""
        split("", seen)
        for (i = 0; i < 4; i++) {
            from = i == gold ? at + n_query : 1 + draw(n - n_choice)
            choice = span(words, from, n_choice)
            if (choice in seen || choice ~ /[\001-\037\177"\\]/) break
            seen[choice] = 1
            text = text (i ? ", " : "") quoted(choice)
        }
        if (i < 4) continue
        query = span(words, at, n_query)
        if (query ~ /[\001-\037\177"\\]/) continue
        printf "{\"query\": %s, \"choices\": [%s], \"gold\": %d}\n", quoted(query), text, gold
        n_made++
    }
}' calib_data/eval.txt >calib_data/tasks.jsonl
sh tests/lint/check_calib_data.sh update
