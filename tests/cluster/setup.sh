#!/bin/bash
# Builds and installs what the test cluster needs. A second call takes a second.
#
# usage: setup.sh [LEVEL...]          default: plane kwok s3 tools, node where the machine can, azure where npm is
#   plane   etcd, API server, controllers, scheduler, kubectl      (not built when KUBEBUILDER_ASSETS or
#           HONE_TEST_KUBECONFIG brings a control plane)
#   node    plane + containerd, runc, CNI plugins (packages), DNS, a device plugin, pause and test images
#   kwok    simulated nodes
#   kueue   Kueue, for its own suite; not among the default
#   tekton  Tekton's controller, for its own suite; not among the default
#   s3      an S3 server with conditional writes
#   tools   helm, kubeconform, kstatus, Argo CD's Lua health engine
#   helm    helm alone
#   azure   a server that speaks Azure Blob Storage
#   images  the image writer alone (images.sh builds images with it)
#
# env: HONE_CLUSTER_KUBERNETES  minor version of the control plane and the node: 1.35 or 1.34 (default 1.35). What is
#                          called next uses what was set up last.
#      HONE_CLUSTER_BUILD  where the built things lie (default tests/cluster/.build)
#      HONE_CLUSTER_JOBS   parallel compilations (default 2)
set -euo pipefail
. "$(dirname "$0")/parts/lib.sh"
. "$CLUSTER_DIR/parts/build.sh"
GO=$CLUSTER_DIR/go

# The minor versions of Kubernetes that there is a module of, and what of each is built.
declare -A KUBERNETES=([1.35]=v1.35.4 [1.34]=v1.34.4)
KWOK=v0.8.0
KUEUE=v0.17.0
KUBECONFORM=v0.8.0
VERSITYGW=v1.8.0
AZURITE=3.37.0

setup_pki() { build pki "$GO/pki" . -ldflags '-s -w'; }

setup_plane() {
  setup_pki
  command -v curl >/dev/null || need_packages curl
  if [ -n "${HONE_TEST_KUBECONFIG:-}" ]; then
    kubectl_of >/dev/null || fail "plane: the cluster of HONE_TEST_KUBECONFIG needs a kubectl; none is on this machine"
    say "plane: using the cluster of HONE_TEST_KUBECONFIG; none is built"
    return
  fi
  if [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
    say "plane: using the control plane in KUBEBUILDER_ASSETS; none is built"
    return
  fi
  # Without its version the API server calls itself v0.0.0, which helm and kubectl refuse.
  local flags='-s -w' p part minor=${HONE_CLUSTER_KUBERNETES:-1.35} module=$GO/plane
  [ -n "${KUBERNETES[$minor]:-}" ] || fail "plane: HONE_CLUSTER_KUBERNETES is '$minor': use one of ${!KUBERNETES[*]}"
  [ "$minor" = 1.35 ] || module=$GO/plane-$minor
  for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags+=" -X $p.gitVersion=${KUBERNETES[$minor]} -X $p.gitMajor=1 -X $p.gitMinor=${minor#1.} -X $p.gitTreeState=clean -X $p.buildDate=2026-01-01T00:00:00Z"
  done
  build plane "$module" . -tags grpcnotrace -ldflags "$flags"
  for part in etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl; do
    ln -sfn plane "$BIN/$part"
  done
}

setup_images() { build ociimage "$GO/ociimage" . -ldflags '-s -w'; }

setup_node() {
  local why
  why=$(have_node) || fail "node: this machine cannot run one: $why"
  setup_plane
  need_packages containerd runc containernetworking-plugins iptables busybox-static conntrack curl socat iproute2 util-linux
  build dns "$GO/dns" . -ldflags '-s -w'
  build pause "$GO/pause" . -ldflags '-s -w'
  build devices "$GO/devices" . -tags grpcnotrace -ldflags '-s -w'
  setup_images
  mkdir -p "$IMAGES"
  "$BIN/ociimage" -out "$IMAGES/pause.tar" -ref localhost/hone/pause:1 -entrypoint /pause -add "$BIN/pause:/pause" >/dev/null
  # A shell and its tools for tests, and curl: the static busybox cannot look names up.
  local busybox applets=() applet
  busybox=$(command -v busybox)
  while read -r applet; do [ "$applet" = busybox ] || applets+=(-link "/bin/busybox:/bin/$applet"); done < <("$busybox" --list)
  "$BIN/ociimage" -out "$IMAGES/toolbox.tar" -ref localhost/hone/toolbox:1 -user 0:0 \
    -env PATH=/bin -add "$busybox:/bin/busybox" "${applets[@]}" -binary "$(command -v curl):/bin/curl" >/dev/null
}

setup_kwok() { install_go kwok "sigs.k8s.io/kwok/cmd/kwok@$KWOK"; }
setup_kueue() {
  install_go kueue "sigs.k8s.io/kueue/cmd/kueue@$KUEUE"
  # Its kinds and webhooks, as its own module has them.
  local module dir=$BUILD/store/kueue-$KUEUE
  if [ ! -s "$dir/webhooks.yaml" ]; then
    module=$(go mod download -json "sigs.k8s.io/kueue@$KUEUE" | sed -n 's/^.*"Dir": "\(.*\)",$/\1/p')
    [ -d "$module" ] || fail "kueue: the module of Kueue $KUEUE cannot be downloaded"
    mkdir -p "$dir"
    cat "$module"/config/components/crd/bases/*.yaml >"$dir/crds.yaml"
    cp "$module/config/components/webhook/manifests.yaml" "$dir/webhooks.yaml"
    chmod u+w "$dir"/*
  fi
  ln -sfn "../store/kueue-$KUEUE" "$BIN/kueue.d"
}
setup_tekton() {
  build tekton "$GO/tekton" github.com/tektoncd/pipeline/cmd/controller -tags grpcnotrace -ldflags '-s -w'
  # Its kinds and settings, as its own module has them.
  local module dir=$BUILD/store/tekton-$(hash_of <"$GO/tekton/go.sum")
  if [ ! -s "$dir/settings.yaml" ]; then
    module=$(cd "$GO/tekton" && go list -m -f '{{.Dir}}' github.com/tektoncd/pipeline)
    [ -d "$module" ] || fail "tekton: the module of Tekton cannot be downloaded"
    mkdir -p "$dir"
    manifests "$module"/config/300-crds/*.yaml >"$dir/crds.yaml"
    manifests "$module"/config/config-*.yaml >"$dir/settings.yaml"
  fi
  ln -sfn "../store/${dir##*/}" "$BIN/tekton.d"
}
# Files of one or more objects each as one file.
manifests() { local file; for file in "$@"; do echo '---'; cat "$file"; done; }
setup_s3() { install_go versitygw "github.com/versity/versitygw/cmd/versitygw@$VERSITYGW"; }

setup_helm() { build helm "$GO/helm" helm.sh/helm/v3/cmd/helm -tags grpcnotrace -ldflags '-s -w'; }

setup_tools() {
  setup_helm
  install_go kubeconform "github.com/yannh/kubeconform/cmd/kubeconform@$KUBECONFORM"
  build schemas "$GO/schemas" . -ldflags '-s -w'
  build kstatus "$GO/kstatus" . -ldflags '-s -w'
  build argohealth "$GO/argohealth" . -ldflags '-s -w'
}

setup_azure() {
  command -v npm >/dev/null || fail "azure: npm is missing; install Node.js 20 or newer for Azurite"
  local dir=$BUILD/store/azurite-$AZURITE
  [ -x "$dir/node_modules/.bin/azurite-blob" ] || {
    say "installing azurite $AZURITE"
    mkdir -p "$dir"
    local try
    for try in 1 2 3; do
      npm install --silent --no-audit --no-fund --prefix "$dir" "azurite@$AZURITE" && break
      say "azurite was not installed at try $try"
      sleep 5
    done
    [ -x "$dir/node_modules/.bin/azurite-blob" ] || fail "azure: npm cannot install azurite@$AZURITE"
  }
  mkdir -p "$BIN"
  ln -sfn "../store/azurite-$AZURITE/node_modules/.bin/azurite-blob" "$BIN/azurite-blob"
}

# In a function, so that the shell has read all of this before a build that takes minutes.
main() {
  local level why
  if [ $# = 0 ]; then
    set -- plane kwok s3 tools
    if why=$(have_node); then set -- "$@" node; else say "left out: a real node ($why); simulated nodes serve"; fi
    if command -v npm >/dev/null; then set -- "$@" azure; else say "left out: Azurite (npm is missing)"; fi
  fi
  for level in "$@"; do
    declare -F "setup_$level" >/dev/null || fail "unknown level \"$level\" (see the head of setup.sh)"
  done
  need_go
  mkdir -p "$BUILD"
  # One at a time on a machine: the linker of the control plane alone takes 2.4 GB.
  exec 9>"$BUILD/lock"
  flock -n 9 || { say "another setup is running; waiting for it"; flock 9; }
  for level in "$@"; do "setup_$level"; done
}

main "$@"; exit
