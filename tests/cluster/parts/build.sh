# Builds Go programs below $BUILD, once for each state of their sources. Source after lib.sh.
# shellcheck shell=bash disable=SC2154

PARALLEL=${HONE_CLUSTER_JOBS:-2}

need_go() {
  command -v go >/dev/null || fail "Go is missing: install Go 1.26 or newer (go.dev/doc/install) and call this again"
}

# publish NAME KEY: makes $BIN/NAME the program that was built from KEY.
publish() {
  mkdir -p "$BIN"
  ln -sfn "../store/$1-$2" "$BIN/.$1.$$" && mv -T "$BIN/.$1.$$" "$BIN/$1"
}

hash_of() { sha256sum | cut -c1-16; }

# build NAME DIR PACKAGE [go build flags...]: builds PACKAGE of the module in DIR.
build() {
  local name=$1 dir=$2 package=$3 key started=$SECONDS; shift 3
  key=$( { go env GOVERSION GOARCH; echo "$package" "$@"; cd "$dir" && find -L . -type f \( -name '*.go' -o -name 'go.*' \) | LC_ALL=C sort | xargs sha256sum; } | hash_of)
  if [ ! -x "$BUILD/store/$name-$key" ]; then
    say "building $name"
    mkdir -p "$BUILD/store"
    (cd "$dir" && CGO_ENABLED=0 nice -n 10 go build -p "$PARALLEL" -mod=readonly -trimpath -buildvcs=false "$@" -o "$BUILD/store/.$name-$key" "$package")
    mv "$BUILD/store/.$name-$key" "$BUILD/store/$name-$key"
    say "built $name in $((SECONDS - started)) s"
  fi
  publish "$name" "$key"
}

# install_go NAME PACKAGE@VERSION [go install flags...]: builds a program from its own module.
install_go() {
  local name=$1 package=$2 key started=$SECONDS; shift 2
  key=$( { go env GOVERSION GOARCH; echo "$package" "$@"; } | hash_of)
  if [ ! -x "$BUILD/store/$name-$key" ]; then
    say "building $name ($package)"
    mkdir -p "$BUILD/store/.install-$name"
    GOBIN=$BUILD/store/.install-$name CGO_ENABLED=0 nice -n 10 go install -p "$PARALLEL" -trimpath -ldflags '-s -w' "$@" "$package"
    mv "$BUILD/store/.install-$name"/* "$BUILD/store/$name-$key"
    rmdir "$BUILD/store/.install-$name"
    say "built $name in $((SECONDS - started)) s"
  fi
  publish "$name" "$key"
}

# need_packages PACKAGE...: Debian's or Ubuntu's packages, installed when missing and said aloud.
need_packages() {
  local missing=() p
  for p in "$@"; do dpkg -s "$p" >/dev/null 2>&1 || missing+=("$p"); done
  [ ${#missing[@]} != 0 ] || return 0
  command -v apt-get >/dev/null || fail "this system has no apt-get; install the equivalents of: ${missing[*]}"
  [ "$(id -u)" = 0 ] || fail "needs root to install: ${missing[*]} (apt-get install ${missing[*]})"
  say "installing system packages: ${missing[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >"$BUILD/apt.log" 2>&1 ||
    { tail -20 "$BUILD/apt.log" >&2; fail "apt-get could not install: ${missing[*]}"; }
}
