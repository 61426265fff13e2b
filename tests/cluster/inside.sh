#!/bin/bash
# Runs a command in the namespaces of a real node that up.sh --node brought up, for example
#   inside.sh DIR ctr -a /run/containerd.sock -n k8s.io images list
# usage: inside.sh DIR COMMAND...
set -euo pipefail
[ $# -ge 2 ] && [ -s "$1/namespace.pid" ] || { echo "usage: inside.sh DIR COMMAND...   (DIR of an up.sh --node)" >&2; exit 2; }
pid=$(cat "$1/namespace.pid"); shift
exec nsenter -t "$pid" -m -n -p -- "$@"
