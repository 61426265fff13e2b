#!/bin/bash
# Ends what up.sh started in DIR: every process, container, mount and cgroup of it. Logs stay, unless
# --remove is given. Ending what is not up is no error.
#
# usage: down.sh [--remove] DIR
set -uo pipefail
. "$(dirname "$0")/parts/lib.sh"
remove=
[ "${1:-}" != --remove ] || { remove=1; shift; }
[ $# = 1 ] || fail "usage: down.sh [--remove] DIR"
[ -d "$1" ] || exit 0
DIR=$(cd "$1" && pwd)

[ ! -d "$DIR/outside/services" ] || stop_services "$DIR/outside"
if [ -s "$DIR/unshare.pid" ]; then
  # The kernel ends all of a PID namespace with its first process, and --kill-child ends that with
  # unshare, which itself ignores SIGTERM.
  inside=$(pgrep -P "$(cat "$DIR/unshare.pid")" || true)
  kill -9 "$(cat "$DIR/unshare.pid")" 2>/dev/null
  [ -z "$inside" ] || wait_for 10 bash -c "! kill -0 $inside"
elif [ -d "$DIR/services" ]; then
  stop_services "$DIR"
fi
if [ -s "$DIR/cgroup" ]; then
  group=$(cat "$DIR/cgroup")
  groups() { find /sys/fs/cgroup/"${group#/}" /sys/fs/cgroup/*/"${group#/}" -depth -type d 2>/dev/null; }
  for _ in $(seq 1 30); do
    groups | xargs -r rmdir 2>/dev/null
    [ -n "$(groups)" ] || break
    sleep 0.1
  done
  [ -z "$(groups)" ] || say "cgroups are left below $group"
fi
if [ -n "$remove" ]; then
  rm -rf --one-file-system "$DIR"
else
  rm -rf --one-file-system "$DIR"/{etcd,containerd,kubelet,cni-state,forward,services,outside/services,unshare.pid,namespace.pid,cgroup,node.ready,up}
fi
