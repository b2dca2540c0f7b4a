#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_install.sh BUILD CONSUMER WORK COMPILER VERSION: installs BUILD below WORK, moves the installation, and builds
# and runs the consumer against it twice: through find_package(memstrata CONFIG) and through pkg-config.
set -euo pipefail
build=$1 consumer=$2 work=$3 compiler=$4 version=$5

fail() {
  printf 'install: %s\n' "$*" >&2
  exit 1
}

rm -rf "$work"
mkdir -p "$work"
cmake --install "$build" --prefix "$work/first" >"$work/install.log" || fail "cmake --install failed: $(tail -n 5 "$work/install.log")"
# Nothing of an installation may know where it was made.
mv "$work/first" "$work/moved"
prefix=$work/moved

for wanted in include/memstrata/memstrata.hpp include/memstrata/core/bytes.hpp share/doc/memstrata/LICENSE; do
  [[ -f $prefix/$wanted ]] || fail "$wanted is not installed"
done
if grep -rlF "$work/first" "$prefix" --include='*.cmake' --include='*.pc'; then
  fail "a file above names the folder of the installation"
fi

cmake -S "$consumer" -B "$work/by-cmake" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_BUILD_TYPE=Release -DWANTED_VERSION="$version" >"$work/by-cmake.log" 2>&1 ||
  fail "find_package: $(tail -n 20 "$work/by-cmake.log")"
cmake --build "$work/by-cmake" >>"$work/by-cmake.log" 2>&1 || fail "$(tail -n 40 "$work/by-cmake.log")"
[[ $("$work/by-cmake/consumer") == "65536 of 1048576" ]] || fail "the consumer built by CMake printed something else"

pc=$(find "$prefix" -name memstrata.pc -printf '%h\n')
[[ -n $pc ]] || fail "memstrata.pc is not installed"
export PKG_CONFIG_PATH=$pc
[[ $(pkg-config --modversion memstrata) == "$version" ]] || fail "pkg-config says version $(pkg-config --modversion memstrata)"
mapfile -t flags < <(pkg-config --cflags --libs memstrata | tr ' ' '\n' | sed '/^$/d')
"$compiler" "$consumer/consumer.cpp" -o "$work/by-pkg-config" "${flags[@]}" || fail "the flags of pkg-config do not build"
[[ $("$work/by-pkg-config") == "65536 of 1048576" ]] || fail "the consumer built by pkg-config printed something else"

if [[ -x $build/tools/memstrata/memstrata ]]; then
  [[ -x $prefix/bin/memstrata ]] || fail "the tool is built and not installed"
  for wanted in share/memstrata/samples/sample.trace.jsonl share/bash-completion/completions/memstrata \
    share/man/man1/memstrata.1; do
    [[ -f $prefix/$wanted ]] || fail "$wanted is not installed"
  done
  "$prefix/bin/memstrata" --version | grep -qF "$version" || fail "the installed tool does not say $version"
fi
printf 'install: found by CMake and by pkg-config\n'
