#!/bin/sh
# Installs the servers of the tests that are missing.   usage: tools/servers.sh [redis|postgresql|pgbouncer|mariadb|etcd|zookeeper|prometheus|compiler|strace|tmux ...]
#
# Redis, PostgreSQL, PgBouncer, MariaDB, etcd, ZooKeeper, Prometheus with promtool, a C compiler for the clock that tests
# turn under Redis, strace, which makes the disk of etcd slow, and tmux for the screen of `leasehold top`; or only those
# that are named. On Debian and Ubuntu they are installed as root or with sudo that needs no password; otherwise the
# command to type is printed. No service is started or enabled.
set -eu

fail() {
    echo "leasehold: $1" >&2
    exit 1
}

list_missing() {
    for one in "$@"; do "missing_$one"; done
}

missing_redis() {
    # An active .venv holds a redis-server of its own, an older one.
    [ -z "${VIRTUAL_ENV:-}" ] || PATH="${PATH#"$VIRTUAL_ENV/bin:"}"
    command -v redis-server >/dev/null || echo redis-server
}

missing_postgresql() {
    ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || echo postgresql
}

missing_pgbouncer() {
    PATH="$PATH:/usr/sbin"
    command -v pgbouncer >/dev/null || echo pgbouncer
}

missing_mariadb() {
    # These packages have no service. The second one has a helper of mariadb-install-db.
    PATH="$PATH:/usr/sbin"
    { command -v mariadbd && command -v my_print_defaults; } >/dev/null || echo mariadb-server-core mariadb-client-core
}

missing_etcd() {
    command -v etcd >/dev/null || echo etcd-server etcd-client
}

missing_zookeeper() {
    # This package has no service; zookeeperd would be the one that has. Java is one that needs no display.
    [ -e /usr/share/java/zookeeper.jar ] || echo zookeeper
    command -v java >/dev/null || echo default-jre-headless
}

missing_prometheus() {
    { command -v prometheus && command -v promtool; } >/dev/null || echo prometheus
}

missing_compiler() {
    { command -v cc >/dev/null && [ -e /usr/include/stdio.h ]; } || echo gcc libc6-dev
}

missing_strace() {
    command -v strace >/dev/null || echo strace
}

missing_tmux() {
    command -v tmux >/dev/null || echo tmux
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
    # Debian starts a service as soon as it is installed, unless this file forbids it. One that exists is kept.
    [ ! -e /usr/sbin/policy-rc.d ] || return 0
    policy=/usr/sbin/policy-rc.d
    printf '#!/bin/sh\nexit 101\n' | $become tee "$policy" >/dev/null
    $become chmod 755 "$policy"
}

forbid_cluster() {
    # Debian creates a database for the service of PostgreSQL, which is not needed here.
    case "$missing" in *postgresql*) ;; *) return 0 ;; esac
    $become mkdir -p "${cluster%/*}"
    echo "create_main_cluster = false" | $become tee "$cluster" >/dev/null
}

clean_up() {
    [ -z "$policy" ] || $become rm -f "$policy"
    $become rm -f "$cluster"
}

install_packages() {
    # No package may be removed for it: MySQL and MariaDB exclude each other.
    # shellcheck disable=SC2086 # several words
    $become env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends --no-remove $missing
}

disable() {
    case "$missing" in *"$1"*)
        $become update-rc.d "$1" disable >/dev/null
        $become service "$1" stop >/dev/null ;;
    esac
}

[ $# -gt 0 ] || set -- redis postgresql pgbouncer mariadb etcd zookeeper prometheus compiler strace tmux
for one in "$@"; do
    command -v "missing_$one" >/dev/null || fail "no such server: $one"
done
missing="$(echo $(list_missing "$@"))" # on one line
[ -n "$missing" ] || exit 0
become_root "$@"
echo "leasehold: installing $missing"
policy=""
cluster=/etc/postgresql-common/createcluster.d/leasehold.conf
trap clean_up EXIT
trap 'exit 1' HUP INT TERM
forbid_services
forbid_cluster
# The package lists may be old or missing: then they are fetched, and the installation is tried once more.
install_packages >/dev/null 2>&1 || { $become apt-get update -qq && install_packages >/dev/null; } ||
    fail "that did not work. Please type:  sudo apt-get install -y $missing"
disable redis-server
disable postgresql
disable pgbouncer
disable etcd
disable prometheus
