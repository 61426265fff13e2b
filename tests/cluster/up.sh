#!/bin/bash
# Brings a Kubernetes up for tests and prints the path of its kubeconfig. Many can be up at once.
#
# usage: up.sh [OPTION...] DIR      everything of it lies in DIR; down.sh DIR ends it
#   --node         with one real node, "node1" (root): containers run, with limits, network and DNS
#   --kwok COUNT   with COUNT simulated nodes, "fake-0" … (beside a real node they are tainted
#                  simulated.hone.dev)
#   --s3           with an S3 server over DIR/s3, buckets models, artifacts and tuning
#   --azure        with a server that speaks Azure Blob Storage
#   --image FILE   an OCI archive to import on the real node (repeatable)
#   --owner PID    end it when that process is gone
#
# DIR/env holds shell variables: KUBECONFIG, HONE_S3_ENDPOINT (from outside) and
# HONE_S3_ENDPOINT_IN_CLUSTER (from pods; none without a real node), the same for HONE_AZURE_,
# and the S3 keys.
#
# env: HONE_TEST_KUBECONFIG   a cluster to use in place of one of ours
#      KUBEBUILDER_ASSETS     a folder with etcd, kube-apiserver (and kubectl) to use in place of ours
#      HONE_CONTROLLER_ARGS, HONE_SCHEDULER_ARGS   further flags of the controllers and the scheduler
#      HONE_KWOK_LEASE_SECONDS  default 40; a thousand simulated nodes renew 100 leases a second then,
#                             so for many of them take more, with --node-monitor-grace-period above it
set -euo pipefail
. "$(dirname "$0")/parts/lib.sh"
. "$CLUSTER_DIR/parts/plane.sh"
. "$CLUSTER_DIR/parts/addons.sh"

node= kwok= s3= azure= owner= images=()
while [ $# -gt 1 ]; do
  case $1 in
    --node) node=1 ;;
    --kwok) kwok=$2; shift ;;
    --s3) s3=1 ;;
    --azure) azure=1 ;;
    --image) images+=("$(realpath "$2")"); shift ;;
    --owner) owner=$2; shift ;;
    *) fail "unknown option $1 (see the head of up.sh)" ;;
  esac
  shift
done
[ $# = 1 ] && [ "${1#-}" = "$1" ] || fail "usage: up.sh [--node] [--kwok COUNT] [--s3] [--azure] [--image FILE]... [--owner PID] DIR"
mkdir -p "$1"
DIR=$(cd "$1" && pwd)
[ ! -e "$DIR/up" ] || fail "$DIR is in use; end it with down.sh $DIR"
touch "$DIR/up"
trap 'status=$?; [ $status = 0 ] || "$CLUSTER_DIR/down.sh" "$DIR" >/dev/null 2>&1; exit $status' EXIT

HOST_ADDRESS=127.0.0.1
if [ -n "${HONE_TEST_KUBECONFIG:-}" ]; then
  [ -z "$node" ] || fail "--node: the cluster of HONE_TEST_KUBECONFIG has its own nodes"
  cp "$HONE_TEST_KUBECONFIG" "$DIR/kubeconfig"
  # Of these only the ports are used, for what runs beside it.
  "$BIN/pki" -dir "$DIR/ports"
  . "$DIR/ports/ports.env"
elif [ -n "$node" ]; then
  why=$(have_node) || fail "--node: this machine cannot run one: $why"
  [ -x "$BIN/dns" ] && [ -f "$IMAGES/pause.tar" ] || fail "--node: not built: run $CLUSTER_DIR/setup.sh node"
  export UP_S3=$s3 UP_AZURE=$azure
  setsid unshare --mount --net --pid --fork --kill-child --mount-proc --propagation private \
    "$CLUSTER_DIR/parts/node.sh" "$DIR" "${images[@]}" >"$DIR/node.log" 2>&1 </dev/null &
  unshare=$!
  echo "$unshare" >"$DIR/unshare.pid"
  until [ -e "$DIR/node.ready" ]; do
    kill -0 "$unshare" 2>/dev/null || { tail -5 "$DIR/node.log" >&2; fail "the node did not come up; logs are in $DIR"; }
    [ "$SECONDS" -lt 240 ] || { tail -5 "$DIR/node.log" >&2; fail "the node is not ready after 240 s; logs are in $DIR"; }
    sleep 0.1
  done
  # The first process of its namespaces, for nsenter.
  pgrep -P "$unshare" >"$DIR/namespace.pid"
  . "$DIR/ports.env"
  for port in "$API_PORT" ${s3:+"$S3_PORT"} ${azure:+"$AZURE_PORT"}; do
    start_service "$DIR/outside" "forward-$port" socat "TCP-LISTEN:$port,bind=127.0.0.1,fork,reuseaddr" "UNIX-CONNECT:$DIR/forward/$port"
  done
else
  start_plane "$DIR"
  if component_of kube-controller-manager >/dev/null; then
    "$(kubectl_of)" --kubeconfig "$DIR/kubeconfig" wait --for=create serviceaccount/default --timeout=60s >/dev/null
  fi
fi
if [ -z "$node" ]; then
  [ -z "$s3" ] || start_s3 "$DIR" "$HOST_ADDRESS"
  [ -z "$azure" ] || start_azure "$DIR" "$HOST_ADDRESS"
fi
if [ -n "$kwok" ]; then
  # kwok always runs outside of the namespaces: it needs nothing but the API server.
  mkdir -p "$DIR/outside"; ln -sfn ../kubeconfig "$DIR/outside/kubeconfig"
  start_kwok "$DIR/outside" "$kwok" ${node:+simulated.hone.dev}
fi

{
  echo "export KUBECONFIG=$DIR/kubeconfig"
  for store in ${s3:+S3:$S3_PORT} ${azure:+AZURE:$AZURE_PORT}; do
    echo "export HONE_${store%%:*}_ENDPOINT=http://$HOST_ADDRESS:${store#*:}"
    [ -z "$node" ] || echo "export HONE_${store%%:*}_ENDPOINT_IN_CLUSTER=http://10.88.0.1:${store#*:}"
  done
  [ -z "$s3" ] || printf 'export HONE_S3_ACCESS_KEY=hone\nexport HONE_S3_SECRET_KEY=hone-test-secret\n'
} >"$DIR/env"
# What a real node runs has been looked at inside.
[ -n "$node" ] || [ ! -d "$DIR/services" ] || check_services "$DIR"
[ ! -d "$DIR/outside/services" ] || check_services "$DIR/outside"
if [ -n "$owner" ]; then
  start_service "$DIR/outside" owner bash -c "while kill -0 $owner 2>/dev/null; do sleep 1; done; rm -f '$DIR/outside/services/owner.pid'; exec '$CLUSTER_DIR/down.sh' --remove '$DIR'"
fi
trap - EXIT
echo "$DIR/kubeconfig"
