#!/bin/sh
# Install Debian packages as root or through sudo, quietly, with one clear line on failure.
set -eu
as_root=
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "need root or sudo to install: $*" >&2; exit 1; }
    as_root=sudo
fi
echo "  APT  $*"
$as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq >/dev/null
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" \
    >/dev/null || { echo "could not install: $*" >&2; exit 1; }
