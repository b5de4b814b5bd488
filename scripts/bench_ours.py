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
    # Tracing is Python's work in one thread, whose own time does not count other processes.
    clock = time.process_time if job["what"] == "trace" else time.perf_counter
    inputs, call = make(job)
    before, start = peak_mb(), clock()
    call(*inputs)
    first = clock() - start
    call(*inputs)
    print(json.dumps({"mb": peak_mb() - before, "first": first}), flush=True)
    for _ in sys.stdin:
        start = clock()
        call(*inputs)
        print(json.dumps({"seconds": clock() - start}), flush=True)


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


def trace(job: dict):
    """Tracing and lowering the gradient of a decoder: what JAX does before XLA compiles."""
    import jax
    import jax.numpy as jnp

    from posenc_jax import Dims

    heads, head, time_ = job["heads"], job["head"], job["length"]
    dims = Dims(heads * head, heads, head, job["layers"])
    params, attention_of = (by_hand if job["by_hand"] else by_frame)(job["encoding"], dims)
    shapes = {"q": (1, 1), "k": (1, 1), "v": (1, 1), "o": (1, 1), "up": (1, 4), "down": (4, 1)}
    weights = {name: jnp.ones((a * dims.model, b * dims.model)) for name, (a, b) in shapes.items()}
    segment_BT = jnp.ones((2, time_), int) if job["packed"] else None

    def loss(layers, params, x_BTD, segment_BT):
        attention = attention_of(params, x_BTD, segment_BT)
        for n, weights in enumerate(layers):
            in_BTD = normed(x_BTD)
            of_heads = lambda name, w=weights, x=in_BTD: (x @ w[name]).reshape(
                2, time_, heads, head
            )
            o_BTHC = attention(n, in_BTD, *map(of_heads, "qkv"))
            x_BTD += o_BTHC.reshape(x_BTD.shape) @ weights["o"]
            x_BTD += jax.nn.gelu(normed(x_BTD) @ weights["up"]) @ weights["down"]
        return (x_BTD**2).mean()

    def normed(x_BTD):
        return x_BTD * jax.lax.rsqrt((x_BTD**2).mean(-1, keepdims=True) + 1e-6)

    def call(*args):
        jax.clear_caches()
        jax.jit(jax.value_and_grad(loss, argnums=(0, 1))).lower(*args)

    x_BTD = jnp.ones((2, time_, dims.model))
    return ([weights] * job["layers"], params, x_BTD, segment_BT), call


def by_frame(name: str, dims):
    """Parameters of an encoding, and a function of them, of the input and of the packed sequences'
    numbers, None if there is one, that returns attention (layer, its input, q, k, v).
    """
    import jax

    from posenc_jax import attend, frame, full, layout, make

    encoding = make(name)

    def attention_of(params, x_BTD, segment_BT):
        at = full(*x_BTD.shape[:2]) if segment_BT is None else layout(segment_BT)
        view = frame(encoding, params, at, dims)
        return lambda n, x_BTD, q, k, v: attend(q, k, v, view.layer(n, x_BTD))

    return encoding.init(jax.random.key(0), dims), attention_of


def by_hand(name: str, dims):
    """As `by_frame`, in the fewest lines that attend so: what a model has that knows one method."""
    import jax
    import jax.numpy as jnp

    heads, head = dims.heads, dims.head

    def positions(segment_BT):
        at_T = jnp.arange(segment_BT.shape[1])
        begins_BT = jnp.diff(segment_BT, axis=1, prepend=0) != 0
        return at_T - jax.lax.cummax(jnp.where(begins_BT, at_T, 0), axis=1)

    def attention_of(params, x_BTD, segment_BT):
        at_T = jnp.arange(x_BTD.shape[1])
        pos_BT, see_BHQK = at_T[None], (at_T[:, None] >= at_T)[None, None]
        if segment_BT is not None:
            alike_BQK = segment_BT[:, :, None] == segment_BT[:, None]
            real_BK = segment_BT[:, None] > 0
            pos_BT, see_BHQK = positions(segment_BT), see_BHQK & (alike_BQK & real_BK)[:, None]
        distance_BQK = pos_BT[:, :, None] - pos_BT[:, None]
        bias_BHQK = jnp.zeros(())
        if name == "alibi":
            slope_H11 = 2.0 ** (-8 * jnp.arange(1, heads + 1) / heads)[:, None, None]
            bias_BHQK = -slope_H11 * distance_BQK[:, None]
        if name == "t5":
            distance_BQK = jnp.maximum(distance_BQK, 0)
            far = jnp.log(jnp.maximum(distance_BQK, 1) / 16) / jnp.log(128 / 16) * 16
            bucket_BQK = jnp.where(distance_BQK < 16, distance_BQK, 16 + far.astype(int))
            bias_BHQK = jnp.moveaxis(params[:, jnp.minimum(bucket_BQK, 31)], 0, 1)
        angle_BT1C = pos_BT[:, :, None, None] * 1e4 ** (-jnp.arange(0, head, 2) / head)
        cos, sin = jnp.cos(angle_BT1C), jnp.sin(angle_BT1C)

        def turned(x_BTHC):
            if name != "rope":
                return x_BTHC
            a, b = jnp.split(x_BTHC, 2, axis=-1)
            return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

        def attention(n, x_BTD, q_BTHC, k_BTHC, v_BTHC):
            s_BHQK = jnp.einsum("bqhc,bkhc->bhqk", turned(q_BTHC), turned(k_BTHC))
            s_BHQK = jnp.where(see_BHQK, s_BHQK * head**-0.5 + bias_BHQK, -jnp.inf)
            return jnp.einsum("bhqk,bkhc->bqhc", jax.nn.softmax(s_BHQK), v_BTHC)

        return attention

    return jnp.zeros((heads, 32)) if name == "t5" else {}, attention_of


if __name__ == "__main__":
    jobs = {"step": step, "products": products, "attention": attention, "trace": trace}
    job = json.loads(sys.argv[1])
    serve(job, jobs[job["what"]])
