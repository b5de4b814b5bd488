"""A worker of scripts/bench.py: our side, alone in its process. See `serve` for the protocol."""

import json
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed


def serve(job: dict, make) -> None:
    """Calls make(job), which returns inputs and a function, and runs the function on demand.

    It prints {"mb": peak memory of a warm call beyond the inputs, "first": seconds of the first
    call, which compiles}, then, for each line on standard input, {"seconds": time of one call}.
    """
    inputs, call = make(job)
    before, start = peak_mb(), time.perf_counter()
    call(*inputs)
    first = time.perf_counter() - start
    call(*inputs)
    print(json.dumps({"mb": peak_mb() - before, "first": first}), flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        call(*inputs)
        print(json.dumps({"seconds": time.perf_counter() - start}), flush=True)


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def step(job: dict):
    """`steps` training steps in one call, as train.py runs them."""
    import jax
    import numpy as np

    from posenc_jax import encodings
    from posenc_jax.lab import tasks
    from posenc_jax.lab.config.schema import ModelConfig, TrainConfig
    from posenc_jax.lab.hosts.devices import use_cores
    from posenc_jax.lab.model import transformer
    from posenc_jax.lab.training import loop, optimizers
    from posenc_jax.lab.training.batches import training_batches

    use_cores(job["batch"])

    task = tasks.make("stdlib")
    config = TrainConfig(
        length=job["length"], min_length=job["length"], batch=job["batch"], steps=10_000
    )
    shape = ModelConfig(width=job["width"], heads=job["heads"], layers=job["layers"])
    options = encodings.taken_by(job["encoding"], job.get("options", {}))
    model = transformer.build(shape, encodings.make(job["encoding"], **options), task.vocab)
    run_chunk = loop.chunk_runner(model, config, loss_mask=True)
    state = loop.init_runner(model, optimizers.optimizer(config), seeds=1)()
    batches, rate_N = training_batches(task, config), optimizers.rates(config, range(job["steps"]))

    def call():
        nonlocal state
        state, metrics = run_chunk(state, batches([0], range(job["steps"])), rate_N)
        assert np.isfinite(jax.device_get(metrics["loss"])).all()

    return (), call


def products(job: dict):
    """The matrix products of the same steps and nothing else. Each core takes its share of the
    rows, all at once; each product has the form that it has in the step, except that one product
    gives queries, keys and values.
    """
    import jax
    import jax.numpy as jnp

    from posenc_jax.attention.softmax import heads_first
    from posenc_jax.lab.hosts.devices import use_cores
    from posenc_jax.lab.hosts.fast_training import linear, over_seeds

    use_cores(job["batch"])
    width, heads, shares = job["width"], job["heads"], jax.device_count()
    shape = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width),
             "down": (4 * width, width)}  # fmt: skip

    def init(key):
        normal = lambda shape: jax.random.normal(key, shape) / shape[0] ** 0.5
        layer = {name: normal(s) for name, s in shape.items()}
        layer["out"] /= (width // heads * job["length"]) ** 0.5  # values stay about 1
        layers = [layer] * job["layers"]
        rows = (job["batch"] // shares, job["length"], width)
        return {"layers": layers, "read_out": normal((width, 256)), "x": normal(rows)}

    attended = attention_products()
    times = lambda x, w: linear(x, w, jnp.zeros(w.shape[1]))

    def logits(params):
        x_BTD = params["x"]
        for layer in params["layers"]:
            qkv_BTEC = times(x_BTD, layer["qkv"]).reshape(*x_BTD.shape[:2], 3 * heads, -1)
            o_BHTC = attended(*map(heads_first, jnp.split(qkv_BTEC, 3, axis=2)))
            x_BTD = heads_first(o_BHTC).reshape(x_BTD.shape)
            for name in ("out", "up", "down"):
                x_BTD = times(x_BTD, layer[name])
        return times(x_BTD, params["read_out"])

    def run(params):
        def one_step(params, _):
            out_BTV, pull = jax.vjp(logits, params)
            moved = lambda p, g: p - 1e-6 * g
            return jax.tree.map(moved, params, pull(jnp.ones_like(out_BTV))[0]), None

        return jax.lax.scan(one_step, params, length=job["steps"])[0]

    params = jax.vmap(init)(jax.random.split(jax.random.key(0), shares))
    chunk = jax.jit(lambda params: over_seeds(run, params))
    return (params,), lambda params: jax.block_until_ready(chunk(params))


def attention_products():
    """(q, k, v), each [B, H, T, C], to q k v: two products, and four backward."""
    import jax
    import jax.numpy as jnp

    from posenc_jax.attention.softmax import product, transposed

    def forward(q_BHQC, k_BHKC, v_BHKC):
        s_BHQK = product(q_BHQC, transposed(k_BHKC))
        return product(s_BHQK, v_BHKC), (q_BHQC, k_BHKC, v_BHKC, s_BHQK)

    def backward(residuals, g_BHQC):
        q_BHQC, k_BHKC, v_BHKC, s_BHQK = residuals
        dv_BHCK = product(transposed(g_BHQC), s_BHQK)
        ds_BHQK = product(g_BHQC, transposed(v_BHKC))
        dk_BHCK = product(transposed(q_BHQC), ds_BHQK)
        return product(ds_BHQK, k_BHKC), jnp.swapaxes(dk_BHCK, 2, 3), jnp.swapaxes(dv_BHCK, 2, 3)

    attended = jax.custom_vjp(lambda q, k, v: forward(q, k, v)[0])
    attended.defvjp(forward, backward)
    return attended


def attention(job: dict):
    """One causal pass over one long sequence with a T5 bias, forward or with gradients."""
    import jax

    from posenc_jax import Dims, attend, frame, make
    from posenc_jax.layout import full

    heads, head, time_ = job["heads"], job["head"], job["length"]
    encoding = make(job["encoding"], **job.get("options", {}))
    dims = Dims(heads * head, heads, head)
    params = encoding.init(jax.random.key(0), dims)
    qkv = jax.random.normal(jax.random.key(1), (3, 1, time_, heads, head))

    def forward(params, q, k, v):
        if job["form"] == "materialised":
            return materialised(encoding, params, dims, q, k, v)
        view = frame(encoding, params, full(1, time_), dims, form=job["form"])
        return attend(q, k, v, view.layer(0))

    def loss(params, q, k, v):
        return (forward(params, q, k, v) ** 2).sum()

    run = jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3)) if job["backward"] else forward)
    return (params, *qkv), lambda *args: jax.block_until_ready(run(*args))


def materialised(encoding, params, dims, q, k, v):
    """Returns JAX's own attention, given the bias as an array."""
    import jax
    import jax.numpy as jnp

    pos_BT = jnp.arange(q.shape[1])[None]
    bias_BHQK = encoding.bias(params, pos_BT, pos_BT, dims)
    return jax.nn.dot_product_attention(q, k, v, bias=bias_BHQK, is_causal=True)


if __name__ == "__main__":
    job = json.loads(sys.argv[1])
    serve(job, {"step": step, "products": products, "attention": attention}[job["what"]])
