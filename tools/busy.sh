#!/bin/sh
# Keeps the machine busy while a command runs.     usage: tools/busy.sh [-t SECONDS] [COMMAND ...]
#
# Two loops that compute and one writer that waits for the disk after every block, as on a machine with other work. The
# load ends with the command, whose exit status it passes on, and after SECONDS (default 1800) at the latest. Without a
# command it lasts for SECONDS.
#
#   tools/busy.sh make test
#   tools/busy.sh -t 60
set -u

seconds=1800
if [ "${1:-}" = "-t" ]; then
    case "${2:-}" in
        '' | *[!0-9]*) echo "usage: tools/busy.sh [-t SECONDS] [COMMAND ...]" >&2; exit 2 ;;
    esac
    seconds=$2
    shift 2
fi

folder=$(mktemp -d "${TMPDIR:-/tmp}/busy.XXXXXX") || exit 1
workers=""

stop() {
    # shellcheck disable=SC2086 # several numbers
    kill $workers 2>/dev/null
    wait 2>/dev/null
    rm -rf "$folder"
}
trap stop EXIT
trap 'exit 130' HUP INT TERM

# `timeout` bounds each worker, also when this script is killed before it can stop them.
for _ in 1 2; do
    timeout "$seconds" sh -c 'while :; do :; done' &
    workers="$workers $!"
done
timeout "$seconds" sh -c 'while :; do dd if=/dev/zero of="$0" bs=64k count=16 oflag=dsync 2>/dev/null; done' \
    "$folder/written" &
workers="$workers $!"

if [ $# -gt 0 ]; then
    "$@"
    exit $?
fi
wait
