"""Parity with public implementations, whose outputs scripts/make_goldens.py has frozen."""

import ast
import collections
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import CATALOG, Dims, at_layer, attend, frame, make
from posenc_jax.encoding import place
from posenc_jax.encodings import multimodal_ids
from posenc_jax.lab.definitions.trial_options import REFERENCES
from posenc_jax.layout import full
from tests.support import ROOT
from tests.support.catalogue import gap

FOLDER = ROOT / "tests" / "goldens"
ROWS = json.loads((FOLDER / "manifest.json").read_text())
CASES = [pytest.param(row, id=row["case"].replace(" ", "_")) for row in ROWS]


def frozen(row, side):
    """The golden's arrays of one side, "in" or "out", by name."""
    name, setting = row["case"].split("/")
    with np.load(FOLDER / f"{name}.npz") as file:
        start = f"{setting}/{side}/"
        return {key.removeprefix(start): file[key] for key in file.files if key.startswith(start)}


def asked(row, inputs, moved=1, **other):
    """What our method gives in float64, by the names of the golden's outputs."""
    options = {**row["options"], **other}
    if row["hook"] == "stream":
        parts = [getattr(multimodal_ids, kind)(*sizes) for kind, *sizes in options.pop("parts")]
        return {"ids": multimodal_ids.ids(parts, **options)}
    tuples = {o: tuple(v) if isinstance(v, list) else v for o, v in options.items()}
    encoding = make(row["case"].split("/")[0], **tuples)
    dims = Dims(*row["dims"], layers=row["layer"] + 1)
    params = filled(encoding.init(jax.random.key(0), dims), inputs)
    at = standing(inputs["pos"] * moved)
    q_at = standing(inputs["q_pos"] * moved) if "q_pos" in inputs else at
    if row["hook"] == "attend":
        return {"weights": weights(row, encoding, params, inputs, at, moved)}
    shown = place(encoding, None, at), place(encoding, None, q_at)
    encoding, params, placed, q_placed = at_layer(encoding, row["layer"], params, *shown)
    if row["hook"] == "embed":
        zeros = jnp.zeros((*inputs["pos"].shape[:2], row["dims"][0]), float)
        return {"code": encoding.embed(params, zeros, placed)}
    if row["hook"] == "bias":
        return {"bias": encoding.bias(params, q_placed, placed, dims)}
    table = encoding.table(params, placed, dims)
    return {side: encoding.rotate(table, wide(inputs[side]), side) for side in "qk"}


def weights(row, encoding, params, inputs, at, moved):
    """Attention weights [B, H, Q, K]: what attention makes of values that are unit vectors."""
    q, k = wide(inputs["q"]), wide(inputs["k"])
    queries, keys, dims = q.shape[1], k.shape[1], Dims(*row["dims"], layers=row["layer"] + 1)
    columns = keys - queries, queries
    view = frame(encoding, params, at, dims, queries=columns, causal=row["causal"], form="dense")
    x = wide(inputs["x"] * moved) if "x" in inputs else None
    layer = view.layer(row["layer"], None if x is None else x[:, columns[0] :], x)
    values = jnp.broadcast_to(jnp.eye(keys)[None, :, None], (len(q), keys, dims.heads, keys))
    return jnp.swapaxes(attend(q, k, values, layer), 1, 2)


def standing(pos_BT):
    return full(*pos_BT.shape[:2]).replace(pos_BT=jnp.asarray(pos_BT))


def wide(array):
    return jnp.asarray(array, float)


def filled(params, inputs):
    """Our parameters with the golden's values: each leaf by its path, none left over."""
    leaves, tree = jax.tree_util.tree_flatten_with_path(params)
    names = [
        f"params/{jax.tree_util.keystr(path, simple=True, separator='/')}" for path, _ in leaves
    ]
    assert set(names) == {name for name in inputs if name.startswith("params/")}
    values = [wide(inputs[name]) for name in names]
    assert [value.shape for value in values] == [leaf.shape for _, leaf in leaves]
    return jax.tree.unflatten(tree, values)


def tolerance(inputs, outputs):
    """What rounding explains in a reference that computes in float32; ours runs in float64.

    A float32 is off by 2^-24 of itself. A frequency is by two (a power, a quotient), the angle at a
    position by a third and what is made of it by a fourth: 2^-22, times the position and the size
    of what comes out.
    """
    far = float(np.abs(inputs.get("pos", 0)).max())
    size = max(float(np.abs(out[np.isfinite(out)]).max()) for out in outputs.values())
    return 2.0**-22 * max(1.0, far) * max(1.0, size)


@pytest.mark.parametrize("row", CASES)
def test_catalogue_golden(row):
    """Our hooks reproduce the public implementation; wrong options or positions do not."""
    inputs, outputs = frozen(row, "in"), frozen(row, "out")
    other = row["wrong"] or {"moved": 2}
    with jax.enable_x64(True):
        both = jax.jit(lambda inputs: (asked(row, inputs), asked(row, inputs, **other)))
        ours, wrong = both(inputs)
    assert set(ours) == set(outputs)
    limit = tolerance(inputs, outputs)
    for name, out in outputs.items():
        assert ours[name].shape == out.shape
        assert gap(ours[name], out) < limit, name
    far = max(gap(wrong[name], out) for name, out in outputs.items())
    assert far > 100 * limit, "control: a wrong option must be seen"


def test_catalogue_says_what_it_is_held_to():
    """A method's references are the packages in the manifest; it has none without a golden."""
    packages = collections.defaultdict(set)
    for row in ROWS:
        packages[row["case"].split("/")[0]].add(row["package"])
    assert {name: ", ".join(sorted(packages[name])) for name in packages} == REFERENCES


def test_every_file_is_in_the_manifest():
    names = collections.defaultdict(set)
    for row in ROWS:
        name, setting = row["case"].split("/")
        names[name].add(setting)
    assert {file.stem for file in FOLDER.glob("*.npz")} == set(names)
    for name, settings in names.items():
        with np.load(FOLDER / f"{name}.npz") as file:
            assert {key.split("/")[0] for key in file.files} == settings


def test_manifest_was_made_by_the_versions_that_the_script_asks_for():
    script = (FOLDER.parents[1] / "scripts" / "make_goldens.py").read_text()
    pins = set(re.findall(r'^#   "([\w-]+)==([\w.]+)"', script, re.MULTILINE))
    assert {(row["package"], row["version"]) for row in ROWS} <= pins


def called(text):
    """Method and options of each code span that calls a method: `rope(pairing="half")`."""
    for span in re.findall(r"`([a-z0-9_]+\([^`]*\))`", text):
        call = ast.parse(span, mode="eval").body
        if call.func.id in CATALOG:
            yield call.func.id, {o.arg: ast.literal_eval(o.value) for o in call.keywords}


def test_settings_in_the_list_of_differences_exist():
    page = (FOLDER.parents[1] / "docs" / "differences.md").read_text()
    actual = list(called(page))
    assert {name for name, _ in actual} >= {row["case"].split("/")[0] for row in ROWS}
    for name, options in actual:
        make(name, **options)
    runs = f"{len(ROWS)} runs of {len({row['case'].split('/')[0] for row in ROWS})} methods"
    assert runs in " ".join(page.split())
    (wrong,) = called('`rope(pairing="quarter")`')
    with pytest.raises(ValueError, match=r"encoding\.pairing"):
        make(wrong[0], **wrong[1])


def unanswered(page, section):
    """The rows of a section's table that name no setting here, only a dash."""
    table = page.split(f"\n## {section}\n")[1].split("\n## ")[0]
    rows = (line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| "))
    return [row[0] for row in rows if row[2] == "-"]


def test_no_rope_variant_is_left_with_a_dash():
    page = (FOLDER.parents[1] / "docs" / "differences.md").read_text()
    assert [unanswered(page, name) for name in ("Rotary", "Context extension", "Layers")] == [
        []
    ] * 3
    assert "HF Falcon" in unanswered(page, "Biases"), "control: a dash is found"


def test_every_method_has_two_settings():
    settings = collections.Counter(row["case"].split("/")[0] for row in ROWS)
    assert [name for name, count in settings.items() if count < 2] == []
