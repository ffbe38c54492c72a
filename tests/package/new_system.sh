# For the tests of packages: where they are tried.
source "$(dirname "${BASH_SOURCE[0]}")/../../launch/package/common.sh"

# new_root SUITE FOLDER: a new root file system of that Debian release; one that is there is used again. Ends the script with 77 and the reason where
# none can be made here: a mirror that does not answer is no failure of a package.
new_root() {
  if ! can_make_root; then
    echo "skipped: root and mmdebstrap (or debootstrap) are needed to make a root file system of $1"
    exit 77
  fi
  if [ ! -f "$2/made" ] && ! make_root "$1" "$2"; then
    echo "skipped: there is no new root file system of $1:"
    tail -3 "$2.log"
    exit 77
  fi
}

# new_system SUITE FOLDER: the same, with an ordinary user, `user`.
new_system() {
  new_root "$1" "$2"
  chroot "$2" id -u user > /dev/null 2>&1 || chroot "$2" useradd --create-home user
}
