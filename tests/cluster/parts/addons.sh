# What runs beside a control plane: simulated nodes and object stores. Source after lib.sh.
# shellcheck shell=bash disable=SC2154

# start_kwok DIR COUNT [TAINT]: simulated nodes fake-0 … fake-(COUNT-1).
start_kwok() {
  local dir=$1 count=$2 taint=${3:-} i
  [ -x "$BIN/kwok" ] || fail "no kwok is built: run $CLUSTER_DIR/setup.sh kwok"
  start_service "$dir" kwok "$BIN/kwok" --kubeconfig "$dir/kubeconfig" --config "$CLUSTER_DIR/kwok/stages.yaml" \
    --manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake \
    --node-lease-duration-seconds="${HONE_KWOK_LEASE_SECONDS:-40}" --server-address=127.0.0.1:"${KWOK_PORT:-0}"
  # kubectl creates one after the other, so many are dealt out to several of it.
  local parts=1 part
  [ "$count" -lt 50 ] || parts=8
  mkdir -p "$dir/fake-nodes"
  for ((i = 0; i < count; i++)); do
    part=$dir/fake-nodes/$((i % parts)).yaml
    printf -- '---\napiVersion: v1\nkind: Node\nmetadata:\n  name: fake-%d\n  annotations: {kwok.x-k8s.io/node: fake}\n' "$i" >>"$part"
    printf '  labels: {kubernetes.io/hostname: fake-%d, kubernetes.io/os: linux, kubernetes.io/arch: amd64, type: simulated}\n' "$i" >>"$part"
    [ -z "$taint" ] || printf 'spec:\n  taints: [{key: %s, value: "true", effect: NoSchedule}]\n' "$taint" >>"$part"
  done
  find "$dir/fake-nodes" -type f -print0 |
    xargs -0 -r -n 1 -P "$parts" "$(kubectl_of)" --kubeconfig "$dir/kubeconfig" create -f >/dev/null
}

# start_s3 DIR ADDRESS: the directory DIR/s3 as an S3 server, path style; DIR/s3/<bucket> is a bucket.
start_s3() {
  local dir=$1 address=$2
  [ -x "$BIN/versitygw" ] || fail "no S3 server is built: run $CLUSTER_DIR/setup.sh s3"
  mkdir -p "$dir/s3/models" "$dir/s3/artifacts" "$dir/s3/tuning"
  start_service "$dir" s3 env ROOT_ACCESS_KEY=hone ROOT_SECRET_KEY=hone-test-secret \
    "$BIN/versitygw" --port "$address:$S3_PORT" posix "$dir/s3"
  wait_for 20 curl -s --max-time 1 "http://$address:$S3_PORT/" || { tail -5 "$dir/s3.log" >&2; fail "the S3 server did not come up"; }
}

# start_azure DIR ADDRESS: a server that speaks Azure Blob Storage. None stands for Google Cloud Storage: fake-gcs-server
# (1.56) refuses plain uploads by the XML interface, which is the one that object_store writes by.
start_azure() {
  local dir=$1 address=$2
  [ -x "$BIN/azurite-blob" ] || fail "Azurite is not installed: run $CLUSTER_DIR/setup.sh azure"
  mkdir -p "$dir/azure"
  start_service "$dir" azure "$BIN/azurite-blob" --blobHost "$address" --blobPort "$AZURE_PORT" \
    --location "$dir/azure" --skipApiVersionCheck --disableTelemetry --silent
  wait_for 30 curl -s --max-time 1 "http://$address:$AZURE_PORT/" || { tail -5 "$dir/azure.log" >&2; fail "azurite did not come up"; }
}
