#!/usr/bin/env bash
# The README's tables are the code's.
set -eu
SWAGE=${BUILD:-build/release}/swage sh tests/lint/check_readme.sh
