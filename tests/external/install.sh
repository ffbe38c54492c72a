#!/usr/bin/env bash
# Installs a build as users do, moves the installation, and builds the examples against it. Usage: install.sh BUILD FOLDER CMAKE GENERATOR COMPILER
# In FOLDER: moved/ (the installation), examples/ (all of them as one project) and ddp-plain/ (by itself, as docs/plugins.md says).
set -euo pipefail
build=$1 folder=$2 cmake=$3 generator=$4 compiler=$5
examples=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
unset CONSIST_PLUGIN_PATH LD_LIBRARY_PATH
rm -rf "$folder"
mkdir -p "$folder"
cd /
"$cmake" --install "$build" --prefix "$folder/made"
mv "$folder/made" "$folder/moved"
configure() {
  "$cmake" -G "$generator" -S "$examples/$1" -B "$folder/$2" -DCMAKE_PREFIX_PATH="$folder/moved" -DCMAKE_CXX_COMPILER="$compiler" "${@:3}"
}
configure ddp-plain ddp-plain
# Optimized a little only: what is trained with them is tiny.
configure all examples -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O1
"$cmake" --build "$folder/ddp-plain"
"$cmake" --build "$folder/examples" --parallel "$(nproc)"
