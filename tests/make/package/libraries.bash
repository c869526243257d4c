# libraries.bash - which shared libraries a program gets, also one for another machine. Source it.
#
# libraries_of FILE...: "NAME => PATH" of each, as ldd says it. RUN is the emulator of the machine that
# the files are for; then its loader is asked, whose path is in the first file, which is a program.
libraries_of() {
    local loader file
    [ -n "${RUN:-}" ] || { ldd "$@"; return; }
    loader=$(readelf -l "$1" | sed -n 's/.*program interpreter: \(.*\)\]/\1/p')
    for file in "$@"; do "$RUN" "$loader" --list "$file" || return; done
}
