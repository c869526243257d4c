#!/usr/bin/env bash
# The steps of the GitHub action, run here: a checkpoint and a report where the gates hold, a failed step
# with its report where one does not; and no input becomes a command.
. "$(dirname "$0")/lib.bash"
STEPS=$PWD/tests/make/package/action_steps.sh
export GITHUB_OUTPUT=$T/output GITHUB_STEP_SUMMARY=$T/summary GITHUB_ACTION_PATH=$PWD/.github
toy_tokens 2048 >"$T/toy.u16"
step() {
    local name=$1
    shift
    (cd "$T" && bash "$STEPS" "$GITHUB_ACTION_PATH/action.yml" "$name" model="$TOY" text="$T/toy.u16" swage="$SWAGE" \
        method=rtn scheme=W8A16 output="$T/out dir" "$@")
}
expect 0 '' step quantize
expect 0 '' step verify max-kl=0.5
grep -qx 'verdict=pass' "$T/output" || fail "output: $(cat "$T/output")"
grep -q 'swage: pass' "$T/summary" || fail "summary: $(cat "$T/summary")"
[ -s "$T/swage-report/report.json" ] && [ -s "$T/swage-report/report.html" ] || fail 'no report'
expect 1 '*' step verify max-kl=0.0000000001 report=other
tail -n 1 "$T/output" | grep -qx 'verdict=fail' || fail "output: $(cat "$T/output")"
[ -s "$T/other/report.json" ] || fail 'no report of what failed'
expect 2 'W5A16' step quantize scheme=W5A16 output="$T/none"
absent "$T/none"
expect 5 '*' step quantize model="\$(touch $T/run)" output="$T/none"
expect 5 '*' step quantize model="x; touch $T/run" output="$T/none"
[ ! -e "$T/run" ] || fail 'an input was run'
expect 2 'no step nothing' step nothing
expect 2 'runs no command' step upload

# every variable that a step uses is given to it, and each of them is an input
for name in quantize verify; do
    awk -v want="$name" '/^    - name: / { on = $3 == want } on' .github/action.yml >"$T/step"
    for v in $(grep -oE 'INPUT_[A-Z0-9_]+' "$T/step" | sort -u); do
        grep -q "^        $v: " "$T/step" || fail "$name uses $v, which it is not given"
    done
done
sed 's/"\$INPUT_OUTPUT"/${{ inputs.output }}/' .github/action.yml >"$T/action.yml"
expect 2 'puts an input into its command' bash "$STEPS" "$T/action.yml" quantize model=x

# make installs what is missing and asks for sudo itself: a build/ that root has made is closed to the next step
grep -q 'sudo' .github/action.yml && fail 'the action runs make as root'

# what the image is built by is there
for target in $(grep -oE '\bmake [a-z]+' .github/Containerfile | sed 's/make //' | grep -v '^dpkg' | sort -u); do
    make -n "$target" >/dev/null 2>&1 || fail "Containerfile names make $target"
done
for p in $(grep -oE '/tmp/deb/[a-z0-9]+_' .github/Containerfile | sed 's|.*/||; s/_//'); do
    grep -q "echo $p ;;" tests/make/package/deb.sh || fail "Containerfile installs $p"
done
finish
