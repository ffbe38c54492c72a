#!/usr/bin/env python3
"""Makes chat/: conversations, and what transformers makes of them, for tests/datasets and tests/parity.

Usage: make_chat_references.py     (requirements.txt; the same bytes every time)

  chat/templates.json     published chat templates with their origin: input, not made here
  chat/rows.jsonl         conversations, one a line: {"messages": [{"role": ..., "content": ...}, ...]}
  chat/expected.json      tokenizers: for each template the file of tests/golden/tokenizer and the tokens that are added to it, with the ids
                          behind its largest; cases: for each template and row the ids of apply_chat_template and the mask of the
                          assistants' tokens, or null where the template refuses the row's roles
  chat/model/             a tiny random Llama; chat/losses.json what it gives over the rows in the template chatml, packed one behind the
                          other into sequences: three AdamW steps, each over all sequences, with the labels of the mask; "joined": attention
                          sees the whole sequence, "apart": its own row alone
"""

import json
import pathlib
import random

import torch
from make_hf_references import ADAMW, llama, randomise
from make_mask_references import attention_mask_of
from transformers import PreTrainedTokenizerFast

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE / "chat"
SEQUENCE, STEPS = 44, 3

# The same programs with marks around what an assistant says; each must write what the published one does.
MARKED = {
    "chatml": [("{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}",
                "{{'<|im_start|>' + message['role'] + '\\n'}}{% if message['role'] == 'assistant' %}{% generation %}{{message['content'] + '<|im_end|>'}}"
                "{% endgeneration %}{% else %}{{message['content'] + '<|im_end|>'}}{% endif %}{{'\\n'}}")],
    "llama2": [("{{ ' '  + content.strip() + ' ' + eos_token }}", "{% generation %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endgeneration %}")],
    "llama3": [("{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}"
                "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}",
                "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' %}{% if loop.index0 == 0 %}"
                "{% set content = bos_token + content %}{% endif %}{{ content }}{% if message['role'] == 'assistant' %}{% generation %}"
                "{{ message['content'] | trim + '<|eot_id|>' }}{% endgeneration %}{% else %}{{ message['content'] | trim + '<|eot_id|>' }}{% endif %}")],
    "mistral": [("{{ message['content'] + eos_token}}", "{% generation %}{{ message['content'] + eos_token}}{% endgeneration %}")],
    "qwen2.5": [("{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}",
                 "{{- '<|im_start|>' + message.role + '\\n' }}{%- if message.role == 'assistant' %}{% generation %}"
                 "{{- message.content + '<|im_end|>' }}{% endgeneration %}{%- else %}{{- message.content + '<|im_end|>' }}{%- endif %}{{- '\\n' }}")],
    "qwen3": [("{{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}",
               "{{- '<|im_start|>' + message.role + '\\n' }}{%- set said = '<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + "
               "content.lstrip('\\n') %}{% generation %}{{- said + '<|im_end|>' }}{% endgeneration %}"),
              ("{{- '<|im_start|>' + message.role + '\\n' + content }}",
               "{{- '<|im_start|>' + message.role + '\\n' }}{% generation %}{{- content + '<|im_end|>' }}{% endgeneration %}"),
              ("        {{- '<|im_end|>\\n' }}\n    {%- elif message.role == \"tool\" %}", "        {{- '\\n' }}\n    {%- elif message.role == \"tool\" %}")],
}
TOKENIZERS = {
    "chatml": ("qwen", [], {}),
    "llama2": ("llama2", [], {"bos_token": "<s>", "eos_token": "</s>"}),
    "llama3": ("llama3", ["<|start_header_id|>", "<|end_header_id|>"], {"bos_token": "<|begin_of_text|>"}),
    "mistral": ("llama2-metaspace", [], {"bos_token": "<s>", "eos_token": "</s>"}),
    "qwen2.5": ("qwen", [], {}),
    "qwen3": ("qwen", ["</think>"], {}),
}

WORDS = ("the valley river stone bread morning answer question tree small bright Zürich naïve 東京 привет שלום e\u0301te\u0301 A\u030angström 12 345 x=y; "
         "😀 don't can't\nline\t tab").split(" ")


def conversations():
    rng = random.Random(7)

    def said():
        return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(2, 14)))

    rows = []
    for turns in (1, 2, 3, 1, 4, 2, 1, 3):
        messages = [{"role": role, "content": said()} for _ in range(turns) for role in ("user", "assistant")]
        if turns % 2 == 0:
            messages.insert(0, {"role": "system", "content": said()})
        rows.append(messages)
    user = {"role": "user", "content": "  spaces and a line end \n"}
    rows.append([user, {"role": "assistant", "content": "\n\n  begins with lines, ends with a no-break space\u00a0"}])
    rows.append([user, {"role": "assistant", "content": "\u0301 begins with a mark"}])
    rows.append([user, {"role": "assistant", "content": ""}])
    rows.append([user, {"role": "assistant", "content": "writes <|im_end|> and </s> itself"}])
    rows.append([user, {"role": "assistant", "content": "<think>\nfirst thoughts\n</think>\n\nfirst"}, {"role": "user", "content": "and?"},
                 {"role": "assistant", "content": "<think>\n\nmore thoughts\n\n</think>\n\n\nsecond"}])
    rows.append([{"role": "user", "content": "no answer yet"}])
    rows.append([{"role": "user", "content": "two in turn"}, {"role": "user", "content": "of one role"}, {"role": "assistant", "content": "are read"},
                 {"role": "system", "content": "in most templates"}, {"role": "assistant", "content": "but not in all"}])
    return rows


def tokenizer_of(name):
    base, more, special = TOKENIZERS[name]
    file = json.loads((HERE / "tokenizer" / f"{base}.json").read_text())
    largest = max(max(file["model"]["vocab"].values()), *(token["id"] for token in file["added_tokens"]))
    for number, token in enumerate(more, start=largest + 1):
        file["added_tokens"].append({"id": number, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                                     "special": True})
    path = OUT / "tokenizer.tmp"
    path.write_text(json.dumps(file))
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(path), **special)
    path.unlink()
    return tokenizer


def marked_program(name, program):
    for text, instead in MARKED[name]:
        if text not in program:
            raise SystemExit(f"{name}: the template has no {text}")
        program = program.replace(text, instead)
    return program


def expected(name, program, rows):
    tokenizer = tokenizer_of(name)
    cases = []
    for messages in rows:
        try:
            text = tokenizer.apply_chat_template(messages, chat_template=program, tokenize=False)
        except Exception as error:  # jinja2's, of raise_exception
            if "role" not in str(error):
                raise
            cases.append(None)
            continue
        said = tokenizer.apply_chat_template(messages, chat_template=marked_program(name, program), tokenize=True, return_dict=True,
                                             return_assistant_tokens_mask=True)
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        if said["input_ids"] != ids or tokenizer.apply_chat_template(messages, chat_template=program) != ids:
            raise SystemExit(f"{name}: the marked program writes something else")
        cases.append({"ids": ids, "mask": said["assistant_masks"]})
    return cases


def losses_of(model, cases, apart):
    ids, labels, starts = [], [], []
    for case in cases:
        starts += [len(ids)] * len(case["ids"])
        ids += case["ids"]
        labels += [i if m else -100 for i, m in zip(case["ids"], case["mask"])]
    windows = [slice(at, at + SEQUENCE) for at in range(0, len(ids) - SEQUENCE, SEQUENCE)]
    if len(windows) % 2 != 0:
        raise SystemExit("the test takes the sequences in two micro-batches; choose another SEQUENCE")
    tokens = torch.tensor([ids[w] for w in windows])
    targets = torch.tensor([labels[w.start + 1:w.stop + 1] for w in windows])
    start = torch.tensor([[max(s - w.start, 0) for s in starts[w]] for w in windows], dtype=torch.int32)
    groups = [{"params": [p for p in model.parameters() if p.ndim == 2], "weight_decay": ADAMW["weight_decay"]},
              {"params": [p for p in model.parameters() if p.ndim != 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=ADAMW["lr"], betas=(ADAMW["beta1"], ADAMW["beta2"]), eps=ADAMW["epsilon"])
    losses, norms = [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        inputs = {"input_ids": tokens, "use_cache": False}
        if apart:
            inputs["attention_mask"] = attention_mask_of(start)
            inputs["position_ids"] = torch.arange(SEQUENCE)[None] - start
        logits = model(**inputs).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=-100)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        optimizer.step()
        losses.append(loss.item())
    return {"windows": len(windows), "losses": losses, "grad_norms": norms}


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    templates = json.loads((OUT / "templates.json").read_text())
    rows = conversations()
    (OUT / "rows.jsonl").write_text("".join(json.dumps({"messages": messages}, ensure_ascii=False) + "\n" for messages in rows))
    cases = {name: expected(name, entry["program"], rows) for name, entry in templates.items()}
    tokenizers = {name: {"file": f"{base}.json", "added": more} for name, (base, more, _) in TOKENIZERS.items()}
    lines = ",\n".join(f"    {json.dumps(name)}: [\n" + ",\n".join("      " + json.dumps(case) for case in of) + "\n    ]" for name, of in cases.items())
    (OUT / "expected.json").write_text('{\n  "tokenizers": ' + json.dumps(tokenizers) + ',\n  "cases": {\n' + lines + "\n  }\n}\n")

    model_class, config = llama(vocab_size=1507, hidden_size=16, intermediate_size=24, num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=True)
    results = {"sequence": SEQUENCE, "adamw": ADAMW, "max_norm": 1.0}
    for apart in (False, True):
        config._attn_implementation = "eager"
        model = model_class(config).eval()
        randomise(model, torch.Generator().manual_seed(11))
        if not apart:
            model.save_pretrained(OUT / "model")
        results["apart" if apart else "joined"] = losses_of(model, [c for c in cases["chatml"]], apart)
    for extra in ("generation_config.json",):
        (OUT / "model" / extra).unlink(missing_ok=True)
    (OUT / "losses.json").write_text(json.dumps(results, indent=1) + "\n")
    print({name: sum(case is not None for case in of) for name, of in cases.items()}, results["joined"], results["apart"])


if __name__ == "__main__":
    main()
