#!/bin/bash
# Chats: a model with a chat template of its own speaks in it, and is calibrated and judged in it.
. "$(dirname "$0")/lib.bash"

model chat "$TINY"
cat >"$T/chat/chat_template.jinja" <<'TEMPLATE'
{{- bos_token }}
{%- for m in messages %}
    {{- m.role | upper ~ ': ' ~ m.content | trim ~ eos_token }}
{%- endfor %}
{%- if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}
TEMPLATE
ids() { tr -d ' \n\t' <"$T/stdout" | grep -o "\"$1\":\[[0-9,]*\]" | head -n 1; }

# The prompt is the rendered text, with one BOS, which the template writes.
expect 0 '' "$SWAGE" generate "$T/chat" --chat --system ' Be brief. ' --prompt 'Why?' -n 4 --json --quiet
have=$(ids prompt_ids)
expect 0 '' "$SWAGE" generate "$TINY" -n 4 --json --quiet \
    --prompt 'SYSTEM: Be brief.<|end_of_text|>USER: Why?<|end_of_text|>ASSISTANT:'
[ -n "$have" ] && [ "$have" = "$(ids prompt_ids)" ] || fail "prompt of a chat: $have"
cat >"$T/messages.jsonl" <<'MESSAGES'
{"role": "system", "content": "Be brief."}
{"role": "user", "content": "Why?"}
MESSAGES
expect 0 '' "$SWAGE" generate "$T/chat" --messages "$T/messages.jsonl" -n 4 --json --quiet
[ "$have" = "$(ids prompt_ids)" ] || fail 'messages of a file are another prompt'

echo '{"content": "x"}' >>"$T/messages.jsonl"
expect 3 'messages.jsonl: line 3: *"role": "user"*' "$SWAGE" generate "$T/chat" \
    --messages "$T/messages.jsonl" --quiet
expect 2 'no chat template; put a chat_template.jinja there' "$SWAGE" generate "$TINY" --chat \
    --prompt x --quiet
expect 2 'a chat without a message' "$SWAGE" generate "$T/chat" --chat --quiet

# Calibration from chats: what it reads is named, and it is the same every time.
for i in $(seq 1 40); do
    echo '{"messages": [{"role": "user", "content": "Line '"$i"' of the text?"},' \
        '{"role": "assistant", "content": "It returns the number of elements in the list."}]}'
    echo '{"conversations": [{"from": "human", "value": "And '"$i"'?"}, {"from": "gpt", "value": "No."}]}'
done >"$T/chat.jsonl"
set -- --calib "$T/chat.jsonl" --samples 4 --seq-len 64 --quiet
expect 0 '' "$SWAGE" quantize "$T/chat" -o "$T/a" "$@"
expect 0 '' "$SWAGE" quantize "$T/chat" -o "$T/b" "$@" --threads 1
cmp "$T/a/model.safetensors" "$T/b/model.safetensors" || fail 'chats are not packed the same way'
for sum in $(sha256sum "$T/chat.jsonl" "$T/chat/chat_template.jinja" | cut -d' ' -f1); do
    grep -q "$sum" "$T/a/manifest.json" || fail "the manifest does not name $sum"
done
expect 0 '' "$SWAGE" calibrate "$T/chat" -o "$T/stats" "$@"
expect 0 '' "$SWAGE" plan "$T/chat" "$@"
expect 0 '' "$SWAGE" verify "$T/a" --against "$T/chat" --text "$T/chat.jsonl" --window 64 --quiet
expect 2 'chat.jsonl: line 1: the model has no chat template' "$SWAGE" quantize "$TINY" \
    -o "$T/none" "$@"
absent "$T/none"
echo '{"messages": [{"role": "user"}]}' >"$T/bad.jsonl"
echo '{% include "other" %}' >"$T/chat/chat_template.jinja"
expect 4 'chat_template.jinja, line 1, column 4: "include"' "$SWAGE" quantize "$T/chat" -o "$T/none" "$@"
absent "$T/none"
finish
