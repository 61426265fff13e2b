# syntax=docker/dockerfile:1
# Three images:
#   docker build --target operator -t hone/operator .    no compiler in it, under 30 MB
#   docker build --target console  -t hone/console .     the page: the program `kubectl-hone`
#   docker build --target worker   -t hone/worker .      the program `hone`, LLVM linked into it
#
# Each holds a program, the shared libraries that it lists, certificates, and an unprivileged user:
# no shell, no package manager. tests/cluster/images.sh makes the same content without a daemon, from
# cargo's outputs; a test compares the two.

FROM rust:1-bookworm AS build
RUN rm -f /etc/apt/apt.conf.d/docker-clean
WORKDIR /hone
COPY . .
# What all images have around their program.
RUN mkdir -p /root-common/etc/ssl/certs /root-common/tmp /root-common/usr/bin \
 && chmod 1777 /root-common/tmp \
 && cp /etc/ssl/certs/ca-certificates.crt /root-common/etc/ssl/certs/ \
 && printf 'root:x:0:0:root:/:/nologin\nhone:x:65532:65532:hone:/:/nologin\n' >/root-common/etc/passwd \
 && printf 'root:x:0:\nhone:x:65532:\n' >/root-common/etc/group \
 && printf 'hosts: files dns\n' >/root-common/etc/nsswitch.conf
# with-libraries ROOT PROGRAM...: puts programs into ROOT/usr/bin, and all that they load beside them.
RUN printf '%s\n' '#!/bin/sh' 'set -eu' 'root=$1; shift' 'cp -a /root-common/. "$root"' 'for program; do' \
 '  cp -L "$program" "$root/usr/bin/"' \
 '  ldd "$program" | sed -n "s/.*=> \(\/[^ ]*\).*/\1/p; s/^[[:space:]]*\(\/[^ ]*\) (.*/\1/p" | while read -r library; do' \
 '    mkdir -p "$root$(dirname "$library")"; cp -L "$library" "$root$library"' \
 '  done' 'done' >/usr/local/bin/with-libraries && chmod +x /usr/local/bin/with-libraries

FROM build AS build-operator
RUN --mount=type=cache,target=/hone/target --mount=type=cache,target=/usr/local/cargo/registry \
    cargo build --locked --release --package hone-operator --package hone-console \
 && strip target/release/hone-operator -o /tmp/hone-operator \
 && mkdir /root-operator && with-libraries /root-operator /tmp/hone-operator

FROM build AS build-console
RUN --mount=type=cache,target=/hone/target --mount=type=cache,target=/usr/local/cargo/registry \
    cargo build --locked --release --package hone-operator --package hone-console \
 && strip target/release/kubectl-hone -o /tmp/kubectl-hone \
 && mkdir /root-console && with-libraries /root-console /tmp/kubectl-hone

FROM build AS build-worker
# LLVM 19 and lld, as for building on any machine.
RUN --mount=type=cache,target=/var/cache/apt cargo run --package xtask -- setup
RUN --mount=type=cache,target=/hone/target --mount=type=cache,target=/usr/local/cargo/registry \
    cargo build --locked --release --package hone-worker --no-default-features --features static-llvm \
 && strip target/release/hone -o /tmp/hone \
 && mkdir /root-worker && with-libraries /root-worker /tmp/hone "$(command -v ld.lld-19)"

FROM scratch AS operator
COPY --from=build-operator /root-operator /
ENV PATH=/usr/bin SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
USER 65532:65532
ENTRYPOINT ["/usr/bin/hone-operator"]

FROM scratch AS console
COPY --from=build-console /root-console /
ENV PATH=/usr/bin SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
USER 65532:65532
ENTRYPOINT ["/usr/bin/kubectl-hone"]

FROM scratch AS worker
COPY --from=build-worker /root-worker /
ENV PATH=/usr/bin SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
USER 65532:65532
ENTRYPOINT ["/usr/bin/hone"]
