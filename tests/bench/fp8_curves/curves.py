#!/usr/bin/env python3
"""Compares the loss curves of fp8 with those of bf16, and the processor's emulation with the GPU, from the archives of run.sh.

Usage: curves.py FOLDER [--plot FILE.svg] [--check]        (needs h5py)

Prints the mean loss of the last 100 steps in bf16 and fp8 and their relative difference for every seed, its mean and spread over the seeds; what
another order of sums alone changes; and the largest relative difference of a step's loss between emulation and GPU. --check exits with 1 where the
mean over a model's seeds is further than 0.5% from bf16, or where runs are missing.
"""

import argparse
import pathlib
import sys

import h5py

MODELS = ["llama-100m", "qwen3-100m"]
SETTINGS = {"llama-100m": "", "qwen3-100m": "", "qwen3-100m-slow": "half of the learning rate, twice the warm-up"}
LAST = 100
LIMIT = 0.005
COLOURS = {"bf16": "#1f6fb4", "fp8": "#d1495b"}


def losses(folder, name):
    """The run's loss per step, or None if it did not run to its end."""
    path = folder / f"{name}.h5"
    if not path.exists():
        return None
    with h5py.File(path) as archive:
        if archive.attrs["status"] != b"finished":
            return None
        return [float(x) for x in archive["steps/loss"][:]]


def seeds(folder, name):
    return sorted(int(p.stem.rsplit("seed", 1)[1]) for p in folder.glob(f"{name}-bf16-seed*.h5"))


def mean(values):
    return sum(values) / len(values)


def deviation(values):
    """Sample standard deviation."""
    return (sum((x - mean(values)) ** 2 for x in values) / (len(values) - 1)) ** 0.5


def relative(folder, first, second):
    """Mean loss of the last steps of two runs and their relative difference, or None where one is missing or cut short."""
    runs = [losses(folder, name) for name in (first, second)]
    if any(run is None for run in runs) or len(runs[0]) != len(runs[1]) or len(runs[0]) < LAST:
        return None
    reference, value = (mean(run[-LAST:]) for run in runs)
    return reference, value, value / reference - 1


def compare_precisions(folder):
    """Prints the table; whether every pair is there and each model's mean within the limit."""
    good = True
    print(f"| model | seed | bf16, last {LAST} of its steps | fp8 | difference |\n|---|---|---|---|---|")
    for name, setting in SETTINGS.items():
        found = seeds(folder, name)
        good = good and len(found) > 0
        differences = []
        for seed in found:
            pair = relative(folder, f"{name}-bf16-seed{seed}", f"{name}-fp8-seed{seed}")
            if pair is None:
                print(f"| {name} | {seed} | missing or cut short | | |")
                good = False
                continue
            differences.append(pair[2])
            print(f"| {name} | {seed} | {pair[0]:.4f} | {pair[1]:.4f} | {100 * pair[2]:+.2f}% |")
        if len(differences) > 1:
            note = f" ({setting})" if setting else ""
            print(f"| {name}{note} | {len(differences)} seeds | | | {100 * mean(differences):+.2f} ± {100 * deviation(differences):.2f}% |")
            good = good and abs(mean(differences)) <= LIMIT
    return good


def compare_orders(folder):
    """Prints what sums in another order change, per precision; nothing is expected of it."""
    for model in MODELS:
        for seed in seeds(folder, f"{model}-again"):
            for precision in ("bf16", "fp8"):
                pair = relative(folder, f"{model}-{precision}-seed{seed}", f"{model}-again-{precision}-seed{seed}")
                if pair:
                    print(f"{model}, seed {seed}, {precision}, sums in another order: {pair[0]:.4f} and {pair[1]:.4f}, {100 * pair[2]:+.2f}%")


def compare_devices(folder):
    """Prints how far the emulation is from the GPU; whether both are there."""
    good = True
    for model in MODELS:
        cpu, gpu = (losses(folder, f"{model}-fp8-{device}") for device in ("cpu", "cuda"))
        if cpu is None or gpu is None or len(cpu) != len(gpu):
            print(f"{model}, fp8 on processor and GPU: missing")
            good = False
            continue
        differences = [abs(c / g - 1) for c, g in zip(cpu, gpu)]
        worst = max(range(len(differences)), key=differences.__getitem__)
        print(f"{model}, fp8, {len(cpu)} steps from loss {gpu[0]:.3f} to {gpu[-1]:.3f}: processor and GPU differ by at most "
              f"{differences[worst]:.1e} (step {worst + 1}), {mean(differences):.1e} on average")
    return good


class Panel:
    """One diagram: its frame, and the mapping of its data to the page."""

    def __init__(self, left, top, width, height, x_range, y_range):
        self.box = (left, top, width, height)
        self.x_range, self.y_range = x_range, y_range

    def x(self, value):
        left, _, width, _ = self.box
        return left + width * (value - self.x_range[0]) / (self.x_range[1] - self.x_range[0])

    def y(self, value):
        _, top, _, height = self.box
        low, high = self.y_range
        return top + height * (1 - (min(max(value, low), high) - low) / (high - low))

    def frame(self, title, x_ticks, y_ticks, y_format):
        left, top, width, height = self.box
        parts = [f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#888"/>',
                 f'<text x="{left}" y="{top - 8}" font-weight="bold">{title}</text>']
        for tick in x_ticks:
            parts.append(f'<text x="{self.x(tick):.1f}" y="{top + height + 16}" text-anchor="middle">{tick}</text>')
        for tick in y_ticks:
            y = self.y(tick)
            parts.append(f'<line x1="{left}" x2="{left + width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
            parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{format(tick, y_format)}</text>')
        return parts

    def line(self, points, colour, opacity):
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.2f}" for x, y in points)
        return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.2" stroke-opacity="{opacity}"/>'


def windows(values, width):
    """Means of `width` steps each, at the window's last step."""
    return [(end, mean(values[end - width:end])) for end in range(width, len(values) + 1, width)]


def plot(folder, path):
    """Above, the losses, means of 10 steps; below, fp8 over bf16 of the same seed, means of 100 steps, with the limit."""
    width, height = 1080, 600
    page = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
            f'<rect width="{width}" height="{height}" fill="white"/>']
    for column, model in enumerate(SETTINGS):
        pairs = []
        for seed in seeds(folder, model):
            pair = [losses(folder, f"{model}-{precision}-seed{seed}") for precision in ("bf16", "fp8")]
            if all(pair):
                pairs.append(pair)
        if not pairs:
            continue
        steps = len(pairs[0][0])
        smooth = [[windows(run, 10) for run in pair] for pair in pairs]
        low = min(y for pair in smooth for run in pair for _, y in run)
        high = max(y for pair in smooth for run in pair for _, y in run)
        left = 60 + 350 * column
        ticks = [steps * i // 4 for i in range(5)]
        above = Panel(left, 40, 285, 290, (0, steps), (int(low), int(high) + 1))
        page += above.frame(f"{model}: loss, {len(pairs)} seeds, by 10 steps", ticks, range(int(low), int(high) + 2), "d")
        below = Panel(left, 400, 285, 150, (0, steps), (-0.015, 0.015))
        page += below.frame("fp8 over bf16 by 100 steps; grey: within 0.5%", ticks, [-0.015, -0.01, -0.005, 0, 0.005, 0.01, 0.015], "+.1%")
        page.append(f'<rect x="{left}" y="{below.y(LIMIT):.1f}" width="285" height="{below.y(-LIMIT) - below.y(LIMIT):.1f}" fill="#000" fill-opacity="0.06"/>')
        for (bf16, fp8), (smooth_bf16, smooth_fp8) in zip(pairs, smooth):
            page.append(above.line(smooth_bf16, COLOURS["bf16"], 0.8))
            page.append(above.line(smooth_fp8, COLOURS["fp8"], 0.8))
            ratios = [(x, f / b - 1) for (x, b), (_, f) in zip(windows(bf16, LAST), windows(fp8, LAST))]
            page.append(below.line(ratios, "#444", 1))
        page += [f'<text x="{left + 230}" y="{60 + 16 * i}" fill="{colour}">{name}</text>' for i, (name, colour) in enumerate(COLOURS.items())]
    page.append("</svg>")
    path.write_text("\n".join(page) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--plot", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    near = compare_precisions(arguments.folder)
    print()
    compare_orders(arguments.folder)
    same = compare_devices(arguments.folder)
    if arguments.plot:
        plot(arguments.folder, arguments.plot)
    return 1 if arguments.check and not (near and same) else 0


if __name__ == "__main__":
    sys.exit(main())
