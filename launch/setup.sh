#!/usr/bin/env bash
# Installs what building needs and the system lacks. Run by quickstart.sh and tests/run.sh; safe to run again.
#   bash launch/setup.sh [--system NAME] [TABLE...]               what launch/packages.txt and the named tables list: as root by the package manager.
#                                                                 To an ordinary user it names what root must run, and brings cmake and ninja from PyPI
#                                                                 into build/tools (CONSIST_BUILD names another build folder)
#   bash launch/setup.sh --dry-run [--system NAME|all] [TABLE...] prints that list: a package a line, words behind #
# A distribution is a line of launch/systems.txt, a package a line of launch/packages.txt.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=${CONSIST_BUILD:-$here/../build}

fail() {
  printf 'setup: %s\n' "$@" >&2
  exit 2
}

# rows FILE...: their lines that are neither empty nor comments.
rows() { grep -hv -e '^ *#' -e '^ *$' "$@"; }

known_systems() { rows "$here/systems.txt" | awk '{print $1}' | tr '\n' ' '; }

# This machine's name in launch/systems.txt, or ID-VERSION_ID if it has none there.
this_system() {
  local ID=unknown VERSION_ID='' UBUNTU_CODENAME=''
  # shellcheck disable=SC1090
  [ ! -r "${CONSIST_OS_RELEASE:-/etc/os-release}" ] || source "${CONSIST_OS_RELEASE:-/etc/os-release}"
  case $ID:$UBUNTU_CODENAME in
    fedora:*) echo fedora ;;
    rhel:* | rocky:* | almalinux:* | centos:* | ol:*) echo "rhel-${VERSION_ID%%.*}" ;;
    amzn:*) echo "amazon-$VERSION_ID" ;;
    *:jammy) echo ubuntu-22.04 ;;
    *:noble) echo ubuntu-24.04 ;;
    *) echo "$ID${VERSION_ID:+-$VERSION_ID}" ;;
  esac
}

# choose SYSTEM: sets system, manager, state, first from its line.
choose() {
  local line
  line=$(rows "$here/systems.txt" | awk -v name="$1" '$1 == name')
  [ -n "$line" ] || fail "the system is $1; known are: $(known_systems)" \
    "Name the nearest one: bash $here/setup.sh --system NAME (add --dry-run to see its packages first). Or install the counterparts of the" \
    "packages in $here/packages.txt by hand, then build with cmake (docs/install.md)."
  read -r system manager state first <<< "$line"
}

# packages_of NEEDS: "name version" of the chosen system's packages, version * where it is not pinned.
packages_of() {
  local need apt pin dnf not_on name
  while read -r _ _ need apt pin dnf not_on; do
    [[ " $1 " == *" $need "* && ",$not_on," != *",$system,"* ]] || continue
    name=$apt
    [ "$manager" = apt ] || name=$dnf
    [ "$state" = ci ] || pin='*'
    [ "$name" = - ] || echo "$name $pin"
  done < <(rows "${tables[@]}") | sort -u
}

# install_words NAME...: the words of the command with which root installs them.
install_words() {
  if [ "$manager" = apt ]; then echo apt-get -q install -y --no-install-recommends "$@"; else echo dnf install -y "$@"; fi
}

# Parts that the chosen system has no package for.
parts_not_there() { rows "${tables[@]}" | awk -v name="$system" 'index("," $7 ",", "," name ",") {print $1 ($2 == "-" ? "" : " " $2)}'; }

dry_run() {
  choose "$1"
  case $state in
    ci) echo "# $system: CI sets up, builds and tests here, with these versions" ;;
    tried) echo "# $system: packages installed and most of a build compiled by hand, nothing run" ;;
    *) echo "# $system: NOT TRIED. Names are as its family has them, a few as its package pages do" ;;
  esac
  [ "$first" = - ] || echo "# first: $first"
  local name version
  while read -r name version; do
    if [ "$version" = '*' ]; then echo "$name"; else echo "$name=$version"; fi
  done < <(packages_of "tool build optional")
  parts_not_there | sed "s/^/# no package here, bring it yourself: /"
  echo "# without root: $(rows "$here/requirements.txt" | tr '\n' ' ')from PyPI, if cmake or ninja is missing or older; for the others root runs"
  # shellcheck disable=SC2046
  echo "#   $([ "$manager" = dnf ] || echo 'apt-get update && ')$(install_words $(packages_of build | cut -d' ' -f1))"
}

# installed NAME: its version; fails where it is not installed.
installed() {
  if [ "$manager" = dnf ]; then
    rpm -q --whatprovides --queryformat '%{VERSION}\n' "$1" 2> /dev/null | head -1 | grep -v ' '
    return
  fi
  local have
  have=$(dpkg-query -W -f='${db:Status-Abbrev} ${Version}' "$1" 2> /dev/null) && [[ "$have" == ii* ]] && echo "${have#ii }" | tr -d ' '
}

# missing NEEDS: packages that are not installed, as the package manager takes them. Another installed version is kept: it may be the administrator's
# choice; cmake checks what matters.
missing() {
  local name version have
  while read -r name version; do
    if have=$(installed "$name"); then
      # shellcheck disable=SC2053  # the right side is a pattern on purpose
      [[ "$have" == $version ]] || echo "setup: $name is installed as $have, tested is $version" >&2
    elif [ "$version" = '*' ]; then
      echo "$name"
    else
      echo "$name=$version"
    fi
  done < <(packages_of "$1")
}

install_as_root() {
  echo "setup: installing ${#wanted[@]} packages: ${wanted[*]%%=*}"
  if [ "$first" != - ]; then bash -c "$first"; fi
  if [ "$manager" = apt ]; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get -q update
  fi
  local words
  read -ra words < <(install_words "${wanted[@]}")
  "${words[@]}"
}

# What an ordinary user runs to have root install what is missing: sudo or su with this script.
say_what_root_runs() {
  local again="bash $here/setup.sh ${arguments[*]}"
  if command -v sudo > /dev/null; then again="sudo $again"; elif command -v su > /dev/null; then again="su -c '$again'"; else again="$again        (as root)"; fi
  fail "${#wanted[@]} packages are missing: ${wanted[*]%%=*}" "only root can install them. Run this, then what you ran again:" "    $again" \
    "which runs: $([ "$first" = - ] || echo "$first && ")$(install_words "${wanted[@]%%=*}")"
}

# new_enough COMMAND AT-LEAST
new_enough() {
  local version
  version=$("$1" --version 2> /dev/null | grep -o -m1 '[0-9][0-9.]*') || return 1
  [ "$(printf '%s\n%s\n' "$2" "$version" | sort -V | head -1)" = "$2" ]
}

at_least() { rows "$here/packages.txt" | awk -v part="$1" '$1 == part {print $2}'; }

# cmake and ninja from PyPI in build/tools/bin, where the system's are missing or too old. quickstart.sh and tests/run.sh look there first.
bring_tools() {
  new_enough cmake "$(at_least cmake)" && new_enough ninja "$(at_least ninja)" && return
  local tools=$build/tools
  if ! cmp -s "$here/requirements.txt" "$tools/installed.txt"; then
    echo "setup: cmake $(at_least cmake) or ninja $(at_least ninja) is missing: bringing them from PyPI into $tools" >&2
    mkdir -p "$tools/bin"
    python3 -m venv --clear "$tools/venv" ||
      fail "no virtual environment can be made for cmake and ninja. Root must install Python's venv (Debian and Ubuntu: python3-venv), or cmake and ninja"
    "$tools/venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt" ||
      fail "cmake and ninja could not be installed from PyPI (above). Have root install them, or put cmake $(at_least cmake) and ninja in PATH"
    local tool
    for tool in cmake ctest ninja; do ln -sf "../venv/bin/$tool" "$tools/bin/$tool"; done
    cp "$here/requirements.txt" "$tools/installed.txt"
  fi
  [[ ":$PATH:" == *":$(cd "$tools/bin" && pwd):"* ]] || echo "setup: to build by hand: export PATH=$(cd "$tools/bin" && pwd):\$PATH" >&2
}

dry=false
asked=
arguments=()  # as they are shown: absolute, so that the command works from anywhere
tables=("$here/packages.txt")
while [ $# -gt 0 ]; do
  case $1 in
    --dry-run) dry=true ;;
    --system)
      [ $# -gt 1 ] || fail "--system needs a name: all, with --dry-run, or one of: $(known_systems)"
      asked=$2
      arguments+=(--system "$2")
      shift
      ;;
    -*) fail "unknown option $1; there are --dry-run and --system NAME" ;;
    *)
      [ -r "$1" ] || fail "there is no table $1; tests/packages.txt is one"
      tables+=("$(cd "$(dirname "$1")" && pwd)/$(basename "$1")")
      arguments+=("${tables[-1]}")
      ;;
  esac
  shift
done

if $dry; then
  systems=$asked
  [ "$asked" != all ] || systems=$(known_systems)
  for name in ${systems:-$(this_system)}; do dry_run "$name"; done
  exit 0
fi
[ "$asked" != all ] || fail "--system all is for --dry-run"
choose "${asked:-$(this_system)}"
command -v "${manager/apt/dpkg-query}" > /dev/null || fail "$system has the package manager $manager, which is not here: is --system right?"
parts_not_there | sed "s/^/setup: no package here, bring it yourself: /" >&2

if [ "$(id -u)" = 0 ]; then
  mapfile -t wanted < <(missing "tool build optional")
  [ ${#wanted[@]} -eq 0 ] || install_as_root
else
  mapfile -t wanted < <(missing optional)
  [ ${#wanted[@]} -eq 0 ] || echo "setup: built without, unless root installs them: ${wanted[*]%%=*}" >&2
  mapfile -t wanted < <(missing build)
  [ ${#wanted[@]} -eq 0 ] || say_what_root_runs
fi
bring_tools
