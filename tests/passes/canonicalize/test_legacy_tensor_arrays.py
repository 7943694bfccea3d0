"""TensorArrays and stacks of TF1's first years, as TensorFlow runs them."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.pipeline.inspect_model import describe_model

v1 = tf.compat.v1
X = np.arange(12, dtype=np.float32).reshape(4, 3) / 8 + 1
FORWARD = ("Enter", "Switch", "Identity", "Merge", "Exit", "NextIteration")
USES = ("Write", "Read", "Gather", "Scatter", "Concat", "Split", "Size", "Close")


def legacy(graph_def, generation, packed=False):
    """Return a graph with ops of the first or second generation.

    Args:
      graph_def: a graph of control flow v1.
      generation: 1, handles are references to strings; 2, they are strings (stacks are then left as they are).
    """
    result = v1.GraphDef()
    result.versions.producer = 15 if generation == 1 else 25
    suffix = "" if generation == 1 else "V2"
    renamed = {f"TensorArray{use}V3": f"TensorArray{use}{suffix}" for use in USES}
    renamed |= {"TensorArrayV3": f"TensorArray{suffix}", "TensorArrayGradV3": f"TensorArrayGrad{suffix}"}
    if packed:
        renamed |= {"TensorArrayGatherV3": "TensorArrayPack", "TensorArrayScatterV3": "TensorArrayUnpack"}
    if generation == 1:
        renamed |= {"StackV2": "Stack", **{f"Stack{use}V2": f"Stack{use}" for use in ("Push", "Pop", "Close")}}
    makers = {node.name: node.op for node in graph_def.node if node.op in ("TensorArrayV3", "StackV2")}
    grads = {node.name: node for node in graph_def.node if node.op == "TensorArrayGradV3"}
    handles = set(grads) | {k for k, op in makers.items() if renamed.get(op)}
    for node in graph_def.node:
        made = result.node.add()
        made.CopyFrom(node)
        made.op = renamed.get(node.op, node.op)
        del made.input[:]
        for name in node.input:
            source = name.split(":")[0].removeprefix("^")
            if name == f"{source}:1" and source in grads:
                name = grads[source].input[1]
            elif name == f"{source}:1" and source in makers:
                name = f"{source}/flow"
            made.input.append(name)
        if node.op in FORWARD and node.input[0].split(":")[0] in handles and ":1" not in node.input[0]:
            handles.add(node.name)
            made.attr["T"].type = tf.string.as_datatype_enum
            made.op = f"Ref{node.op}" if generation == 1 else node.op
        if node.op == "TensorArrayGradV3" and generation == 1:
            # It takes the handle by value.
            made.input[0] = node.input[0]
        if node.op == "TensorArrayV3":
            made.attr.pop("identical_element_shapes", None)
            flow = result.node.add(name=f"{node.name}/flow", op="Const", input=[f"^{node.name}"])
            flow.attr["dtype"].type = tf.float32.as_datatype_enum
            flow.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(np.float32(0)))
        if node.op == "StackV2" and generation == 1:
            del made.input[:]
        if packed and node.op in ("TensorArrayGatherV3", "TensorArrayScatterV3"):
            del made.input[1]
    return result


def loop(x):
    """Return cumulative row sums by a loop of reads and writes; also its gradient."""
    rows = tf.TensorArray(tf.float32, size=4, clear_after_read=False).unstack(x)
    sums = tf.TensorArray(tf.float32, size=4, clear_after_read=False)

    def body(i, total, sums):
        total = tf.sin(total * 0.5 + rows.read(i)) * total
        return i + 1, total, sums.write(i, total)

    _, _, sums = tf.while_loop(lambda i, *_: i < 4, body, (0, tf.ones([3]), sums))
    stacked = sums.stack()
    return stacked, tf.gradients(stacked**2, x)[0]


def by_place(x):
    array = tf.TensorArray(tf.float32, size=5, clear_after_read=False).scatter([3, 1, 0, 2], x)
    array = array.write(4, x[0] * 2)
    return array.gather([4, 1]), array.read(3), array.size()


def split(x):
    array = tf.TensorArray(tf.float32, size=2, infer_shape=False).split(x, [1, 3])
    joined = array.concat()
    return joined, tf.gradients(joined**3, x)[0]


def branch(x):
    array = tf.TensorArray(tf.float32, size=2, clear_after_read=False).write(0, x[0]).write(1, x[1])
    return (tf.cond(x[0, 0] > 0, lambda: array.read(0) * 2, lambda: array.read(1)),)


def grows(x):
    array = tf.TensorArray(tf.float32, size=0, dynamic_size=True, element_shape=[3])
    _, array = tf.while_loop(lambda i, _: i < 4, lambda i, a: (i + 1, a.write(i, x[i] ** 2)), (0, array))
    return (array.stack(),)


@pytest.fixture(autouse=True)
def _control_flow_v1():
    v1.disable_control_flow_v2()
    yield
    v1.enable_control_flow_v2()


@pytest.mark.default_cases("by_place-2", "split-2")
@pytest.mark.parametrize("generation", [1, 2])
@pytest.mark.parametrize("fn", [loop, by_place, split, branch, grows], ids=lambda f: f.__name__)
def test_against_tensorflow(fn, generation):
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [4, 3], name="x")
        names = [tf.identity(result).name for result in fn(x)]
    check(legacy(graph.as_graph_def(), generation), names)


@pytest.mark.parametrize("generation", [1])
def test_pack_and_unpack(generation):
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [4, 3], name="x")
        array = tf.TensorArray(tf.float32, size=4).unstack(tf.exp(x))
        result = tf.identity(array.stack())
    check(legacy(graph.as_graph_def(), generation, packed=True), [result.name])


def check(graph_def, names):
    ops = {node.op for node in graph_def.node}
    assert not any(op.startswith("TensorArray") and op.endswith("V3") for op in ops)
    with tf.Graph().as_default():
        v1.import_graph_def(graph_def, name="")
        options = v1.ConfigProto()
        options.graph_options.rewrite_options.disable_meta_optimizer = True
        with v1.Session(config=options) as session:
            expected = session.run(names, {"x:0": X})
    converted, params = tf2jax.convert_graph_def(graph_def, ["x:0"], names, constants_as_params=False)

    def run(x):
        return converted(params, x)[0]

    for results in (run(X), jax.jit(run)(X), [v[1] for v in jax.vmap(run)(np.stack([X + 1, X]))]):
        agrees(results, expected)
    return expected


def agrees(results, expected):
    for e, a in zip(expected, results, strict=True):
        assert np.asarray(a).dtype == e.dtype
        np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-6)


@pytest.mark.full
def test_in_a_function():
    """Functions of legacy graphs hold no variables: the import keeps their nodes."""
    with tf.Graph().as_default() as graph:
        names = [tf.identity(result).name for result in loop(v1.placeholder(tf.float32, [4, 3], name="x"))]
    graph_def = legacy(graph.as_graph_def(), 2)
    expected = check(graph_def, names)

    def imported(x):
        return tf.graph_util.import_graph_def(graph_def, {"x:0": x}, names)

    converted = tf2jax.convert_functional(v1.wrap_function(imported, [tf.TensorSpec([4, 3], tf.float32)]))
    agrees(converted(X), expected)


def test_described(tmp_path):
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [4, 3], name="x")
        loop(x)
    (tmp_path / "legacy.pb").write_bytes(legacy(graph.as_graph_def(), 1).SerializeToString())
    (signature,) = describe_model(tmp_path / "legacy.pb").signatures
    assert not signature.unsupported
