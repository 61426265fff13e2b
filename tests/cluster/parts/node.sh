#!/bin/bash
# A control plane and one real node; the first process of its own mount, network and PID namespaces.
# up.sh starts it; ending it ends everything. Nothing of the machine outside is changed: all mounts
# and sysctls below are the namespaces' own.
#
# usage: node.sh DIR [IMAGE...]
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$CLUSTER_DIR/parts/plane.sh"
. "$CLUSTER_DIR/parts/addons.sh"
DIR=$1; shift
NODE=node1
ADDRESS=10.88.0.1      # of the node, inside
POD_RANGE=10.244.0.0/24
CTR=(ctr -a /run/containerd.sock -n k8s.io)

private_mounts() {
  mkdir -p "$DIR"/{containerd,kubelet,cni-state,pod-logs,cni,plugins,forward,device-plugins}
  mount --make-rshared /
  mkdir -p /var/lib/cni /var/lib/kubelet/device-plugins
  mount --bind "$DIR/pod-logs" /var/log
  mount --bind "$DIR/cni-state" /var/lib/cni
  # Where device plugins find the kubelet is written into both, whatever its --root-dir is.
  mount --bind "$DIR/device-plugins" /var/lib/kubelet/device-plugins
  mount -t tmpfs -o mode=755 tmpfs /run
  mkdir -p /run/netns /run/lock
}

# The kubelet insists on three settings of the kernel and may not change the machine's: it sees files
# of ours in their place, and everything else below /proc/sys but the namespace's own net/ read-only.
private_sysctls() {
  local setting file
  mount --bind /proc/sys/net /proc/sys/net
  mount --rbind /proc/sys /proc/sys
  mount -o remount,bind,ro /proc/sys
  for setting in kernel/panic=10 kernel/panic_on_oops=1 vm/overcommit_memory=1; do
    file=/run/sysctl/${setting%%=*}
    mkdir -p "${file%/*}"
    echo "${setting#*=}" >"$file"
    mount --bind "$file" "/proc/sys/${setting%%=*}"
  done
}

network() {
  ip link set lo up
  ip link add hone0 type bridge
  ip addr add "$ADDRESS/24" dev hone0
  ip link set hone0 up
  echo 1 >/proc/sys/net/ipv4/ip_forward
  [ ! -e /proc/sys/net/bridge/bridge-nf-call-iptables ] || echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables
  cat >"$DIR/cni/10-hone.conflist" <<J
{"cniVersion": "0.4.0", "name": "hone", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, "ipMasq": false,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "$POD_RANGE"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
J
}

# Version 1: a directory in each hierarchy, below our own memory group so that its limit holds for the
# pods too. Version 2: a directory at the top, because a group with processes cannot pass controllers on.
cgroups() {
  local version own hierarchy controller
  version=$(cgroup_version)
  if [ "$version" = 1 ]; then
    own=$(awk -F: '$2 == "memory" {print $3}' /proc/self/cgroup)
    CGROUP=${own%/}/hone-$(basename "$DIR")-$RANDOM
    echo "$CGROUP" >"$DIR/cgroup"
    for hierarchy in /sys/fs/cgroup/*/; do
      [ ! -e "$hierarchy/cgroup.procs" ] || mkdir -p "$hierarchy$CGROUP"
    done
  else
    CGROUP=/hone-$(basename "$DIR")-$RANDOM
    echo "$CGROUP" >"$DIR/cgroup"
    mkdir "/sys/fs/cgroup$CGROUP"
    for controller in cpu cpuset io memory pids hugetlb; do
      echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null || true
      echo "+$controller" >"/sys/fs/cgroup$CGROUP/cgroup.subtree_control" 2>/dev/null || true
    done
  fi
}

# restrict_oom_score_adj: without CAP_SYS_RESOURCE a score cannot be lowered.
container_runtime() {
  cat >"$DIR/containerd.toml" <<T
version = 2
root = "$DIR/containerd"
state = "/run/containerd-state"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs", "io.containerd.internal.v1.opt"]
[grpc]
  address = "/run/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/hone/pause:1"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$DIR/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
      BinaryName = "$(PATH=$PATH:/usr/sbin:/sbin command -v runc)"
T
  start_service "$DIR" containerd containerd --config "$DIR/containerd.toml"
}

import_images() {
  local image
  wait_for 60 "${CTR[@]}" version
  for image in "$@"; do "${CTR[@]}" images import "$image"; done
}

kubelet() {
  cat >"$DIR/kubelet.yaml" <<Y
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 0.0.0.0
port: $KUBELET_PORT
healthzPort: 0
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $DIR/pki/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $DIR/pki/node-$NODE.crt
tlsPrivateKeyFile: $DIR/pki/node-$NODE.key
containerRuntimeEndpoint: unix:///run/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: $CGROUP
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
featureGates: {KubeletInUserNamespace: true}
clusterDomain: cluster.local
clusterDNS: [$ADDRESS]
resolvConf: ""
volumePluginDir: $DIR/plugins
podLogsDir: /var/log/pods
serializeImagePulls: false
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 1Mi, nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%", imagefs.inodesFree: "0%"}
Y
  start_service "$DIR" kubelet "$BIN/kubelet" --config="$DIR/kubelet.yaml" --kubeconfig="$DIR/node-$NODE.kubeconfig" \
    --root-dir="$DIR/kubelet" --hostname-override=$NODE --node-ip=$ADDRESS
  # Connection tracking is the machine's, so its settings are left alone.
  start_service "$DIR" kube-proxy "$BIN/kube-proxy" --kubeconfig="$DIR/kube-proxy.kubeconfig" --proxy-mode=iptables \
    --cluster-cidr=10.244.0.0/16 --hostname-override=$NODE --bind-address=127.0.0.1 \
    --conntrack-max-per-core=0 --conntrack-min=0 \
    --conntrack-tcp-timeout-established=0 --conntrack-tcp-timeout-close-wait=0
}

dns() {
  cat >"$DIR/Corefile" <<C
.:53 {
  bind $ADDRESS
  errors
  kubernetes cluster.local in-addr.arpa ip6.arpa {
    kubeconfig $DIR/kubeconfig hone-test
    pods insecure
    ttl 5
  }
  cache 5
}
C
  start_service "$DIR" dns "$BIN/dns" -conf "$DIR/Corefile"
}

# A door to the outside for a port: a Unix socket, to which up.sh connects a port of the same number.
forward() {
  start_service "$DIR" "forward-$1" socat "UNIX-LISTEN:$DIR/forward/$1,fork" "TCP:$2:$1"
}

private_mounts
private_sysctls
network
cgroups
container_runtime
import_images "$IMAGES"/pause.tar "$IMAGES"/toolbox.tar "$@" >"$DIR/images.log" 2>&1 &
importing=$!
# The service "kubernetes" leads to the node's address, so that pods reach the API server.
PLANE_SANS=$ADDRESS PLANE_NODES=$NODE=$ADDRESS \
  PLANE_API_ARGS="--bind-address=0.0.0.0 --advertise-address=$ADDRESS --endpoint-reconciler-type=lease" \
  start_plane "$DIR"
. "$DIR/ports.env"
forward "$API_PORT" 127.0.0.1
if [ -n "${UP_S3:-}" ]; then start_s3 "$DIR" 0.0.0.0; forward "$S3_PORT" 127.0.0.1; fi
if [ -n "${UP_AZURE:-}" ]; then start_azure "$DIR" 0.0.0.0; forward "$AZURE_PORT" 127.0.0.1; fi
wait "$importing" || { tail -3 "$DIR/images.log"; fail "an image could not be imported"; }
kubelet
dns
export KUBECONFIG=$DIR/kubeconfig
"$BIN/kubectl" wait --for=create "node/$NODE" --timeout=120s
"$BIN/kubectl" wait --for=create serviceaccount/default --timeout=120s
"$BIN/kubectl" wait --for=condition=Ready "node/$NODE" --timeout=120s
check_services "$DIR"
touch "$DIR/node.ready"
# Orphans come to the first process of a PID namespace: the shell collects them while it waits.
while :; do wait -n || sleep 1; done
