"""The numbers of docs/tokens.md are those of the committed run."""

from pathlib import Path

import numpy as np

from posenc_jax.lab import runs

ROOT = Path(__file__).parents[1]


def rows_of(page, first):
    """The cells of the table whose first cell is this, by the first cell of each row."""
    lines = page.splitlines()
    begin = next(n for n, line in enumerate(lines) if line.startswith(f"| {first} |"))
    rows = {}
    for line in lines[begin:]:
        if not line.startswith("|"):
            break
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        rows[name] = cells
    return rows


def test_the_page_of_tokens_has_the_numbers_of_its_run():
    (run,) = runs.read_archive(ROOT / "results" / "linux_tokens.tar.xz")
    page = (ROOT / "docs" / "tokens.md").read_text("utf-8")
    values = {}
    for record in run.records:
        labels = record["labels"]
        where = labels["split"], record["metric"], labels["length"], labels.get("position")
        values.setdefault(where, {})[record["step"]] = record["value"]

    curve = rows_of(page, "tokens (millions)")
    valid = values["valid", "bits_per_byte", 512, None]
    loss = values["train", "loss", 512, None]
    tokens = 16 * 512
    assert curve["tokens (millions)"] == [f"{step * tokens / 1e6:.1f}" for step in sorted(valid)]
    assert curve["validation, bits per byte"] == [f"{valid[step]:.3f}" for step in sorted(valid)]
    means = [
        np.mean([value for at, value in loss.items() if step - 90 <= at <= step])
        for step in sorted(valid)
    ]
    assert curve["training loss, nats per token"] == [f"{mean:.3f}" for mean in means]

    table = rows_of(page, "window")
    firsts = [int(cell.split()[0].replace(",", "")) for cell in table["window"][1:]]
    for length in (512, 1024, 2048, 4096, 8192):
        at = lambda position, n=length: values.get(("test", "bits_per_byte", n, position), {})
        cells = [f"{value:.3f}" for first in firsts for value in at(first).values()]
        whole, *by_position = (cell for cell in table[f"{length:,}"] if cell)
        assert [whole] == [f"{value:.3f}" for value in at(None).values()]
        assert by_position == cells
