#!/bin/sh
# Installs what the tests start, when it is missing.     usage: tools/servers.sh [redis]
#
# A Redis server, and a C compiler for the clock that tests turn under it. With `redis`: the server alone. Debian and
# Ubuntu: they are installed when we may, else the command to type is printed. No service is started or enabled.
set -eu

fail() {
    echo "leasehold: $1" >&2
    exit 1
}

list_missing() {
    # An active .venv holds a redis-server of its own, an older one.
    [ -z "${VIRTUAL_ENV:-}" ] || PATH="${PATH#"$VIRTUAL_ENV/bin:"}"
    command -v redis-server >/dev/null || echo redis-server
    [ "${1:-}" = redis ] || { command -v cc >/dev/null && [ -e /usr/include/stdio.h ]; } || echo gcc libc6-dev
}

become_root() {
    command -v apt-get >/dev/null || fail "please install what is missing, then try again: $missing"
    if [ "$(id -u)" = 0 ]; then
        become=""
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        become="sudo"
    else
        fail "these are missing: $missing. Please type:  sudo $0 $*"
    fi
}

forbid_services() {
    # Debian starts a service as soon as it is installed, unless this file says no. Where there is one, it stays.
    [ ! -e /usr/sbin/policy-rc.d ] || return 0
    trap '$become rm -f /usr/sbin/policy-rc.d' EXIT
    trap 'exit 1' HUP INT TERM
    printf '#!/bin/sh\nexit 101\n' | $become tee /usr/sbin/policy-rc.d >/dev/null
    $become chmod 755 /usr/sbin/policy-rc.d
}

install_packages() {
    # shellcheck disable=SC2086 # several words
    $become env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
}

missing="$(echo $(list_missing "$@"))" # on one line
[ -n "$missing" ] || exit 0
become_root "$@"
echo "leasehold: installing $missing"
forbid_services
# The lists may be old or missing; then they are fetched, and we try once more.
install_packages >/dev/null 2>&1 || { $become apt-get update -qq && install_packages >/dev/null; } ||
    fail "that did not work. Please type:  sudo apt-get install -y $missing"
case "$missing" in *redis-server*)
    $become update-rc.d redis-server disable >/dev/null
    $become service redis-server stop >/dev/null ;;
esac
