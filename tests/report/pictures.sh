#!/usr/bin/env bash
# The pictures of docs/report.md, from a page of consist report: its beginning at 1,400 pixels, and at 400 pixels in light and dark.
# Usage: tests/report/pictures.sh PAGE FOLDER; writes FOLDER/report.png and FOLDER/report-narrow.png.
set -euo pipefail
if [ $# -ne 2 ]; then
  sed -n '2,3s/^# //p' "$0" >&2
  exit 2
fi
chromium=${CONSIST_TEST_CHROMIUM:-chromium}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cp "$1" "$scratch/page.html"

# frames WIDTH HEIGHT OUT SCHEME...: the page beside itself in frames of that size: no window is narrower than 500 pixels.
frames() {
  local width=$1 height=$2 out=$3 scheme
  shift 3
  {
    echo '<!doctype html><style>body { margin: 0; display: flex; } iframe { border: 0; }</style>'
    for scheme in "$@"; do
      echo "<iframe src=\"page.html\" style=\"width:${width}px;height:${height}px;color-scheme:$scheme\"></iframe>"
    done
  } > "$scratch/frames.html"
  "$chromium" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --virtual-time-budget=20000 \
    --user-data-dir="$scratch/profile" --window-size=$((width * $#)),"$height" --screenshot="$out" "file://$scratch/frames.html" 2> "$scratch/log" ||
    { cat "$scratch/log" >&2; exit 1; }
}

frames 1400 2130 "$2/report.png" light
frames 400 2400 "$2/report-narrow.png" light dark
