#!/usr/bin/env python3
"""Makes jinja.json: what transformers' environment of jinja2 makes of programs, for tests/datasets.

Usage: make_jinja_references.py     (requirements.txt; the same bytes every time)

  snippets   [program, text]: of the variables `messages` that stand beside them; null where jinja2 refuses the program
  chats      for each template of chat/templates.json: conversations with what the system says, calls of tools and thoughts, their other
             variables, and the text, or null where the template refuses them
"""

import datetime
import json
import pathlib
import random

from transformers.utils.chat_template_utils import _compile_jinja_template

HERE = pathlib.Path(__file__).resolve().parent
DAY = datetime.datetime(2024, 7, 26)
MESSAGES = [{"role": "system", "content": "sys"}, {"role": "user", "content": "Hi th\u00e9re"},
            {"role": "assistant", "content": "ok", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1, "y": [1.5, "\u00e9"]}}}]},
            {"role": "tool", "content": "5"}]
SPECIAL = {"llama2": ("<s>", "</s>"), "llama3": ("<|begin_of_text|>", ""), "mistral": ("<s>", "</s>")}
SNIPPETS = (HERE / "jinja_snippets.txt").read_text().split("\n=====\n")
WORDS = ("the valley Z\u00fcrich \u6771\u4eac \U0001f600 don't\nline\ttab \"quoted\" <|im_end|> </think> <think> {{x}} \\n e\u0301 \u00a0 & <b> 12 3.5").split(" ")


def rendered(program, variables):
    try:
        template = _compile_jinja_template(program)
        template.globals["strftime_now"] = DAY.strftime
        return template.render(**variables)
    except Exception:  # of jinja2, or Python's own of what a program calculates
        return None


class Conversations:
    def __init__(self, seed):
        self.rng = random.Random(seed)

    def said(self):
        return " ".join(self.rng.choice(WORDS) for _ in range(self.rng.randrange(0, 6))) + self.rng.choice(["", "\n", " "])

    def value(self, depth=0):
        kind = self.rng.randrange(7)
        if kind == 0:
            return self.rng.randrange(-100, 10**12)
        if kind == 1:
            return self.rng.choice([0.1, 1.0, 1e-9, 2.5e20, -3.25, 123456.789])
        if kind == 2:
            return self.rng.choice([True, False, None])
        if kind == 3 and depth < 2:
            return [self.value(depth + 1) for _ in range(self.rng.randrange(3))]
        if kind == 4 and depth < 2:
            return {self.rng.choice("zyxabc") + str(i): self.value(depth + 1) for i in range(self.rng.randrange(3))}
        return self.said()

    def tool(self):
        return {"type": "function", "function": {"name": f"f{self.rng.randrange(9)}", "description": self.said(), "parameters": {
            "type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "integer", "enum": [1, 2]}}, "required": ["z"]}}}

    def messages(self, tools, thoughts):
        rng = self.rng
        messages = [{"role": "system", "content": self.said()}] if rng.random() < 0.4 else []
        for _ in range(rng.randrange(1, 3)):
            messages.append({"role": "user", "content": self.said()})
            if tools and rng.random() < 0.5:
                calls = [{"type": "function", "function": {"name": f"f{i}", "arguments": {"z": self.value(), "a": self.value()}}}
                         for i in range(rng.randrange(1, 3))]
                messages.append({"role": "assistant", "content": rng.choice([self.said(), ""]), "tool_calls": calls})
                messages += [{"role": "tool", "content": rng.choice([self.said(), "5"])} for _ in calls]
            answer = {"role": "assistant", "content": self.said()}
            if thoughts and rng.random() < 0.4:
                answer["reasoning_content"] = self.said()
            elif thoughts and rng.random() < 0.3:
                answer["content"] = f"<think>\n{self.said()}\n</think>\n\n{self.said()}"
            messages.append(answer)
        return messages


def chats(name, program):
    made = Conversations(name)
    qwen = name.startswith("qwen")
    cases = []
    for _ in range(16):
        case = {"messages": made.messages(qwen, name == "qwen3")}
        if qwen and made.rng.random() < 0.5:
            case["tools"] = [made.tool()]
        begin, end = SPECIAL.get(name, ("", ""))
        # The prompt of Qwen3 opens with thoughts in its newest programs and without in its first ones.
        text = rendered(program, {"tools": None, **case, "bos_token": begin, "eos_token": end, "add_generation_prompt": False})
        cases.append({**case, "text": text})
    return cases


def main():
    templates = json.loads((HERE / "chat" / "templates.json").read_text())
    out = {"messages": MESSAGES, "snippets": [[program, rendered(program, {"messages": MESSAGES})] for program in SNIPPETS],
           "chats": {name: chats(name, entry["program"]) for name, entry in templates.items()}}
    lines = [f' "messages": {json.dumps(out["messages"])}', ' "snippets": [\n' + ",\n".join("  " + json.dumps(s) for s in out["snippets"]) + "\n ]",
             ' "chats": {\n' + ",\n".join(f"  {json.dumps(name)}: [\n" + ",\n".join("   " + json.dumps(c) for c in cases) + "\n  ]"
                                         for name, cases in out["chats"].items()) + "\n }"]
    (HERE / "jinja.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(len(SNIPPETS), "snippets,", sum(text is None for _, text in out["snippets"]), "of them refused;",
          {name: sum(c["text"] is None for c in cases) for name, cases in out["chats"].items()}, "refused")


if __name__ == "__main__":
    main()
