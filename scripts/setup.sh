#!/usr/bin/env bash
# Installs what building and testing need, and nothing when it is all there.
#
#   scripts/setup.sh [--cuda auto|on|off] [--lint]
#
# Distribution packages come through apt when run by root; anyone else is told the one line to run
# (exit 2). Python packages go into .venv, where a stamp per requirements file says what was
# installed, so that a second run reads two hashes and ends.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly venv=.venv
packages=(cmake ninja-build g++ make git ccache liburing-dev libhwloc-dev nlohmann-json3-dev
  libcli11-dev libfmt-dev libxxhash-dev libhwy-dev libgloo-dev libgtest-dev libbenchmark-dev
  python3 python3-venv)
cuda=auto

fail() {
  echo "setup: $1" >&2
  exit 2
}

while (($#)); do
  case "$1" in
    --cuda)
      (($# >= 2)) || fail "--cuda needs a value: auto, on or off"
      cuda=$2
      shift 2
      ;;
    --lint)
      packages+=(clang clang-tidy)
      shift
      ;;
    *) fail "unknown argument '$1': usage is setup.sh [--cuda auto|on|off] [--lint]" ;;
  esac
done
[[ $cuda == auto || $cuda == on || $cuda == off ]] ||
  fail "--cuda (make's MAREA_CUDA) is '$cuda': write auto, on or off"

missing_packages() {
  local installed
  # dpkg-query exits 1 when any of the packages is unknown; the lines of the others still come.
  installed=" $(dpkg-query -W -f '${db:Status-Status}=${Package} ' "${packages[@]}" 2>/dev/null || true)"
  local package
  for package in "${packages[@]}"; do
    [[ $installed == *" installed=$package "* ]] || echo "$package"
  done
}

install_packages() {
  command -v dpkg-query >/dev/null ||
    fail "this is no Debian or Ubuntu: install the equivalents of ${packages[*]} and build with CMake"
  local missing
  mapfile -t missing < <(missing_packages)
  ((${#missing[@]})) || return 0
  if ((EUID != 0)); then
    echo "setup: some packages are missing; run this line, then the same make command again:" >&2
    echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 2
  fi
  echo "setup: installing ${missing[*]}" >&2
  export DEBIAN_FRONTEND=noninteractive
  local apt=(apt-get -qq -o DPkg::Lock::Timeout=300)
  # A mirror that is down for another repository must not stop us: install says what is not found.
  "${apt[@]}" update || echo "setup: apt-get update had errors; trying with the lists at hand" >&2
  "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >&2 ||
    fail "apt-get could not install ${missing[*]}: see its message above"
}

# The first python3 that is new enough and can make an environment (a python3 earlier in PATH may
# have been built without ensurepip, the distribution's has it from python3-venv).
find_python() {
  local candidate
  for candidate in python3 /usr/bin/python3; do
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
      >/dev/null 2>&1; then
      echo "$candidate"
      return 0
    fi
  done
  fail "no python3 of version 3.11 or later with venv and ensurepip: install python3-venv"
}

# install_requirements NAME: brings scripts/NAME.txt into the environment.
install_requirements() {
  local file=scripts/$1.txt stamp=$venv/.$1.sha256 hash
  hash=$(sha256sum <"$file")
  [[ ! -f $stamp || $(<"$stamp") != "$hash" ]] || return 0
  echo "setup: installing $file into $venv" >&2
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$file" >&2 ||
    fail "pip could not install $file: see its message above"
  echo "$hash" >"$stamp"
}

install_python() {
  # An environment whose interpreter is gone (an upgraded system, a copied checkout) is made anew.
  if ! "$venv/bin/python" -c 'import pip' >/dev/null 2>&1; then
    local python
    python=$(find_python)
    echo "setup: creating $venv with $("$python" --version)" >&2
    "$python" -m venv --clear "$venv" || fail "$python could not create $venv"
  fi
  install_requirements requirements
}

install_packages
install_python
if [[ $cuda == on && -z $(scripts/find_nvcc.sh) ]]; then
  install_requirements requirements-cuda
  [[ -n $(scripts/find_nvcc.sh) ]] || fail "the CUDA compiler was installed but is not in $venv"
fi
