#!/usr/bin/env python3
"""Runs a share of the files of a folder (tests/python) as one entry of ctest, with the Python of build/venv.

Usage: run_shard.py --build FOLDER --shard I/N --results FILE [--tests FOLDER] [ARGUMENTS OF PYTEST]

FILE gets a line for each case, as tests/cases.py counts them. Without the environment of tests/run.sh the entry is skipped (status 77),
in CI it fails. CONSIST_TEST_PYTHON names another interpreter."""
import argparse
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SKIPPED = 77


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--shard", required=True)
    parser.add_argument("--results", required=True)
    parser.add_argument("--tests", default=HERE)
    options, others = parser.parse_known_args()
    places = [os.path.join(folder, "venv", "bin", "python") for folder in (options.build, os.path.join(HERE, "..", "..", "build"))]
    given = os.environ.get("CONSIST_TEST_PYTHON")
    python = given or next((path for path in places if os.access(path, os.X_OK)), None)
    if python is None:
        print("no Python environment: tests/run.sh makes it in build/venv, of tests/requirements.txt")
        return 1 if "CI" in os.environ else SKIPPED
    os.makedirs(os.path.dirname(os.path.abspath(options.results)), exist_ok=True)
    cache = os.path.join(options.build, "Testing", "pytest")
    os.execv(python, [python, "-m", "pytest", "-q", "-ra", "-c", os.path.join(HERE, "pytest.ini"), "-o", f"cache_dir={cache}",
                      f"--shard={options.shard}", f"--results={options.results}", *others, options.tests])


if __name__ == "__main__":
    sys.exit(main())
