#!/bin/bash
# Ends a whole node at once, as a loss of power does, and starts it again: the kubelet, the container runtime, every
# container. The control plane and the stores go on, as those of another machine would.
#
# usage: crash.sh DIR kill|start      (DIR of an up.sh --node)
set -euo pipefail
. "$(dirname "$0")/parts/lib.sh"
[ $# = 2 ] && [ -s "$1/namespace.pid" ] || fail "usage: crash.sh DIR kill|start   (DIR of an up.sh --node)"
DIR=$(cd "$1" && pwd); action=$2
if [ -z "${HONE_INSIDE:-}" ]; then
  HONE_INSIDE=$(readlink "/proc/$(cat "$DIR/namespace.pid")/ns/pid")
  export HONE_INSIDE
  exec "$CLUSTER_DIR/inside.sh" "$DIR" "$CLUSTER_DIR/crash.sh" "$DIR" "$action"
fi
# Outside of the node's namespaces it would end the containers of the machine.
[ "$HONE_INSIDE" = "$(readlink /proc/self/ns/pid)" ] || fail "this is not the node of $DIR"
NODE_SERVICES=(kubelet containerd kube-proxy)

# The processes of all containers, by the groups that the kubelet makes for pods.
in_containers() {
  local group
  group=$(cat "$DIR/cgroup")
  find "/sys/fs/cgroup${group}" /sys/fs/cgroup/*"${group}" -mindepth 1 -name cgroup.procs -exec cat {} + 2>/dev/null | sort -un
}

end_all() {
  local service pids=() _
  for service in "${NODE_SERVICES[@]}"; do pids+=("$(cat "$DIR/services/$service.pid")"); done
  # Those who could restart or report something end first; the containers in the same moment.
  kill -9 "${pids[@]}" $(pgrep -f '^[^ ]*containerd-shim') $(in_containers) 2>/dev/null || true
  for _ in $(seq 1 50); do
    # What a shim or runc was just about to start.
    kill -9 $(pgrep -f '^[^ ]*(containerd-shim|runc)') $(in_containers) 2>/dev/null || return 0
    sleep 0.1
  done
  fail "containers do not end: $(in_containers | tr '\n' ' ')"
}

# What a machine forgets that starts again: mounts of containers and volumes, network namespaces, the runtime's state.
forget() {
  local mount
  while read -r mount; do umount -l "$mount" 2>/dev/null || true; done < <(
    awk '{print $5}' /proc/self/mountinfo | grep -E "^(/run/containerd-state/|/run/netns/|$DIR/kubelet/pods/)" | sort -r
  )
  rm -rf --one-file-system /run/containerd-state /run/containerd.sock /run/containerd.sock.ttrpc /run/netns/*
}

case $action in
  kill) end_all; forget ;;
  start)
    launch_service "$DIR" containerd
    wait_for 30 ctr -a /run/containerd.sock version || fail "containerd does not come up"
    launch_service "$DIR" kubelet
    launch_service "$DIR" kube-proxy
    ;;
  *) fail "unknown action $action" ;;
esac
