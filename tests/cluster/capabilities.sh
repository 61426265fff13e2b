#!/bin/bash
# Says what the test cluster can do here, one line a capability: NAME, STATE, REASON, with tabs between.
#   yes          it is set up
#   missing      setup.sh would bring it; REASON is the command
#   impossible   this machine (or the cluster that was given) cannot; REASON says why
#
# plane        an API server             controllers  with controllers and a scheduler
# node         a real node               kwok         simulated nodes
# kueue        Kueue itself
# tekton       Tekton's controller
# s3 azure     object stores             images       the image writer
# helm kubeconform kstatus argohealth    programs
# opencl       a device plugin, and an OpenCL driver that it can hand to containers
# product      our own programs as they ship, for images
set -uo pipefail
. "$(dirname "$0")/parts/lib.sh"

line() { printf '%s\t%s\t%s\n' "$@"; }
program() { # program NAME LEVEL FILE...
  local name=$1 level=$2 file; shift 2
  for file in "$@"; do
    [ -e "$file" ] || { line "$name" missing "tests/cluster/setup.sh $level"; return; }
  done
  line "$name" yes ""
}

if [ -n "${HONE_TEST_KUBECONFIG:-}" ]; then
  if "$(kubectl_of)" --kubeconfig "$HONE_TEST_KUBECONFIG" --request-timeout=5s get --raw /readyz >/dev/null 2>&1; then
    line plane yes "given by HONE_TEST_KUBECONFIG"
    line controllers yes "given by HONE_TEST_KUBECONFIG"
  else
    line plane impossible "the cluster of HONE_TEST_KUBECONFIG does not answer"
    line controllers impossible "the cluster of HONE_TEST_KUBECONFIG does not answer"
  fi
  line node impossible "images cannot be loaded onto the nodes of the cluster of HONE_TEST_KUBECONFIG"
elif [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
  program plane plane "$BIN/pki" "$KUBEBUILDER_ASSETS/etcd" "$KUBEBUILDER_ASSETS/kube-apiserver"
  if [ -x "$KUBEBUILDER_ASSETS/kube-controller-manager" ] && [ -x "$KUBEBUILDER_ASSETS/kube-scheduler" ]; then
    line controllers yes "given by KUBEBUILDER_ASSETS"
  else
    line controllers impossible "KUBEBUILDER_ASSETS has no kube-controller-manager and kube-scheduler"
  fi
  line node impossible "KUBEBUILDER_ASSETS brings no kubelet"
else
  program plane plane "$BIN/plane" "$BIN/pki"
  program controllers plane "$BIN/plane" "$BIN/pki"
  if why=$(have_node); then
    program node node "$BIN/plane" "$BIN/dns" "$IMAGES/pause.tar" "$IMAGES/toolbox.tar" \
      "$(command -v containerd || echo /nonexistent)" "$(PATH=$PATH:/usr/sbin command -v runc || echo /nonexistent)"
  else
    line node impossible "$why"
  fi
fi
program kwok kwok "$BIN/kwok"
program kueue kueue "$BIN/kueue" "$BIN/kueue.d"
program tekton tekton "$BIN/tekton" "$BIN/tekton.d"
program s3 s3 "$BIN/versitygw"
if command -v npm >/dev/null; then
  program azure azure "$BIN/azurite-blob"
else
  line azure impossible "npm is missing: install Node.js 20 or newer for Azurite"
fi
program images images "$BIN/ociimage"
if [ ! -x "$BIN/devices" ]; then
  line opencl missing "tests/cluster/setup.sh node"
elif [ -f /etc/OpenCL/vendors/pocl.icd ] && /sbin/ldconfig -p | grep -q libOpenCL.so.1; then
  line opencl yes ""
else
  line opencl missing "cargo xtask setup --tests"
fi
program kubeconform tools "$BIN/kubeconform" "$BIN/schemas"
for tool in helm kstatus argohealth; do program $tool tools "$BIN/$tool"; done
built=${CARGO_TARGET_DIR:-$CLUSTER_DIR/../../target}/${HONE_PROFILE:-release}
if [ -x "$built/hone" ] && [ -x "$built/hone-operator" ]; then
  line product yes ""
else
  line product missing "cargo xtask shipped"
fi
