#!/usr/bin/env python3
"""That structure.py notices what it is for: a small tree with one fault at a time."""
import os
import subprocess
import sys
import tempfile

CHECK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "structure.py")
SOUND = {
    "core/compile/compile.cpp": '#include "core/program/verifier.h"',
    "plugins/strategies/ddp/strategy.cpp": '#include "consist/strategy.h"\n#include "plugins/strategies/common/buckets.h"',
    "models/llama/model.cpp": '#include "models/decoder/decoder.h"',
    "core/ops/linear.cpp": 'if (op == "linear") return;',
    "docs/decisions/time.md": "Nobody reads it, and a message travels.",
    "docs/archive.md": "The event `more_room for rows`.\n```\nno room for it\n```",
    "launch/view/view.h": "/// One line for people.",
    "launch/view/second.h": "// Lines of a view.\n// What they show is said below.",
    "core/include/consist/observer.h": "class CONSIST_API Observer {\n  virtual ~Observer();\n  virtual void step();\n  virtual void end() = 0;\n};",
    "core/plugin/guarded.cpp": "class GuardedObserver final : public Guarded<Observer> {\n  void step() override;\n  void end() override;\n};",
    "plugins/devices/cpu/kernels/linear.cpp": "CONSIST_KERNEL(linear, make_linear);",
    "plugins/devices/cuda/kernels/linear.cu": "CONSIST_KERNEL(linear, make_linear);",
    # Seventy lines, and braces that are none of the function's.
    "core/base/long.cpp": "/* { */\nnamespace consist {\nvoid of_70() {\n" + "  use('}', \"}\");  // }\n" * 67 + '  text(R"(\n{\n)");\n}\n}',
    "plugins/devices/cuda/kernels/own.cu": "#if defined(__CUDA_ARCH_FEAT_SM90_ALL)\n#endif\nhopper::require_bodies(kernel, instead, settings);",
}
FAULTS = {
    "core/plugin/guarded.cpp": "class GuardedObserver final : public Guarded<Observer> {\n  void end() override;\n};",
    "plugins/devices/cpu/kernels/alone.cpp": "CONSIST_KERNEL(alone, make_alone);",
    "plugins/devices/cuda/kernels/twice.cu": "CONSIST_KERNEL(linear, make_other);",
    "core/base/longer.cpp": "namespace consist {\nclass A {\n  void of_71() const {\n" + "    use([] { return 1; });\n" * 69 + "  }\n};\n}",
    "plugins/devices/cuda/kernels/empty.cu": "#if __CUDA_ARCH__ >= 900",
    "core/base/file.h": '#include "core/compile/compile.h"',
    "core/rooms/room.h": '#include "core/base/file.h"',
    "plugins/strategies/ddp/strategy.cpp": '#include "core/passes/optimizer.h"',
    "models/llama/model.cpp": '#include "models/qwen/model.h"',
    "launch/cli/options.cpp": '#include "launch/compare/rows.h"',
    "launch/options.h": "#pragma once",
    "core/passes/pass.cpp": 'if (i.op->name() == "linear") return;',
    "plugins/strategies/tp-sp/parts.cpp": 'if (op != "views") return;',
    "core/passes/words.h": "/// Whether it fits.",
    "core/passes/first.h": "// What passes share.",
    "tests/job/first_test.cpp": "// Where a rank is.",
    "core/job/first_doc.h": "/// How long a rank waits.",
    "plugins/strategies/ep/parts.h": "/// Tokens that travel to their experts.",
    "core/include/consist/op.h": "/// Whoever emits it owns it.",
    "docs/ops.md": "There is no room for these rows.",
    "core/passes/pack.cpp": 'bool both = is(i, "rope");',
    "core/passes/last.cpp": "if (i.tag.inserted_by != std::string_view(recompute_name)) continue;",
    "core/passes/fuse.cpp": 'return registry().find(std::string(i.op->name()) + "_amax");',
}


def run(files):
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text + "\n")
        return subprocess.run([sys.executable, CHECK, root], capture_output=True, text=True, check=False)


def main():
    missed = [] if run(SOUND).returncode == 0 else ["a sound tree is refused: " + run(SOUND).stdout]
    for path, text in FAULTS.items():
        result = run({**SOUND, path: text})
        if result.returncode == 0 or path not in result.stdout:
            missed.append(f"{path}: {text}")
    print("\n".join(missed) or f"{len(FAULTS)} faults noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
