#!/usr/bin/env python3
"""Writes tests/golden/tokenizer: lines of mixed text, small tokenizers with the pre-tokenizers of published models, and what the reference
library makes of the lines.

Usage: make_tokenizer_reference.py FOLDER          (needs tokenizers==0.22.1; the same bytes every time)

    lines.jsonl      one JSON string a line, since the texts hold line ends, tabs and NULs themselves
    <name>.json      a tokenizer.json
    <name>.ref       for every line (of those in SHORT: the first 2,500), little-endian: u16 number of ids, u64 FNV-1a over the ids as u32
    unicode.json     for every general category: how many code points of CODE_POINTS the reference has in it, and FNV-1a over them as u32
"""

import json
import pathlib
import random
import struct
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LINES = 12_000
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# DeepSeek-V3's and OpenAI's o200k: categories beyond letters and numbers.
DEEPSEEK = [r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + CONTRACTIONS + r"?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + CONTRACTIONS + r"?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SHORT, SHORT_LINES = ("deepseek", "o200k", "llama2", "llama2-metaspace", "characters"), 2_500
CATEGORIES = "L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp".split()
CODE_POINTS = [c for c in (*range(0x20000), *range(0x2B700, 0x2B760), *range(0x2EBE0, 0x2EE70), *range(0x31340, 0x323C0)) if not 0xD800 <= c <= 0xDFFF]
QWEN = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

# Ranges of letters and signs, by script.
SCRIPTS = {
    "latin": [(0x41, 0x5A), (0x61, 0x7A)], "latin-extended": [(0xC0, 0x24F), (0x1E00, 0x1EFF)], "greek": [(0x370, 0x3FF), (0x1F00, 0x1FFF)],
    "cyrillic": [(0x400, 0x52F)], "armenian": [(0x531, 0x587)], "hebrew": [(0x591, 0x5F4)], "arabic": [(0x600, 0x6FF)],
    "devanagari": [(0x900, 0x97F)], "bengali": [(0x981, 0x9FE)], "tamil": [(0xB82, 0xBFA)], "thai": [(0xE01, 0xE5B)], "lao": [(0xE81, 0xEDF)],
    "tibetan": [(0xF00, 0xFDA)], "georgian": [(0x10A0, 0x10FF)], "hangul-jamo": [(0x1100, 0x11FF)], "hangul": [(0xAC00, 0xD7A3)],
    "ethiopic": [(0x1200, 0x139F)], "khmer": [(0x1780, 0x17F9)], "mongolian": [(0x1800, 0x18AA)], "kana": [(0x3041, 0x30FF)],
    "cjk": [(0x4E00, 0x9FFF)], "cjk-compatibility": [(0xF900, 0xFAD9)], "cjk-newer": [(0x20000, 0x2A6DF), (0x2F800, 0x2FA1D), (0x31350, 0x323AF)],
    "gothic": [(0x10330, 0x1034A)], "mathematical": [(0x1D400, 0x1D7FF)], "symbols": [(0x2000, 0x2BFF)], "forms": [(0xFB00, 0xFB4F), (0xFF01, 0xFFEE)],
}
MARKS = [chr(c) for c in (*range(0x300, 0x345), 0x323, 0x327, 0x328, 0x338, 0x3099, 0x309A, 0x5B0, 0x5BC, 0x64B, 0x651, 0x93C, 0x94D, 0xE38, 0x1DC0, 0x20D2, 0xFE20)]
NUMBERS = list("0123456789") + [chr(c) for c in (0xB2, 0xBC, 0xBD, 0x660, 0x661, 0x669, 0x966, 0x96F, 0xE51, 0x2070, 0x2153, 0x2160, 0x2167, 0x2460, 0x3007, 0x3021,
                                                 0xFF10, 0xFF19, 0x1D7CE, 0x10107, 0x1F100)]
SPACES = [chr(c) for c in (0x9, 0xB, 0xC, 0x1C, 0x1D, 0x1E, 0x1F, 0x20, 0x85, 0xA0, 0x1680, 0x180E, *range(0x2000, 0x200C), 0x2028, 0x2029, 0x202F, 0x205F, 0x2060,
                                 0x3000, 0xFEFF)]
ENDS = ["\n", "\r\n", "\r", "\n\n", "\r\n\r\n", "\n\n\n", " \n", "\n ", "\t\n\t", "\n\r"]
EMOJI = ["😀", "👩‍💻", "👨‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪", "🇯🇵🇺🇸", "1️⃣", "#️⃣", "❤️", "❤︎", "🧑🏿‍🚀", "☕", "🫠", "🐈‍⬛", "🪿", "⚠️"]
CONTRACTED = ["I'm", "I'M", "we'll", "WE'LL", "they've", "THEY'VE", "you're", "YOU'RE", "it's", "IT'S", "can't", "CAN'T", "he'd", "HE'D", "'s", "'S", "'ſ", "x'ſy", "'Ll",
              "'rE", "'Ve", "it’s", "don''t", "'tis", "rock'n'roll", "o'clock", "'sss", "'lll", "'di", "' s", "'ß", "'ﬅ"]
CODE = ["for (int i = 0; i < n; ++i) {", "}", "return x[i]->y::z<T>();", "#include <cstdint>", "def f(x, *args, **kw):", "    pass", "\tif a != b:", "SELECT * FROM t WHERE a='b';",
        "{\"key\": [1, 2.5e-3, null, true]}", "<div class=\"x\">&amp;</div>", "$ ls -la | grep '^d' > /dev/null 2>&1", "a += b << 3 & ~0xFFu; // why?", "https://example.org/a?b=c&d=%20#e",
        "x = lambda y: y**2  # square", "\\frac{a}{b}^{2}_{i}", "===", "----", "/* ... */", "!!!", "??!", "...", "@@ -1,2 +3,4 @@", "`code`", "**bold**", "[a](b)", "~~~"]
WORDS = "the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which one you were all her she there would their".split()
ADDED = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<|begin_of_text|>", "<|endoftext", "<|end_of_text|>", "<|im_start|>user\n", "Ame\u0301lie",
         "Amélie", "<|eot_id|><|eot_id|>", "<think>", "<thinking>"]
COMPOSED = ["é", "e\u0301", "Å", "A\u030a", "\u212b", "ﬁ", "ﬃ", "한국어", "\u1112\u1161\u11ab\u1100\u116e\u11a8", "が", "か\u3099", "क़", "\u0915\u093c", "ǖ", "u\u0308\u0304", "u\u0304\u0308",
            "q\u0307\u0323", "q\u0323\u0307", "ṩ", "s\u0323\u0307", "s\u0307\u0323", "\u0344", "\u2126", "\u1fef", "\u0958", "ά", "\u03b1\u0301", "\u1f71", "豈", "\uf900", "\u2adc", "\u0f77",
            "\u0f71\u0f72", "\U0001d15e", "\u30d5\u309a", "\u1e9b\u0323"]


class Writer:
    def __init__(self):
        self.rng = random.Random(2024)

    def one(self, items):
        return items[self.rng.randrange(len(items))]

    def letters(self):
        first, last = self.one(self.one(list(SCRIPTS.values())))
        return "".join(chr(self.rng.randrange(first, last + 1)) for _ in range(self.rng.randrange(1, 9)))

    def any_characters(self):
        out = ""
        for _ in range(self.rng.randrange(1, 6)):
            c = self.rng.randrange(0x110000) if self.rng.random() < 0.5 else self.rng.randrange(0x3000)
            out += chr(c) if not 0xD800 <= c <= 0xDFFF else "?"
        return out

    def piece(self):
        rng = self.rng
        return self.one([
            lambda: self.one(WORDS), lambda: self.one(WORDS).title(), lambda: self.one(WORDS).upper(), lambda: " ".join(self.one(WORDS) for _ in range(rng.randrange(1, 7))),
            self.letters, self.letters, lambda: self.letters() + self.one(MARKS) * rng.randrange(1, 3) + self.one(MARKS),
            lambda: "".join(self.one(MARKS) for _ in range(rng.randrange(1, 5))),
            lambda: "".join(self.one(NUMBERS) for _ in range(rng.randrange(1, 9))), lambda: str(rng.randrange(10 ** rng.randrange(1, 15))),
            lambda: f"{rng.randrange(1000)},{rng.randrange(1000):03d}.{rng.randrange(100):02d}",
            lambda: "".join(self.one(SPACES) for _ in range(rng.randrange(1, 6))), lambda: " " * rng.randrange(1, 12), lambda: "\t" * rng.randrange(1, 4),
            lambda: self.one(ENDS), lambda: self.one(EMOJI) * rng.randrange(1, 3), lambda: self.one(CONTRACTED), lambda: self.one(CODE), lambda: self.one(CODE),
            lambda: self.one(ADDED), lambda: self.one(COMPOSED), lambda: self.one(COMPOSED) + self.one(MARKS), self.any_characters,
            lambda: "".join(self.one("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") for _ in range(rng.randrange(1, 6))),
        ])()

    def line(self, number):
        if number < 40:  # edges: nothing, and single pieces
            return ["", " ", "\n", "\0", "a", *ENDS, *EMOJI, *SPACES][number]
        joint = self.one(["", " ", " ", "  "])
        return joint.join(self.piece() for _ in range(self.rng.randrange(1, 9)))


def pre_tokenizer(expression):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(expression), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def train(lines, size, pre, normalizer=None):
    tokenizer = Tokenizer(models.BPE())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def llama3_style(lines):
    tokenizer = train(lines, 1500, pre_tokenizer(LLAMA3))
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])
    bos = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", bos)])])
    content = json.loads(tokenizer.to_str())
    # As in the published file, tokens are in the vocabulary that merging does not lead to; ignore_merges finds them.
    content["model"]["ignore_merges"] = True
    merges = content["model"]["merges"]
    needed = {part for merge in merges for part in merge}
    content["model"]["merges"] = [merge for i, merge in enumerate(merges) if "".join(merge) in needed or i % 5 != 0]
    assert len(content["model"]["merges"]) < len(merges) - 50
    return content


def qwen_style(lines):
    tokenizer = train(lines, 1500, pre_tokenizer(QWEN), normalizers.NFC())
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("</tool_call>", normalized=False), AddedToken("<think>", normalized=False),
                          AddedToken("Ame\u0301lie", normalized=True)])
    return json.loads(tokenizer.to_str())


def gpt2_style(lines):
    tokenizer = train(lines, 900, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True))
    tokenizer.add_special_tokens(["<|endoftext|>"])
    content = json.loads(tokenizer.to_str())
    content["model"]["merges"] = [" ".join(merge) for merge in content["model"]["merges"]]  # the form of older files
    return content


def deepseek_style(lines):
    steps = [pre_tokenizers.Split(Regex(expression), "isolated") for expression in DEEPSEEK]
    tokenizer = train(lines, 700, pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))
    tokenizer.add_special_tokens(["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"])
    return json.loads(tokenizer.to_str())


def o200k_style(lines):
    tokenizer = train(lines, 700, pre_tokenizer(O200K))
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return json.loads(tokenizer.to_str())


def llama2_style(lines):
    """As the published files: characters and byte tokens, spaces made marks by the normalizer, no pre-tokenizer."""
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    trained.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    alphabet = sorted(set("".join(WORDS) + "▁.,;:()0123456789éаия中"))
    trainer = trainers.BpeTrainer(vocab_size=500, show_progress=False, limit_alphabet=len(alphabet), initial_alphabet=alphabet)
    # Runs of marks, which merges may join, and some non-Latin words.
    trained.train_from_iterator([*lines[:4000], *(" " * n + "x" for n in range(2, 9) for _ in range(40))], trainer)
    model = json.loads(trained.to_str())["model"]
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *sorted(model["vocab"], key=model["vocab"].get)]
    marks = [("▁" * n, "▁" * m) for n in (1, 2, 4) for m in (1, 2, 4) if n == m]
    pieces += [left + right for left, right in marks if left + right not in pieces]
    special = [{"id": i, "content": pieces[i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True} for i in range(3)]
    content = json.loads(trained.to_str())
    content["added_tokens"] = special
    content["pre_tokenizer"] = None
    content["post_processor"] = {
        "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
    content["decoder"] = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
                                                           {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    content["model"] = {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": True,
                        "byte_fallback": True, "vocab": {piece: i for i, piece in enumerate(pieces)},
                        "merges": [" ".join(merge) for merge in [*model["merges"], *(m for m in marks if list(m) not in model["merges"])]]}
    return content


def llama2_metaspace_style(lines):
    """As newer conversions write it: Metaspace instead of the normalizer; an added token that is looked for after normalization."""
    content = llama2_style(lines)
    content["normalizer"] = None
    content["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    content["decoder"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    return content


def characters_style(lines):
    """What else the format allows: no bytes, unknown characters one by one, words cut, a normalized added token."""
    content = llama2_style(lines)
    content["normalizer"] = {"type": "Replace", "pattern": {"String": "e\u0301"}, "content": "é"}
    content["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    content["model"].update(byte_fallback=False, fuse_unk=False)
    content["added_tokens"].append({"id": len(content["model"]["vocab"]), "content": "Ame\u0301lie", "single_word": False, "lstrip": False, "rstrip": False,
                                    "normalized": True, "special": False})
    return content


def categories():
    found = {}
    for name in CATEGORIES:
        rest = pre_tokenizers.Split(Regex(rf"\p{{{name}}}"), "removed")
        others = set()
        for first in range(0, len(CODE_POINTS), 4096):
            for piece, _ in rest.pre_tokenize_str("".join(map(chr, CODE_POINTS[first:first + 4096]))):
                others.update(map(ord, piece))
        members = [c for c in CODE_POINTS if c not in others]
        found[name] = [len(members), fnv1a(members)]
    return found


def fnv1a(ids):
    value = 0xCBF29CE484222325
    for byte in b"".join(struct.pack("<I", i) for i in ids):
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    writer = Writer()
    lines = [writer.line(i) for i in range(LINES)]
    (folder / "lines.jsonl").write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8", newline="\n")
    gpt2 = gpt2_style(lines)
    prefixed = json.loads(json.dumps(gpt2))
    prefixed["pre_tokenizer"]["add_prefix_space"] = True
    for name, content in (("llama3", llama3_style(lines)), ("qwen", qwen_style(lines)), ("gpt2", gpt2), ("gpt2-prefix-space", prefixed),
                          ("deepseek", deepseek_style(lines)), ("o200k", o200k_style(lines)), ("llama2", llama2_style(lines)),
                          ("llama2-metaspace", llama2_metaspace_style(lines)), ("characters", characters_style(lines))):
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8", newline="\n")
        reference = Tokenizer.from_str(text)
        with open(folder / f"{name}.ref", "wb") as out:
            for line in lines[:SHORT_LINES] if name in SHORT else lines:
                ids = reference.encode(line).ids
                out.write(struct.pack("<HQ", len(ids), fnv1a(ids)))
    (folder / "unicode.json").write_text(json.dumps(categories()) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main()
