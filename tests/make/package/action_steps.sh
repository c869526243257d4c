#!/bin/bash
# action_steps.sh ACTION.yml STEP [INPUT=VALUE...] - run one step of a composite action here, as a runner would: the
# text of its `run`, in bash with -e and pipefail, with the variables that its `env` takes from inputs,
# given or by default. GITHUB_OUTPUT and GITHUB_STEP_SUMMARY must be set. Only what this action uses of
# the language is understood; anything else ends with 2.
set -euo pipefail
file=$1 step=$2
shift 2

# The default of an input.
default_of() {
    awk -v want="$1" '
        /^inputs:/ { on = 1; next } /^[a-z]/ { on = 0 }
        on && /^  [a-z]/ { name = $1; sub(/:$/, "", name); if (name == want) found = 1 }
        on && name == want && $1 == "default:" { sub(/^ *default: */, ""); gsub(/^"|"$/, ""); print }
        END { exit !found }' "$file" || { echo "action_steps: no input $1" >&2; exit 2; }
}
value_of() {
    local i
    for ((i = ${#given[@]} - 1; i >= 0; i--)); do # the last of a name counts
        [ "${given[i]%%=*}" != "$1" ] || { printf %s "${given[i]#*=}"; return; }
    done
    default_of "$1"
}
given=("$@")
# The lines of one step, from its name to the next.
lines=$(awk -v want="$step" '/^    - name: / { on = $3 == want } on' "$file")
[ -n "$lines" ] || { echo "action_steps: no step $step" >&2; exit 2; }
text=$(awk '/^      run: \|/ { on = 1; next } on && /^        / { print substr($0, 9); next } on { on = 0 }' <<<"$lines")
[ -n "$text" ] || { echo "action_steps: $step runs no command" >&2; exit 2; }
# shellcheck disable=SC2016
if grep -qF '${{' <<<"$text"; then
    echo "action_steps: $step puts an input into its command" >&2
    exit 2
fi
environment=()
while read -r name input; do
    environment+=("$name=$(value_of "$input")")
done < <(sed -nE 's/^        ([A-Z0-9_]+): \$\{\{ inputs\.([a-z0-9-]+) \}\}$/\1 \2/p' <<<"$lines")
env "${environment[@]}" bash --noprofile --norc -e -o pipefail -c "$text"
