#!/usr/bin/env bash
# Installs what launch/packages.txt lists, and the lists that are named as arguments, where it is missing: as root by apt; to an
# ordinary user it says what to run as root. Run by quickstart.sh and tests/run.sh; safe to run again.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# Absolute, so that the command that is shown works from anywhere.
for list; do
  set -- "$@" "$(cd "$(dirname "$list")" && pwd)/$(basename "$list")"
  shift
done

if ! command -v dpkg-query >/dev/null; then
  echo "setup: this is no Debian system. Install the counterparts of the packages in launch/packages.txt by hand, then build with cmake (README.md)." >&2
  exit 2
fi

missing=()
while read -r package; do
  name=${package%%=*}
  wanted=${package#*=}
  have=$(dpkg-query -W -f='${db:Status-Abbrev} ${Version}' "$name" 2>/dev/null || true)
  # shellcheck disable=SC2053  # the right side is a pattern on purpose
  if [[ "$have" == "ii "* && "${have#ii * }" == $wanted ]] || [[ "$have" == "ii  "$wanted ]]; then continue; fi
  # Another installed version is kept: it may be a newer Debian, or the administrator's choice; cmake checks what matters.
  if [[ "$have" == ii* ]]; then
    echo "setup: $name is installed as ${have#ii }, tested is $wanted" >&2
    continue
  fi
  missing+=("$package")
done < <(cat "$here/packages.txt" "$@" | grep -v -e '^#' -e '^$')

[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" != 0 ]; then
  {
    echo "setup: ${#missing[@]} packages are missing: ${missing[*]%%=*}"
    echo "setup: only root can install them. Run this, then what you ran again:"
    if command -v sudo >/dev/null; then
      echo "    sudo bash $here/setup.sh $*"
    elif command -v su >/dev/null; then
      echo "    su -c 'bash $here/setup.sh $*'"
    else
      echo "    bash $here/setup.sh $*        (as root)"
    fi
  } >&2
  exit 2
fi
echo "setup: installing ${#missing[@]} packages: ${missing[*]%%=*}"
export DEBIAN_FRONTEND=noninteractive
apt-get -q update
apt-get -q install -y --no-install-recommends "${missing[@]}"
