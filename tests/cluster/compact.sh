#!/bin/bash
# Compacts etcd up to its newest revision, so that no watch can go on from an earlier one: who resumes there is answered
# "410 Gone" and lists again.
#
# usage: compact.sh DIR
set -euo pipefail
. "$(dirname "$0")/parts/lib.sh"
[ $# = 1 ] && [ -d "$1" ] || fail "usage: compact.sh DIR"
DIR=$(cd "$1" && pwd)
if [ -s "$DIR/namespace.pid" ] && [ -z "${HONE_INSIDE:-}" ]; then
  # The port of etcd is open in the node's network namespace alone.
  HONE_INSIDE=1 exec "$CLUSTER_DIR/inside.sh" "$DIR" "$CLUSTER_DIR/compact.sh" "$DIR"
fi
. "$DIR/ports.env"
ask() { curl -sf --max-time 10 -X POST "http://127.0.0.1:$ETCD_PORT/v3/$1" -d "$2"; }
revision=$(ask maintenance/status '{}' | sed -n 's/.*"revision":"\([0-9]*\)".*/\1/p')
[ -n "$revision" ] || fail "etcd does not tell its revision"
ask kv/compaction "{\"revision\": \"$revision\", \"physical\": true}" >/dev/null
echo "$revision"
