#!/bin/bash
# Builds the operator's, the page's and the worker's images from cargo's release outputs, without a daemon and
# without a registry: localhost/hone/operator:dev, localhost/hone/console:dev and localhost/hone/worker:dev, as OCI
# archives in .build/images/operator.tar, console.tar and worker.tar. The same programs give the same digests.
#
# usage: images.sh [operator|console|worker]...       default: operator and worker
#
# env: CARGO_TARGET_DIR    where cargo built (default target/); its release/hone-operator and
#                          release/hone are taken. HONE_PROFILE=debug takes those of a debug build.
#      HONE_IMAGE_TAG      default dev
#      HONE_IMAGE_OUT      the folder for the archives
#      HONE_WORKER_TOOLS   programs that the worker calls, as paths; default: ld.lld-19 where present
set -euo pipefail
. "$(dirname "$0")/parts/lib.sh"
OUT=${CARGO_TARGET_DIR:-$CLUSTER_DIR/../../target}/${HONE_PROFILE:-release}
TAG=${HONE_IMAGE_TAG:-dev}
ARCHIVES=${HONE_IMAGE_OUT:-$IMAGES}
[ -x "$BIN/ociimage" ] || "$CLUSTER_DIR/setup.sh" images
mkdir -p "$ARCHIVES"

# All run as an unprivileged user on a read-only root, with nothing but what is listed here.
COMMON=(
  -text /tmp/= -text /etc/=
  -text "/etc/passwd=root:x:0:0:root:/:/nologin
hone:x:65532:65532:hone:/:/nologin"
  -text "/etc/group=root:x:0:
hone:x:65532:"
  -text "/etc/nsswitch.conf=hosts: files dns"
)
CERTIFICATES=/etc/ssl/certs/ca-certificates.crt
[ -f "$CERTIFICATES" ] || fail "no CA certificates in $CERTIFICATES: install ca-certificates"
COMMON+=(-add "$CERTIFICATES:$CERTIFICATES")

# program NAME: the path of what cargo built, without its symbols.
program() {
  [ -x "$OUT/$1" ] || fail "no $OUT/$1: build it (cargo xtask shipped), or set CARGO_TARGET_DIR"
  mkdir -p "$ARCHIVES/programs"
  strip -o "$ARCHIVES/programs/$1" "$OUT/$1"
  echo "$ARCHIVES/programs/$1"
}

build_operator() {
  local operator
  operator=$(program hone-operator)
  "$BIN/ociimage" -out "$ARCHIVES/operator.tar" -ref "localhost/hone/operator:$TAG" \
    -entrypoint /usr/bin/hone-operator -env PATH=/usr/bin -env "SSL_CERT_FILE=$CERTIFICATES" \
    "${COMMON[@]}" -layer -binary "$operator:/usr/bin/hone-operator"
}

build_console() {
  local console
  console=$(program kubectl-hone)
  "$BIN/ociimage" -out "$ARCHIVES/console.tar" -ref "localhost/hone/console:$TAG" \
    -entrypoint /usr/bin/kubectl-hone -env PATH=/usr/bin -env "SSL_CERT_FILE=$CERTIFICATES" \
    "${COMMON[@]}" -layer -binary "$console:/usr/bin/kubectl-hone"
}

# The tools' layer comes first: it is large and seldom changes.
build_worker() {
  local tools=() tool worker
  worker=$(program hone)
  for tool in ${HONE_WORKER_TOOLS-$(command -v ld.lld-19 || true)}; do
    say "worker: with $tool"
    tools+=(-binary "$tool:/usr/bin/$(basename "$tool")")
  done
  "$BIN/ociimage" -out "$ARCHIVES/worker.tar" -ref "localhost/hone/worker:$TAG" \
    -entrypoint /usr/bin/hone -env PATH=/usr/bin -env "SSL_CERT_FILE=$CERTIFICATES" \
    "${COMMON[@]}" "${tools[@]}" -layer -binary "$worker:/usr/bin/hone"
}

[ $# != 0 ] || set -- operator worker
for image in "$@"; do
  case $image in operator | console | worker) "build_$image" ;; *) fail "unknown image $image: operator, console or worker" ;; esac
done
