"""Freezes outputs of public implementations under tests/goldens, for test_goldens.py.

    uv run scripts/make_goldens.py              # makes its own environment, of the versions below
    python scripts/make_goldens.py --only=rope  # in an environment that has them

Everything runs on the CPU in a few seconds. Arrays go to tests/goldens/<method>.npz under
"<setting>/<in|out>/<name>", the rest to tests/goldens/manifest.json.
"""

# pyright: reportMissingImports=false

# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "diffusers==0.42.1",
#   "fla-core==0.6.0",
#   "numpy==2.4.6",
#   "positional-encodings==6.0.3",
#   "rotary-embedding-torch==0.9.1",
#   "timm==1.0.31",
#   "torch==2.13.0",
#   "torchscale==0.3.0",
#   "torchvision==0.28.0",
#   "transformers==5.23.0",
#   "x-transformers==2.31.10",
# ]
#
# [tool.uv]
# # torchscale is read for one file: its own needs stay away.
# override-dependencies = ["timm==1.0.31", "fairscale; python_version < '3'"]
#
# [[tool.uv.index]]
# name = "pytorch-cpu"
# url = "https://download.pytorch.org/whl/cpu"
# explicit = true
#
# [tool.uv.sources]
# torch = { index = "pytorch-cpu" }
# torchvision = { index = "pytorch-cpu" }
# ///

import argparse
import collections
import importlib.metadata
import inspect
import itertools
import json
import pathlib

import numpy as np
import torch
from goldens import axes, bias, checkpoints, content, inputs, layers, models, rotary, scaling
from goldens.golden import Golden

FOLDER = pathlib.Path(__file__).parents[1] / "tests" / "goldens"
FAMILIES = (inputs, rotary, axes, scaling, bias, content, layers)
FIELDS = ("function", "hook", "options", "wrong", "dims", "layer", "causal")
LICENCES = {
    "diffusers": "Apache-2.0",
    "fla-core": "MIT",
    "positional-encodings": "MIT",
    "rotary-embedding-torch": "MIT",
    "timm": "Apache-2.0",
    "torchscale": "MIT",
    "transformers": "Apache-2.0",
    "x-transformers": "MIT",
}


def row(golden: Golden) -> dict:
    """Returns the entry of a golden in the manifest."""
    return {
        "case": golden.case,
        "package": golden.package,
        "version": importlib.metadata.version(golden.package),
        "licence": LICENCES[golden.package],
        **{field: getattr(golden, field) for field in FIELDS},
    }


def save_models() -> None:
    """Writes whole models of transformers to the folder huggingface: models.json, models.npz."""
    folder, files = FOLDER / "huggingface", {}
    folder.mkdir(parents=True, exist_ok=True)
    with torch.no_grad():
        rows = []
        for row, arrays in models.models():
            rows.append({"version": importlib.metadata.version("transformers"), **row})
            files |= {f"{row['case']}/{name}": arrays[name] for name in arrays}
    np.savez_compressed(folder / "models.npz", **files)
    (folder / "models.json").write_text(json.dumps(rows, indent=1) + "\n")
    print(f"{len(rows)} models in {folder}")


# Cases of the folder checkpoints that another version made, by --case=NAME in an environment of it.
OTHER_VERSIONS = dict.fromkeys(
    (
        "cohere", "cohere2", "gemma", "glm", "glm4", "granite", "granite untied", "modernbert",
        "olmo3", "phi3", "smollm3", "t5 gated saved", "xlm-roberta",
    ),
    "transformers==5.24.0",
)  # fmt: skip


def save_checkpoints(case: str | None) -> None:
    """Writes logits of models of transformers to the folder checkpoints, with their tensors.

    case: one of them; the others keep what they have.
    """
    folder, files, rows = FOLDER / "checkpoints", {}, []
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "models.json").exists():
        keep = lambda name: name != case if case else name in OTHER_VERSIONS
        rows = [
            row for row in json.loads((folder / "models.json").read_text()) if keep(row["case"])
        ]
        with np.load(folder / "logits.npz") as old:
            files = {name: old[name] for name in old.files if keep(name.split("/")[0])}
    with torch.no_grad():
        for row, arrays in checkpoints.checkpoints(case):
            if not case and row["case"] in OTHER_VERSIONS:
                continue
            rows.append({"version": importlib.metadata.version("transformers"), **row})
            files |= {f"{row['case']}/{name}": arrays[name] for name in arrays}
    np.savez_compressed(folder / "logits.npz", **files)
    (folder / "models.json").write_text(json.dumps(rows) + "\n")
    print(f"{len(rows)} models in {folder}")


def check_saved(folder: pathlib.Path) -> None:
    """Notes the digests of the models that our code saved there, which transformers reads."""
    path = FOLDER / "checkpoints" / "models.json"
    rows = json.loads(path.read_text())
    with torch.no_grad(), np.load(FOLDER / "checkpoints" / "logits.npz") as frozen:
        digests = checkpoints.check_saved(folder, dict(frozen))
    rows = [{**row, "saved": digests.get(row["case"], row.get("saved"))} for row in rows]
    path.write_text(json.dumps(rows) + "\n")
    print(f"{len(digests)} saved models have the same logits")


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument(
        "--only", help="one method, huggingface or checkpoints; the others keep their files"
    )
    flags.add_argument("--case", help="one case of --only=checkpoints")
    flags.add_argument("--saved", type=pathlib.Path, help="check models that our code saved there")
    arguments = flags.parse_args()
    only = arguments.only
    if arguments.saved:
        check_saved(arguments.saved)
        return
    if only in (None, "checkpoints"):
        save_checkpoints(arguments.case)
    if only == "checkpoints":
        return
    if only in (None, "huggingface"):
        save_models()
    if only == "huggingface":
        return
    FOLDER.mkdir(exist_ok=True)
    manifest = FOLDER / "manifest.json"
    rows = json.loads(manifest.read_text()) if only else []
    rows = [old for old in rows if old["case"].split("/")[0] != only]
    files = collections.defaultdict(dict)
    with torch.no_grad():
        members = (value for family in FAMILIES for value in vars(family).values())
        methods = filter(inspect.isgeneratorfunction, members)
        for golden in itertools.chain.from_iterable(method() for method in methods):
            name, setting = golden.case.split("/")
            if only in (None, name):
                rows.append(row(golden))
                for side, arrays in (("in", golden.inputs), ("out", golden.outputs)):
                    files[name] |= {f"{setting}/{side}/{key}": arrays[key] for key in arrays}
    for name, arrays in files.items():
        np.savez_compressed(FOLDER / f"{name}.npz", **arrays)
    rows.sort(key=lambda row: row["case"])
    manifest.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"{len(files)} methods, {len(rows)} goldens in all, in {FOLDER}")


if __name__ == "__main__":
    main()
