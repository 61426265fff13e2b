#!/bin/bash
# Ends or starts one process of a running test cluster, to test what happens then.
#
# usage: service.sh DIR list
#        service.sh DIR kill|stop|start|restart NAME     kill is SIGKILL, stop is SIGTERM
# NAME: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kube-proxy, containerd,
#       dns, s3, azure, kwok, as far as they are up
set -euo pipefail
. "$(dirname "$0")/parts/lib.sh"
[ $# -ge 2 ] && [ -d "$1" ] || fail "usage: service.sh DIR list|kill|stop|start|restart [NAME]"
DIR=$(cd "$1" && pwd); action=$2; name=${3:-}
home=$DIR; [ "$action" = list ] || [ -e "$DIR/services/$name" ] || home=$DIR/outside

end() { # end SIGNAL: ends it and waits until it is gone
  local pid
  pid=$(cat "$home/services/$name.pid")
  kill "-$1" "$pid" 2>/dev/null || return 0
  wait_for 30 bash -c "! kill -0 $pid 2>/dev/null || grep -q '^State:.Z' /proc/$pid/status" || fail "$name does not end"
}

list() { # list HOME
  local file
  for file in "$1"/services/*.pid; do
    [ -e "$file" ] || continue
    printf '%s\t%s\t%s\n' "$(basename "$file" .pid)" "$(cat "$file")" "$(kill -0 "$(cat "$file")" 2>/dev/null && echo running || echo ended)"
  done
}

[ "$action" != list ] || [ -n "${HONE_INSIDE:-}" ] || list "$DIR/outside"
# A real node's processes have their numbers in its own PID namespace.
if [ -s "$DIR/namespace.pid" ] && [ -z "${HONE_INSIDE:-}" ] && [ "$home" = "$DIR" ]; then
  HONE_INSIDE=1 exec "$CLUSTER_DIR/inside.sh" "$DIR" "$CLUSTER_DIR/service.sh" "$@"
fi
[ "$action" != list ] || { list "$DIR"; exit; }
[ -e "$home/services/$name" ] || fail "no service \"$name\" in $DIR (service.sh DIR list)"
case $action in
  kill) end KILL ;;
  stop) end TERM ;;
  start) launch_service "$home" "$name" ;;
  restart) end TERM; launch_service "$home" "$name" ;;
  *) fail "unknown action $action" ;;
esac
