# start_plane DIR: etcd, API server and, where they are to be had, controllers and scheduler, on free
# ports. Source after lib.sh.
# env: PLANE_SANS       further names in the API server's certificate
#      PLANE_NODES      name=ip of the real nodes
#      PLANE_API_ARGS, HONE_CONTROLLER_ARGS, HONE_SCHEDULER_ARGS   further flags
# shellcheck shell=bash disable=SC2154

# component_of NAME: the path of a component, from KUBEBUILDER_ASSETS or from our build.
component_of() {
  local path=${KUBEBUILDER_ASSETS:-$BIN}/$1
  [ -x "$path" ] && echo "$path"
}

start_plane() {
  local dir=$1 pki=$1/pki
  component_of kube-apiserver >/dev/null || fail "no control plane is built: run $CLUSTER_DIR/setup.sh plane"
  "$BIN/pki" -dir "$dir" -sans "${PLANE_SANS:-}" -nodes "${PLANE_NODES:-}"
  . "$dir/ports.env"
  start_service "$dir" etcd "$(component_of etcd)" --data-dir "$dir/etcd" --unsafe-no-fsync --log-level warn \
    --quota-backend-bytes 4294967296 \
    --listen-client-urls "http://127.0.0.1:$ETCD_PORT" --advertise-client-urls "http://127.0.0.1:$ETCD_PORT" \
    --listen-peer-urls "http://127.0.0.1:$ETCD_PEER_PORT"
  # Loopback may not be advertised as an endpoint of the service "kubernetes", so none is, unless a
  # real node overrides that below.
  # shellcheck disable=SC2086
  start_service "$dir" kube-apiserver "$(component_of kube-apiserver)" \
    --etcd-servers="http://127.0.0.1:$ETCD_PORT" --bind-address="$HOST" --secure-port="$API_PORT" \
    --endpoint-reconciler-type=none \
    --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" --client-ca-file="$pki/ca.crt" \
    --token-auth-file="$pki/tokens.csv" --authorization-mode=Node,RBAC --anonymous-auth=true \
    --service-account-issuer=https://kubernetes.default.svc.cluster.local \
    --service-account-key-file="$pki/sa.pub" --service-account-signing-key-file="$pki/sa.key" \
    --service-cluster-ip-range=10.96.0.0/16 \
    --kubelet-client-certificate="$pki/kubelet-client.crt" --kubelet-client-key="$pki/kubelet-client.key" \
    --kubelet-preferred-address-types=InternalIP,Hostname \
    --requestheader-client-ca-file="$pki/front-proxy-ca.crt" --requestheader-allowed-names=front-proxy-client \
    --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group \
    --requestheader-extra-headers-prefix=X-Remote-Extra- \
    --proxy-client-cert-file="$pki/front-proxy-client.crt" --proxy-client-key-file="$pki/front-proxy-client.key" \
    --enable-admission-plugins=NodeRestriction --allow-privileged=true --profiling=false ${PLANE_API_ARGS:-}
  until plane_ready "$dir"; do
    kill -0 "$(cat "$dir/services/etcd.pid")" 2>/dev/null || plane_failed "$dir" etcd
    kill -0 "$(cat "$dir/services/kube-apiserver.pid")" 2>/dev/null || plane_failed "$dir" kube-apiserver
    [ $((SECONDS)) -lt 180 ] || plane_failed "$dir" kube-apiserver
    sleep 0.1
  done
  start_controllers "$dir"
}

plane_ready() {
  . "$1/ports.env"
  curl -sf --max-time 2 --cacert "$1/pki/ca.crt" -H "Authorization: Bearer $TOKEN" "https://$HOST:$API_PORT/readyz" >/dev/null 2>&1
}

plane_failed() {
  tail -5 "$1/$2.log" >&2
  stop_services "$1"
  fail "$2 did not come up; its log is $1/$2.log"
}

start_controllers() {
  local dir=$1 pki=$1/pki path
  # shellcheck disable=SC2086
  if path=$(component_of kube-controller-manager); then
    start_service "$dir" kube-controller-manager "$path" --kubeconfig="$dir/kube-controller-manager.kubeconfig" \
      --authentication-kubeconfig="$dir/kube-controller-manager.kubeconfig" \
      --authorization-kubeconfig="$dir/kube-controller-manager.kubeconfig" \
      --bind-address=127.0.0.1 --secure-port="$CONTROLLERS_PORT" --leader-elect=false \
      --use-service-account-credentials=true --root-ca-file="$pki/ca.crt" --service-account-private-key-file="$pki/sa.key" \
      --cluster-signing-cert-file="$pki/ca.crt" --cluster-signing-key-file="$pki/ca.key" \
      --kube-api-qps=200 --kube-api-burst=400 --concurrent-job-syncs=20 --profiling=false ${HONE_CONTROLLER_ARGS:-}
  fi
  # shellcheck disable=SC2086
  if path=$(component_of kube-scheduler); then
    start_service "$dir" kube-scheduler "$path" --kubeconfig="$dir/kube-scheduler.kubeconfig" \
      --authentication-kubeconfig="$dir/kube-scheduler.kubeconfig" --authorization-kubeconfig="$dir/kube-scheduler.kubeconfig" \
      --bind-address=127.0.0.1 --secure-port="$SCHEDULER_PORT" --leader-elect=false \
      --kube-api-qps=200 --kube-api-burst=400 --profiling=false ${HONE_SCHEDULER_ARGS:-}
  fi
}
