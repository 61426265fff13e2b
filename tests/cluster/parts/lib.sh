# Shared by the scripts of tests/cluster. Source it; it has no effects but these definitions.
# shellcheck shell=bash

CLUSTER_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Everything that is built or downloaded lies here. It may be shared between checkouts: what is in it
# is found by the hash of what it was made from.
BUILD=${HONE_CLUSTER_BUILD:-$CLUSTER_DIR/.build}
BIN=$BUILD/bin
IMAGES=$BUILD/images

say() { printf 'cluster: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

# have_node: can this machine run a real node? If not, prints why.
# (Root, namespaces and writable cgroups; what packages can add is not asked here.)
have_node() {
  [ "$(uname -s)" = Linux ] || { echo "it needs Linux"; return 1; }
  [ "$(id -u)" = 0 ] || { echo "it needs root, for namespaces, mounts and cgroups"; return 1; }
  unshare --mount --net --pid --fork true 2>/dev/null || { echo "mount, network or PID namespaces are not permitted"; return 1; }
  unshare --mount mount -t tmpfs tmpfs /mnt 2>/dev/null || { echo "mounting is not permitted"; return 1; }
  cgroup_version >/dev/null || { echo "no writable memory cgroup"; return 1; }
}

# cgroup_version: prints 1 or 2, for the hierarchy that limits memory, if we may make groups in it.
cgroup_version() {
  local own probe
  if [ -d /sys/fs/cgroup/memory ]; then
    own=$(awk -F: '$2 == "memory" {print $3}' /proc/self/cgroup)
    probe=/sys/fs/cgroup/memory${own%/}/hone-probe-$$
    mkdir "$probe" 2>/dev/null || return 1
    rmdir "$probe"
    echo 1
  elif grep -qw memory /sys/fs/cgroup/cgroup.controllers 2>/dev/null; then
    probe=/sys/fs/cgroup/hone-probe-$$
    grep -qw memory /sys/fs/cgroup/cgroup.subtree_control || echo +memory >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null || return 1
    mkdir "$probe" 2>/dev/null || return 1
    rmdir "$probe"
    echo 2
  else
    return 1
  fi
}

# kubectl_of: the kubectl to use: ours, the one beside a given control plane, or the machine's.
kubectl_of() {
  local k
  for k in "$BIN/kubectl" "${KUBEBUILDER_ASSETS:-/nonexistent}/kubectl"; do
    [ ! -x "$k" ] || { echo "$k"; return; }
  done
  command -v kubectl
}

# start_service DIR NAME COMMAND...: starts a background process whose output goes to DIR/NAME.log and
# keeps its command in DIR/services/NAME, so that service.sh can end it and start it again.
start_service() {
  local dir=$1 name=$2; shift 2
  mkdir -p "$dir/services"
  { printf '#!/bin/bash\nexec'; printf ' %q' "$@"; echo; } >"$dir/services/$name"
  chmod +x "$dir/services/$name"
  launch_service "$dir" "$name"
}

# launch_service DIR NAME: starts what start_service has described.
launch_service() {
  setsid "$1/services/$2" >>"$1/$2.log" 2>&1 </dev/null &
  echo $! >"$1/services/$2.pid"
}

# stop_services DIR: ends all of them, last first: politely for a second (their state is thrown away),
# then not.
stop_services() {
  local file pids=() pid _
  for file in $(ls -t "$1"/services/*.pid 2>/dev/null); do
    pid=$(cat "$file"); kill "$pid" 2>/dev/null && pids+=("$pid")
  done
  for _ in $(seq 1 10); do
    any_alive "${pids[@]}" || break
    sleep 0.1
  done
  for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null; done
  rm -f "$1"/services/*.pid
}

# check_services DIR: fails, with the end of its log, when one has ended by itself.
check_services() {
  local file name
  for file in "$1"/services/*.pid; do
    name=$(basename "$file" .pid)
    kill -0 "$(cat "$file")" 2>/dev/null || { tail -5 "$1/$name.log" >&2; fail "$name has ended; its log is $1/$name.log"; }
  done
}

any_alive() {
  local pid
  for pid in "$@"; do kill -0 "$pid" 2>/dev/null && return 0; done
  return 1
}

# wait_for SECONDS COMMAND...: until the command succeeds, at five times a second.
wait_for() {
  local until=$((SECONDS + $1)); shift
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$until" ] || return 1
    sleep 0.2
  done
}
