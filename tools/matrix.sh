#!/bin/sh
# Runs the tests of clients against each supported version of redis-py.     usage: tools/matrix.sh [-k ...]
#
# Each version has a virtual environment of its own, .venv-matrix/VERSION. It is made with the Python of .venv (or with
# PYTHON) when it is missing or older than pyproject.toml, and kept.
set -eu

python="${PYTHON:-.venv/bin/python}"
tests="tests/integration/redis/test_clients.py tests/unit/redis/test_refused.py tests/integration/redis/test_borrowed.py tests/contract"
status=0

prepare() { # $1 version, $2 folder
    [ "$2/.made" -nt pyproject.toml ] && return
    [ -e "$2/bin/python" ] || "$python" -m venv "$2"
    "$2/bin/python" -m pip --disable-pip-version-check --quiet install --upgrade 'pip>=25.1'
    "$2/bin/python" -m pip --disable-pip-version-check --quiet install --editable '.[all]' --group test "redis==$1"
    touch "$2/.made"
}

for version in '6.2.0' '7.*' '8.1.*'; do
    folder=".venv-matrix/${version%.\*}"
    prepare "$version" "$folder"
    found="$("$folder/bin/python" -c 'import redis; print(redis.__version__)')"
    # shellcheck disable=SC2086 # several words
    if output="$("$folder/bin/python" -m pytest -q -n 2 --dist worksteal -m 'not soak' \
        -k 'redis or not test_contract' $tests "$@" 2>&1)"; then
        verdict=ok
    else
        verdict=FAILED status=1
        echo "$output" | grep -E '^(FAILED|ERROR)' || echo "$output" | tail -20
    fi
    printf 'redis-py %-8s %-6s %s\n' "$found" "$verdict" "$(echo "$output" | tail -1)"
done
exit "$status"
