#!/usr/bin/env bash
# Plants errors one at a time in a copy of the tree, rebuilds what the copy loads, runs the tests that should notice, and prints how many
# were noticed and each that was not. `run.sh --help` lists the options; mutation.py says how it works.
exec python3 "$(dirname "${BASH_SOURCE[0]}")/mutation.py" "$@"
