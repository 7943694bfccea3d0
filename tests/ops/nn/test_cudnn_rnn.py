"""cuDNN's recurrent ops against Keras layers, as kernels are for GPUs."""

import sys

import jax
import keras
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.compiling import fast_options
from tests.ops.quantization.harness import implementation
from tf2jax_lite.errors import OpError, UnsupportedAttributeError

TESTED_OTHERWISE = {
    "CudnnRNN",
    "CudnnRNNBackprop",
    "CudnnRNNBackpropV2",
    "CudnnRNNBackpropV3",
    "CudnnRNNCanonicalToParams",
    "CudnnRNNCanonicalToParamsV2",
    "CudnnRNNParamsSize",
    "CudnnRNNParamsToCanonical",
    "CudnnRNNParamsToCanonicalV2",
    "CudnnRNNV2",
    "CudnnRNNV3",
}
raw = tf.raw_ops
F = np.float32
RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 5, 4)).astype(F)
MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 0, 0, 0, 0]], bool)
GATES = {"lstm": 4, "gru": 3, "rnn_relu": 1, "rnn_tanh": 1}


@pytest.mark.default_cases("GRU-forwards-masked")
@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("backwards", [False, True], ids=["forwards", "backwards"])
@pytest.mark.parametrize("kind", [keras.layers.LSTM, keras.layers.GRU])
def test_keras_layer_traced_for_gpu(kind, backwards, masked, monkeypatch):
    layer = kind(6, return_sequences=True, return_state=True, go_backwards=backwards, bias_initializer="normal")
    layer.build(X.shape)
    mask = tf.constant(MASK) if masked else None

    def loss(x, *upstream):
        results = layer(x, mask=mask)
        # Where the mask is off, cuDNN returns zeros and Keras on CPU the previous output.
        seen = results[0] * tf.constant(MASK[..., None].astype(F)) if masked and not backwards else results[0]
        results = [seen, *results[1:]] if not (masked and backwards) else results[1:]
        return results, tf.add_n([tf.reduce_sum(tf.sin(r)) for r in results])

    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        expected, total = loss(x)
    expected_gradient = tf.convert_to_tensor(tape.gradient(total, x)).numpy()
    monkeypatch.setattr(sys.modules["keras.src.backend.tensorflow.rnn"], "_is_gpu_available", lambda: True)
    concrete = tf.function(loss, autograph=False).get_concrete_function(tf.TensorSpec(X.shape))
    assert any(node.op == "CudnnRNNV3" for node in concrete.graph.as_graph_def().node)
    converted, params = tf2jax.convert(concrete, X)

    def both(x):
        results = converted(params, x)[0]
        return results[1], results[0]

    (_, found), gradient = jax.jit(jax.value_and_grad(both, has_aux=True), compiler_options=fast_options())(X)
    for e, f in zip(expected, found, strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.default_cases("GRU")
@pytest.mark.parametrize("kind", [keras.layers.LSTM, keras.layers.GRU])
def test_gradient_in_the_graph(kind, monkeypatch):
    layer = kind(6, bias_initializer="normal")
    layer.build(X.shape)

    def gradients(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.sin(layer(x, mask=tf.constant(MASK))))
        return tape.gradient(loss, [x, *(v.value for v in layer.trainable_variables)])

    expected = [tf.convert_to_tensor(g).numpy() for g in gradients(tf.constant(X))]
    monkeypatch.setattr(sys.modules["keras.src.backend.tensorflow.rnn"], "_is_gpu_available", lambda: True)
    concrete = tf.function(gradients, autograph=False).get_concrete_function(tf.TensorSpec(X.shape))
    assert any(node.op == "CudnnRNNBackpropV3" for node in concrete.graph.as_graph_def().node)
    converted, params = tf2jax.convert(concrete, X)
    found = jax.jit(converted, compiler_options=fast_options())(params, X)[0]
    for e, f in zip(expected, found, strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-4, atol=1e-5)


@pytest.mark.default_cases("rnn_relu-", "rnn_tanh-V2")
@pytest.mark.parametrize("version", ["", "V2"])
@pytest.mark.parametrize("mode", GATES)
def test_gradients_of_v1_and_v2(mode, version):
    count = GATES[mode] * (3 * 4 + 3 * 3 + 2 * 3 + 3 * 3 + 3 * 3 + 2 * 3)
    x, h, params = RNG.normal(size=(5, 2, 4)).astype(F), RNG.normal(size=(2, 2, 3)).astype(F), RNG.normal(size=count)
    c = h[::-1] if mode == "lstm" else np.zeros(0, F)
    args = (x, h, c, params.astype(F))
    run, back = (implementation(f"CudnnRNN{part}{version}") for part in ("", "Backprop"))
    reserved = (np.zeros(0, F), np.zeros(0, np.int8))[: 2 if version else 1]

    def forward(*args):
        return run(*args, rnn_mode=mode)[:3]

    upstream = tuple(RNG.normal(size=r.shape).astype(F) for r in jax.eval_shape(forward, *args))

    def both(args, upstream):
        results, pull = jax.vjp(forward, *args)
        return pull(upstream), back(*args, *results, *upstream, *reserved, rnn_mode=mode)

    expected, found = jax.jit(both, compiler_options=fast_options())(args, upstream)
    for e, f in zip(expected, found, strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-6, atol=1e-6)
    with pytest.raises(UnsupportedAttributeError, match="dropout"):
        back(*args, *upstream, *upstream, *reserved, rnn_mode=mode, dropout=0.5)


def network(mode, directions, x, h, c, weights, biases, project):
    """Run a network of cuDNN's developer guide; ``x`` is [time, batch, inputs]."""

    def sigmoid(v):
        return 1 / (1 + np.exp(-v))

    gates = GATES[mode]
    last = []
    for layer in range(len(h) // directions):
        outs = []
        for direction in range(directions):
            k = layer * directions + direction
            own = weights[k * (2 * gates + project) :][: 2 * gates + project]
            own_biases = biases[k * 2 * gates :][: 2 * gates]
            state, cell, out = h[k], c[k], [x[0]] * len(x)
            for t in range(len(x))[:: -1 if direction else 1]:
                a = [x[t] @ w.T + b for w, b in zip(own[:gates], own_biases[:gates], strict=True)]
                s = [state @ w.T + b for w, b in zip(own[gates : 2 * gates], own_biases[gates:], strict=True)]
                if mode == "gru":
                    update = sigmoid(a[1] + s[1])
                    new = np.tanh(a[2] + sigmoid(a[0] + s[0]) * s[2])
                    state = (1 - update) * new + update * state
                elif mode == "lstm":
                    i, f, g, o = (p + q for p, q in zip(a, s, strict=True))
                    cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
                    state = sigmoid(o) * np.tanh(cell)
                    state = state @ own[-1].T if project else state
                else:
                    state = np.maximum(a[0] + s[0], 0) if mode == "rnn_relu" else np.tanh(a[0] + s[0])
                out[t] = state
            outs.append(np.stack(out))
            last.append((state, cell))
        x = np.concatenate(outs, -1)
    return x, np.stack([v[0] for v in last]), np.stack([v[1] for v in last])


@pytest.mark.default_cases(
    "rnn_relu-0-unidirectional-V3",
    "rnn_tanh-0-unidirectional-",
    "lstm-2-unidirectional-",
    "lstm-2-unidirectional-V2",
    "lstm-2-unidirectional-V3",
    "lstm-2-bidirectional-",
    "lstm-2-bidirectional-V2",
)
@pytest.mark.parametrize("version", ["", "V2", "V3"])
@pytest.mark.parametrize("direction", ["unidirectional", "bidirectional"])
@pytest.mark.parametrize(("mode", "project"), [*((mode, 0) for mode in GATES), ("lstm", 2)])
def test_layers(mode, project, direction, version):
    if project and version != "V3":
        pytest.skip("only V3 has a projection")
    layers, units, inputs, directions = 2, 3, 4, 1 + (direction == "bidirectional")
    outputs = project or units
    shapes = []
    for layer in range(layers):
        one = [(units, inputs if layer == 0 else directions * outputs)] * GATES[mode] + [(units, outputs)] * GATES[mode]
        shapes += (one + [(project, units)] * bool(project)) * directions
    weights = [RNG.normal(size=s).astype(F) for s in shapes]
    biases = [RNG.normal(size=units).astype(F) for _ in range(2 * GATES[mode] * layers * directions)]
    x = RNG.normal(size=(5, 2, inputs)).astype(F)
    h, c = (RNG.normal(size=(layers * directions, 2, n)).astype(F) for n in (outputs, units))
    cell = {"rnn_mode": mode, "direction": direction}
    sizes = {"num_layers": layers, "num_units": units, "input_size": inputs}
    canonical = {**cell, **sizes, **({"num_proj": project} if version == "V3" else {})}
    of_params = "V2" if version == "V3" else ""

    def run(x, h, c, *parts):
        parts = list(parts)
        split = len(weights)
        pack = getattr(raw, f"CudnnRNNCanonicalToParams{of_params}")
        params = pack(weights=parts[:split], biases=parts[split:], **canonical)
        count = raw.CudnnRNNParamsSize(
            T=tf.float32, S=tf.int32, **cell, **sizes, **({"num_proj": project} if project else {})
        )
        more = {"sequence_lengths": [5, 5], "num_proj": project} if version == "V3" else {}
        call = getattr(raw, f"CudnnRNN{version}")
        out, h, c, *_ = call(input=x, input_h=h, input_c=c, params=params, is_training=False, **cell, **more)
        counts = {"num_params_weights": split, "num_params_biases": len(biases)} if of_params else {"num_params": split}
        unpacked = getattr(raw, f"CudnnRNNParamsToCanonical{of_params}")(params=params, **canonical, **counts)
        return out, h, c, count, tf.nest.flatten(unpacked)

    args = [x, h, c, *weights, *biases]
    converted = tf2jax.convert_functional(tf.function(run, autograph=False), *map(tf.convert_to_tensor, args))
    out, last_h, last_c, count, parts = jax.jit(converted, compiler_options=fast_options())(*args)
    for e, f in zip([*weights, *biases], parts, strict=True):
        np.testing.assert_array_equal(f, e)
    np.testing.assert_array_equal(count, [sum(v.size for v in (*weights, *biases))])
    expected = network(mode, directions, x, h, c, weights, biases, bool(project))
    np.testing.assert_allclose(out, expected[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(last_h, expected[1], rtol=1e-5, atol=1e-5)
    assert last_c.shape == (h.shape if mode == "lstm" and not project else c.shape if mode == "lstm" else ())
    if mode == "lstm":
        np.testing.assert_allclose(last_c, expected[2], rtol=1e-5, atol=1e-5)


@pytest.mark.full
def test_dropout_between_layers():
    args = (np.ones((4, 2, 3), F), np.zeros((2, 2, 3), F), np.zeros((0,), F))

    def run(x, h, c, params):
        return raw.CudnnRNN(input=x, input_h=h, input_c=c, params=params, rnn_mode="rnn_tanh", dropout=0.5)[0]

    args = (*args, RNG.normal(size=2 * (9 + 9 + 3 + 3)).astype(F))
    converted, _ = tf2jax.convert(tf.function(run, autograph=False), *args)
    one, same, other = (converted({}, *args, rng=jax.random.key(k))[0] for k in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_invalid_arguments_raise():
    call = implementation("CudnnRNN")
    x, h = np.zeros((4, 2, 3), F), np.zeros((1, 2, 3), F)
    with pytest.raises(UnsupportedAttributeError, match="without weights"):
        call(x, h, h, np.zeros(9, F), input_mode="skip_input")
    with pytest.raises(OpError, match="has 96 weights"):
        call(x, h, h, np.zeros(9, F))
    with pytest.raises(OpError, match="do not fit each other"):
        call(x, h, h[:, :1], np.zeros(9, F))
