"""Draws docs/images/digits-curves.svg: loss and accuracy by epoch, from the progress.jsonl of a training.

    .venv/bin/python benchmarks/curves_picture.py progress.jsonl

The picture of the quick start is that of manifests/examples/digits.yaml on the local cluster, with two ranks.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "digits-curves.svg"
METRICS = ("loss", "accuracy")
PARTS = {"": ("training", "#3274d9"), "val_": ("validation", "#e0752d")}
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 380, 220, 44, 34, 26


def epoch_metrics(path: Path) -> list[dict[str, float]]:
    """The metrics at the end of each epoch, which alone contain those of the validation."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    last = {record["epoch"]: record["metrics"] for record in records if "val_loss" in record["metrics"]}
    return [last[epoch] for epoch in sorted(last)]


def chart(metric: str, epochs: Sequence[dict[str, float]]) -> Iterator[str]:
    """One chart: a curve of the training and one of the validation."""
    curves = {prefix: [epoch[prefix + metric] for epoch in epochs] for prefix in PARTS}
    most = max(map(max, curves.values()))
    right, bottom = WIDTH - 12, HEIGHT - BOTTOM
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff" stroke="#ccc"/><text x="12" y="20">{metric}</text>'
    for share in (0.0, 0.5, 1.0):
        y = bottom - share * (bottom - TOP)
        yield f'<path d="M{LEFT} {y:.0f}H{right}" stroke="#ddd"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.0f}" text-anchor="end">{share * most:.3g}</text>'
    for index, (prefix, values) in enumerate(curves.items()):
        name, color = PARTS[prefix]
        step = (right - LEFT) / max(len(values) - 1, 1)
        points = (
            f"{LEFT + at * step:.0f},{bottom - value / most * (bottom - TOP):.0f}" for at, value in enumerate(values)
        )
        yield f'<polyline points="{" ".join(points)}" fill="none" stroke="{color}" stroke-width="2"/>'
        yield f'<text x="{WIDTH - 160 + 76 * index}" y="20" fill="{color}">{name}</text>'
    for epoch in (1, len(epochs)):
        x = LEFT + (right - LEFT) * (epoch > 1)
        yield f'<text x="{x:.0f}" y="{bottom + 17}" text-anchor="middle">{epoch}</text>'
    yield f'<text x="{(LEFT + right) / 2:.0f}" y="{bottom + 17}" text-anchor="middle">epoch</text>'


def main() -> None:
    """Read the records and write the picture."""
    parser = argparse.ArgumentParser(description="Draws the learning curves of a progress.jsonl.")
    parser.add_argument("records", type=Path, help="progress.jsonl of a training")
    epochs = epoch_metrics(parser.parse_args().records)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH * len(METRICS) + 8} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">'
    ]
    for index, metric in enumerate(METRICS):
        parts += [f'<g transform="translate({index * (WIDTH + 8)},0)">', *chart(metric, epochs), "</g>"]
    PICTURE.write_text("\n".join([*parts, "</svg>", ""]))


if __name__ == "__main__":
    main()
