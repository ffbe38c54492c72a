#!/usr/bin/env bash
# Makes the text that the curves are trained on: the documentation of Linux 6.1 and of Python 3.11 as their authors wrote it (reStructuredText, mostly
# English prose), from Debian 12's packages, with a tokenizer of 16,384 tokens trained on it.
#   tests/bench/fp8_curves/make_text.sh BUILD FOLDER     writes FOLDER/{text/,tokenizer.json,docs.tokens}; needs apt-get, and tokenizers==0.22.1 for
#                                                        the Python that CONSIST_TOKENIZERS_PYTHON names (default: python3)
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
build=$(cd "$1" && pwd)
mkdir -p "$2/packages" "$2/text"
cd "$2"

(cd packages && { ls ./*.deb > /dev/null 2>&1 || apt-get download python3.11-doc linux-doc-6.1; })
for package in packages/*.deb; do dpkg-deb -x "$package" packages/unpacked; done
docs=packages/unpacked/usr/share/doc

# add FOLDER PREFIX SUFFIX: every file below with this end, as text/<prefix>-<path with dashes>.txt. What is no UTF-8 is left out.
add() {
  find -L "$1" -name "*$3" -type f -not -path '*/translations/*' | LC_ALL=C sort | while read -r file; do
    name=${file#"$1"/}
    out=text/$2-$(tr / - <<< "${name%"$3"}").txt
    if [[ $file == *.gz ]]; then zcat "$file"; else cat "$file"; fi > "$out"
    iconv -f UTF-8 -t UTF-8 "$out" > /dev/null 2>&1 && [ -s "$out" ] || rm "$out"
  done
}
add $docs/linux-doc-6.1/Documentation linux .rst.gz
add $docs/python3.11/html/_sources python .rst.txt

[ -f tokenizer.json ] || "${CONSIST_TOKENIZERS_PYTHON:-python3}" "$source/datasets/text/train_tokenizer.py" text tokenizer.json 16384
"$build/bin/consist" tokenize --tokenizer tokenizer.json --output docs.tokens --overwrite text
