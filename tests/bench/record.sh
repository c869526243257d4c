#!/bin/sh
# Measure this machine and append the lines to tests/bench/cpu-results.csv: `record.sh [options of
# swage bench]`. Runs on a quiet machine are worth keeping, others are not.
set -eu
cd "$(dirname "$0")/../.."
lines=$(build/swage bench --csv --quiet "$@")
commit=$(git describe --always --dirty 2>/dev/null || echo unknown)
blas=$(build/swage bench --json --quiet --shape 64x64 --m 1 --rounds 1 --seconds 0 |
    sed -n 's/.*"openblas_core":[^"]*"\([^"]*\)".*/\1/p')
echo "$lines" | sed "s/^/$(date -u +%Y-%m-%d),$commit,$blas,/" | tee -a tests/bench/cpu-results.csv
