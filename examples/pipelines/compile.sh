#!/bin/sh
# Applies a ModelCompilation, waits until it is finished, and writes its results into files: what the
# Tekton task and the Kubeflow component run, and any other pipeline that can run kubectl may.
#
# env: MANIFEST   the ModelCompilation as YAML
#      TIMEOUT    as kubectl takes it, such as 4h
#      ARTIFACT DIGEST LATENCY   files to write: URI, sha256:…, median such as 1.31ms
set -eu
name=$(printf '%s\n' "$MANIFEST" | kubectl apply -f - -o name)
# Finished is true whether it succeeded or failed. kubectl ignores a condition of an older version.
kubectl wait "$name" --for=condition=Finished --timeout="$TIMEOUT"
get() { kubectl get "$name" -o jsonpath="$1"; }
if [ "$(get '{.status.phase}')" != Succeeded ]; then
  get '{.status.failure.reason}: {.status.failure.message}{"\n"}' >&2
  exit 1
fi
get '{.status.targets[0].artifact.uri}' >"$ARTIFACT"
get '{.status.targets[0].artifact.digest}' >"$DIGEST"
get '{.status.targets[0].latency.p50}' >"$LATENCY"
