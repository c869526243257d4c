#!/bin/bash
# verify --task: questions with known answers, gates, and answers that changed.
. "$(dirname "$0")/lib.bash"

TASKS=$PWD/calib_data/tasks.jsonl
head -n 6 "$TASKS" >"$T/some.jsonl"
expect 0 '' "$SWAGE" quantize -q "$TINY" --method rtn --scheme W3A16 -o "$T/out"
# of task N in $T/stdout, the first number of a member
figure() { tr -d ' \t\n' <"$T/stdout" | grep -o "\"$1\":{\"value\":[0-9.e-]*" | head -n 1 | sed 's/.*://'; }

# --- a model alone, and two
expect 0 '' "$SWAGE" verify -q "$TINY" --task "$T/some.jsonl"
grep -q '^task some: 6 items, multiple choice' "$T/stdout" || fail 'no task in the report'
grep -q flips "$T/stdout" && fail 'flips without an original'
expect 0 '' "$SWAGE" verify -q "$T/out" --against "$TINY" --task "$T/some.jsonl" --json
cp "$T/stdout" "$T/first"
[ -n "$(figure acc)" ] && [ -n "$(figure flips)" ] && [ -n "$(figure acc_norm_original)" ] || fail 'JSON lacks figures'
tr -d ' \t' <"$T/stdout" | grep -q '"role":"task"' || fail 'the inputs lack the task'
expect 0 '' "$SWAGE" verify -q "$T/out" --against "$TINY" --task "$T/some.jsonl" --json --threads 1
diff <(grep -v seconds "$T/first") <(grep -v seconds "$T/stdout") >/dev/null || fail 'the number of threads shows'
# against itself nothing changes
expect 0 '' "$SWAGE" verify -q "$TINY" --against "$TINY" --task "$T/some.jsonl" --json --max-flips 0
[ "$(figure flips)" = 0 ] && [ "$(figure acc)" = "$(figure acc_original)" ] || fail 'a model has other answers than itself'

# --- what the model itself writes is right, and the likeliest token by token
text=$("$SWAGE" generate -q "$TINY" --prompt 'The function returns the' -n 4)
rest=${text#The function returns the}
[[ $rest == *[\"\\]* ]] && fail "the sample needs an escape: $rest"
printf '{"context": "The function returns the", "continuation": "%s"}\n' "$rest" >"$T/cloze.jsonl"
printf '{"context": "The function returns the", "continuation": " elephant elephant"}\n' >>"$T/cloze.jsonl"
expect 0 '' "$SWAGE" verify -q "$TINY" --task "$T/cloze.jsonl" --json --bos # as generate begins
[ "$(figure acc)" = 0.5 ] || fail "cloze: acc $(figure acc), want 0.5"
line=$("$SWAGE" generate -q "$TINY" --prompt '#include <stdio' -n 12 | sed -n 1p) # and the model ends it
printf '{"prompt": "#include <stdio", "answer": " %s\\n"}\n' "$line" >"$T/write.jsonl"
expect 0 '' "$SWAGE" verify -q "$TINY" --against "$TINY" --task "$T/write.jsonl" --bos --min-acc 1 --max-flips 0
printf '{"prompt": "#include <stdio", "answer": "%sx"}\n' "$line" >"$T/write.jsonl"
expect 1 'min-acc failed: have 0, want at least 0.1' "$SWAGE" verify -q "$TINY" --task "$T/write.jsonl" --min-acc 0.1 --bos

# --- gates
VERIFY=(verify -q "$T/out" --against "$TINY" --task "$T/some.jsonl" "$T/cloze.jsonl")
expect 0 '' "$SWAGE" "${VERIFY[@]}" --min-acc 0 --max-flips 1
expect 1 'min-acc failed: have 0' "$SWAGE" "${VERIFY[@]}" --min-acc 0.99
expect 1 'max-flips failed: have 0.' "$SWAGE" "${VERIFY[@]}" --max-flips 0
expect 2 'gate min_acc is about tasks: give --task FILE' "$SWAGE" verify "$TINY" --min-acc 0.5
expect 2 'gate max_flips is about tasks and two models: give --task FILE and the original' \
    "$SWAGE" verify "$TINY" --task "$T/some.jsonl" --max-flips 0.5
expect 2 'gate max_kl compares two models on a text' "$SWAGE" verify "$TINY" --task "$T/some.jsonl" --max-kl 1

# --- with a text as well, and in the card
head -c 800 calib_data/eval.txt >"$T/text.txt"
expect 0 '' "$SWAGE" verify -q "$T/out" --against "$TINY" --task "$T/some.jsonl" --text "$T/text.txt" \
    --window 64 --no-gap --card "$T/card.md" --html "$T/page.html"
grep -q '^perplexity\|^  perplexity' "$T/stdout" || fail 'no perplexity beside tasks'
grep -q '^| some (acc) | ' "$T/card.md" || fail 'the card lacks the task'
# the page has a section of them, a mark and a row of each measure
for words in 'id="tasks"' 'some, original; ' '>6, multiple choice</span>' '<td>acc_norm, by bytes</td>' '>changed</th>'; do
    grep -qF "$words" "$T/page.html" || fail "the page lacks $words"
done

# --- files that are none: before any model is run
printf '{"query": "a", "choices": ["b", "c"], "gold": 3}\n' >"$T/bad.jsonl"
expect 3 'bad.jsonl: line 1: gold' "$SWAGE" verify -q "$TINY" --task "$T/some.jsonl" "$T/bad.jsonl"
expect 5 'none.jsonl' "$SWAGE" verify -q "$TINY" --task "$T/none.jsonl"
printf '\xff\n' >"$T/bad.jsonl"
expect 3 'bad.jsonl: line 1' "$SWAGE" verify -q "$TINY" --task "$T/bad.jsonl"
cp -r "$TOY" "$T/toy"
expect 5 'tokenizer' "$SWAGE" verify -q "$T/toy" --task "$T/some.jsonl"
finish
