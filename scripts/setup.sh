# SPDX-License-Identifier: Apache-2.0
# Sourced by ./run and ./test: says what is missing on this machine, and installs that and nothing else.
# Everything printed here goes to standard error.
# shellcheck shell=bash

: "${root:?the folder of the repository}"
readonly exit_could_not_run=3

# say WORDS...: one line of ours.
say() { printf 'memstrata: %s\n' "$*" >&2; }

# give_up LINE REASON...: the set-up or the build failed; LINE is what the reader can type.
give_up() {
  local line=$1
  shift
  say "$*"
  say "type this line to see it fail or to mend it:"
  printf '  %s\n' "$line" >&2
  exit "$exit_could_not_run"
}

# packages_of GROUP...: the names that scripts/packages.apt lists for these groups.
packages_of() {
  local wanted=" $* " name group _
  while read -r name group _; do
    if [[ -n $name && $name != \#* && $wanted == *" $group "* ]]; then
      printf '%s\n' "$name"
    fi
  done <"$root/scripts/packages.apt"
}

# missing_packages NAME...: those of them that dpkg does not know as installed.
missing_packages() {
  local installed
  # dpkg-query exits 1 when it does not know one of the names; that is an answer here.
  installed=" $(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "$@" 2>/dev/null |
    awk '$2 == "installed" { printf "%s ", $1 }' || true)"
  local name
  for name in "$@"; do
    if [[ $installed != *" $name "* ]]; then
      printf '%s\n' "$name"
    fi
  done
}

# install_packages NAME...: with root's rights, or through sudo.
install_packages() {
  local -a as_root=()
  local line="apt-get update && apt-get install -y --no-install-recommends $*"
  if [[ $(id -u) != 0 ]]; then
    line="sudo apt-get update && sudo apt-get install -y --no-install-recommends $*"
    if ! command -v sudo >/dev/null; then
      give_up "$line" "these packages are missing, and neither root's rights nor sudo are at hand: $*"
    fi
    as_root=(sudo)
    # Without a terminal nobody can type a password.
    [[ -t 0 ]] || as_root=(sudo -n)
  fi
  say "installing: $*"
  # An update that fails may still leave lists that serve; the installation decides.
  "${as_root[@]}" apt-get update -q >&2 </dev/null || say "apt-get update failed; going on with the lists there are"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q --no-install-recommends "$@" >&2 </dev/null ||
    give_up "$line" "the packages could not be installed"
}

# ensure_packages GROUP...: returns at once where nothing is missing.
ensure_packages() {
  local -a names missing
  mapfile -t names < <(packages_of "$@")
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "this is not a Debian system; going on with what is installed. Debian's names for what is needed:"
    say "${names[*]}"
    return 0
  fi
  mapfile -t missing < <(missing_packages "${names[@]}")
  if ((${#missing[@]} > 0)); then
    install_packages "${missing[@]}"
  fi
}

# For ccache, where there is one: objects of one clone serve another, because paths count from the repository, and
# precompiled headers are allowed.
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros

# configure PRESET DIR [CMAKE_OPTIONS...]: only where there is no build yet, or where it was made from other presets.
configure() {
  local preset=$1 dir=$2
  shift 2
  local stamp="$dir/.configured" wanted="$preset $*"
  if [[ -f $dir/build.ninja && -f $stamp && $(<"$stamp") == "$wanted" && $stamp -nt $root/CMakePresets.json ]]; then
    return 0
  fi
  local -a options=("$@")
  if command -v ccache >/dev/null; then
    options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_C_COMPILER_LAUNCHER=ccache)
  fi
  (cd "$root" && cmake --preset "$preset" -B "$dir" "${options[@]}") >&2 || return 1
  printf '%s\n' "$wanted" >"$stamp"
}
