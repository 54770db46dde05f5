#!/bin/sh
# Makes the virtual environment .venv.     usage: tools/venv.sh [PYTHON]
#
# Uses the first of PYTHON, python3.11, python3 that is Python 3.11 or newer. Debian and Ubuntu have venv in a package
# of its own: it is installed as root or with sudo that needs no password; otherwise the command to type is printed.
set -eu

fail() {
    echo "leasehold: $1" >&2
    exit 1
}

find_python() {
    # Each is run, not only looked up: a shim of pyenv may exist without its Python.
    for candidate in ${1:-python3.11 python3}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
}

can_make_venv() {
    "$python" -c 'import ensurepip, venv' 2>/dev/null
}

install_venv_module() {
    package="$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
    command -v apt-get >/dev/null || fail "$python has no venv module; install it, then try again."
    if [ "$(id -u)" = 0 ]; then
        become=""
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        become="sudo"
    else
        fail "$python has no venv module. Please type:  sudo apt-get install -y $package"
    fi
    echo "leasehold: installing $package"
    # The package lists may be old or missing: then they are fetched, and the installation is tried once more.
    $become apt-get install -y -qq "$package" >/dev/null 2>&1 ||
        { $become apt-get update -qq && $become apt-get install -y -qq "$package" >/dev/null; } ||
        fail "$package could not be installed. Please type:  sudo apt-get install -y $package"
}

python="$(find_python "${1:-}")"
[ -n "$python" ] || fail "Python 3.11 or newer is needed${1:+ ($1 is older, or does not run)}. If it has another name:  make PYTHON=python3.12 ..."
can_make_venv || install_venv_module
"$python" -m venv .venv
