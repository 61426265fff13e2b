#!/bin/bash
# Imports OCI archives on the real node of DIR.
# usage: load.sh DIR IMAGE.tar...
set -euo pipefail
here=$(dirname "$0"); dir=$1; shift
for image in "$@"; do
  "$here/inside.sh" "$dir" ctr -a /run/containerd.sock -n k8s.io images import "$(realpath "$image")"
done
