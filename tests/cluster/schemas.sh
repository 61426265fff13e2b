#!/bin/bash
# Writes JSON schemas of every kind that a running test cluster serves, for kubeconform:
#   kubeconform -strict -schema-location 'OUT/{{.Group}}_{{.ResourceAPIVersion}}_{{.ResourceKind}}.json' FILE...
# usage: schemas.sh DIR OUT        DIR of up.sh
set -euo pipefail
. "$(dirname "$0")/parts/lib.sh"
[ $# = 2 ] && [ -e "$1/kubeconfig" ] || fail "usage: schemas.sh DIR OUT"
"$(kubectl_of)" --kubeconfig "$1/kubeconfig" get --raw /openapi/v2 | "$BIN/schemas" -out "$2"
