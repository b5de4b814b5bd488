# %% [markdown]
# # A trained run: its models, their attention, and another evaluation
#
# A run keeps its weights. `posenc_jax.lab.load` gives the model of one encoding and seed in one
# line, and `posenc_jax.lab.evaluate` evaluates the weights again, at other lengths or under other
# encodings. The notebook needs the extra `lab` and this repository: run it there, or in examples/.

# %%
import contextlib
import io
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

sys.path += [".", ".."]  # one of the two is the folder of the repository
import experiments
import posenc_jax
from configs import common
from posenc_jax import lab
from posenc_jax.lab.hosts.compiling import compile_lightly

compile_lightly()  # programs this small take longer to compile than to run

# %% [markdown]
# ## A run
# `python train.py --config=... --workdir=RUN` does the same from a shell: a small decoder with RoPE
# learns to repeat up to 6 symbols.

# %%
run = Path(tempfile.mkdtemp()) / "copy"
config = common.config(
    "length_extrapolation",
    encoding={"name": "rope"},
    task={"name": "copy", "alphabet": 8},
    model={"width": 32, "heads": 4, "layers": 2, "mlp": 2},
    train={"length": 6, "min_length": 1, "batch": 32, "steps": 300, "lr": 5e-3},
    eval={"lengths": (6,), "examples": 64},
    seeds=1,
)
printed = io.StringIO()
with contextlib.redirect_stdout(printed):
    experiments.prepare(config.to_dict(), str(run))()
print(*(line for line in printed.getvalue().splitlines() if "step 300/" in line), sep="\n")

# %% [markdown]
# ## Its models

# %%
trained = lab.load(run, "rope", seed=0)
size = 6
batch = trained.task.test(trained.task.data, jnp.arange(1), size, trained.task.width(size))
logits_BTV = jax.jit(trained.model.apply)(trained.params, batch.tokens_BT, batch.layout)
print(f"seed {trained.seed}, step {trained.step}; logits {logits_BTV.shape}")

# %% [markdown]
# ## Attention of any sequence, layer and head
# `attention` gives the weights of each layer, [batch, head, query, key]. The control: the weights
# of a query add up to 1, and none is on a later token.

# %%
tokens_BT = batch.tokens_BT
layout = posenc_jax.full(*tokens_BT.shape)
layers = jax.jit(trained.model.attention)(trained.params, tokens_BT, layout)
figure, axes = plt.subplots(2, 4, figsize=(9, 4.8), layout="constrained")
for n, weights_BHTT in enumerate(layers):
    assert np.allclose(weights_BHTT.sum(axis=-1), 1, atol=1e-5)
    assert np.allclose(np.triu(weights_BHTT[0, 0], 1), 0)
    for head, axis in enumerate(axes[n]):
        axis.imshow(weights_BHTT[0, head], cmap="Greys", vmin=0, vmax=1)
        axis.set(title=f"layer {n}, head {head}", xticks=[], yticks=[])
_ = figure.supxlabel("key"), figure.supylabel("query")

# %% [markdown]
# ## Another evaluation
# The weights of RoPE at twice the length, also under position interpolation. The evaluation is a
# run of its own in the run's folder, with a report; nothing else there changes.

# %%
files = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
with contextlib.redirect_stdout(io.StringIO()):
    longer = lab.evaluate(run, lengths=(6, 12), encodings=("rope", "pi"))
assert all(path.read_bytes() == content for path, content in files.items())
print(longer.path.relative_to(run), sorted(path.name for path in longer.path.iterdir()))
for name, by_length in longer.by_length.results.items():
    print(f"{name:<5}", {length: round(cell.mean, 2) for length, cell in by_length.items()})
