#!/usr/bin/env python3
"""Trains the tokenizer that ships with Consist: byte-level BPE, 4096 tokens unless told, cut up as Llama-3 does, with <|endoftext|>.

Usage: train_tokenizer.py CORPUS_FOLDER tokenizer.json [TOKENS]      (needs tokenizers==0.22.1; the same bytes every time)
"""

import pathlib
import sys

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

# The expression that Llama-3 publishes in its tokenizer.json.
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def main():
    corpus, output = pathlib.Path(sys.argv[1]), sys.argv[2]
    size = int(sys.argv[3]) if len(sys.argv) == 4 else 4096
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=["<|endoftext|>"], show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    files = sorted(corpus.glob("*.txt"))
    tokenizer.train_from_iterator((file.read_text(encoding="utf-8") for file in files), trainer)
    tokenizer.save(output)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main()
