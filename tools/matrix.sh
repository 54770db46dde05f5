#!/bin/sh
# Runs the tests that another version could break, one line for each version.     usage: tools/matrix.sh [-k ...]
#
# Each redis-py that is supported: the tests of clients. Each other Python: tests/unit and tests/contract. Each has a
# virtual environment of its own in .venv-matrix, which is made when it is missing or older than pyproject.toml, and
# kept.
#
#   PYTHON=.venv/bin/python          the Python for redis-py
#   PYTHON_VERSIONS="3.12 3.13"      the others; one that is not found (on PATH, or by pyenv) is named and left out
#   REDIS_VERSIONS="6.2.0 7.* 8.1.*" the versions of redis-py; empty for none
set -euf

python="${PYTHON:-.venv/bin/python}"
pythons="${PYTHON_VERSIONS-3.12 3.13}"
clients="${REDIS_VERSIONS-6.2.0 7.* 8.1.*}"
of_clients="tests/integration/redis/test_clients.py tests/unit/redis tests/integration/redis/test_borrowed.py
    tests/integration/sentinel/test_ways.py tests/integration/cluster/test_routing.py tests/integration/cluster/test_users.py
    tests/integration/redlock/test_refusals.py tests/contract"
status=0
# Where this is set every process of the tests compiles everything again.
unset PYTHONDONTWRITEBYTECODE

prepare() { # $1 folder, $2 the Python to make it with, $3 what else to install
    [ "$1/.made" -nt pyproject.toml ] && return
    [ -e "$1/bin/python" ] || "$2" -m venv "$1"
    "$1/bin/python" -m pip --disable-pip-version-check --quiet install --upgrade 'pip>=25.1'
    "$1/bin/python" -m pip --disable-pip-version-check --quiet install --editable '.[all]' --group test ${3:+"$3"}
    touch "$1/.made"
}

find_python() { # $1 version; each is run, not only looked up: a pyenv shim may exist without its Python
    candidates="python$1"
    if command -v pyenv >/dev/null; then
        candidates="$candidates $(find "$(pyenv root)/versions" -path "*/$1.*/bin/python$1" | sort -V | tail -1)"
    fi
    for candidate in $candidates; do
        if "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
}

run() { # $1 name, $2 folder, then arguments for pytest
    name="$1" folder="$2"
    shift 2
    if said="$("$folder/bin/python" -m pytest -q -n 2 --dist worksteal -m 'not soak' "$@" 2>&1)"; then
        verdict=ok
    else
        verdict=FAILED status=1
        echo "$said" | grep -E '^(FAILED|ERROR)' || echo "$said" | tail -20
    fi
    printf '%-18s %-6s %s\n' "$name" "$verdict" "$(echo "$said" | tail -1)"
}

for version in $clients; do
    folder=".venv-matrix/${version%.\*}"
    prepare "$folder" "$python" "redis==$version"
    found="$("$folder/bin/python" -c 'import redis; print(redis.__version__)')"
    # shellcheck disable=SC2086 # several words
    run "redis-py $found" "$folder" -k 'redis or not test_contract' $of_clients "$@"
done

for version in $pythons; do
    found="$(find_python "$version")"
    if [ -z "$found" ]; then
        printf '%-18s %-6s %s\n' "Python $version" "-" "not found on this machine"
        continue
    fi
    folder=".venv-matrix/python$version"
    prepare "$folder" "$found"
    found="$("$folder/bin/python" -c 'import platform; print(platform.python_version())')"
    run "Python $found" "$folder" tests/unit tests/contract "$@"
done
exit "$status"
