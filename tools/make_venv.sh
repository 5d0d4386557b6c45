#!/bin/sh
# Create a virtual environment: tools/make_venv.sh DIRECTORY. $PYTHON names the interpreter; without it one is looked for.
# Versions that the test suite runs on come first; a candidate counts only if it starts (pyenv leaves dead shims on the path).
set -eu
target=$1

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

if [ -n "${PYTHON:-}" ]; then
    if ! new_enough "$PYTHON"; then
        echo "error: PYTHON=$PYTHON is not a Python 3.11 or newer that starts; name one that is, or leave PYTHON out" >&2
        exit 1
    fi
else
    for candidate in python3.13 python3.12 python3.11 python3 python3.14 python; do
        if new_enough "$candidate"; then
            PYTHON=$candidate
            break
        fi
    done
fi
if [ -z "${PYTHON:-}" ]; then
    echo "error: no Python 3.11 or newer on the path; install one, or type: make PYTHON=/path/to/python3 $(basename "$target")" >&2
    exit 1
fi

# Debian and Ubuntu split ensurepip from their python3; nothing else lacks it.
if ! "$PYTHON" -c 'import ensurepip, venv' >/dev/null 2>&1; then
    package=$("$PYTHON" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "$PYTHON has no venv module: installing $package" >&2
        { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" ||
            { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package"; }
        } </dev/null >&2 || true
    fi
    if ! "$PYTHON" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        echo "error: $PYTHON cannot make virtual environments; type: sudo apt-get install $package" >&2
        exit 1
    fi
fi

echo "environment: $target with $("$PYTHON" --version)" >&2
"$PYTHON" -m venv --clear "$target"
