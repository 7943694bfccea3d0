"""TF1 models of every format, against a session's recorded results.

testdata/make_tf1.py made the models and ran them.
"""

import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import control_flow_v2_toggles, gen_control_flow_ops

import tf2jax_lite
from tests._support import close
from tf2jax_lite.errors import InvalidModelError, Tf2JaxError, UnsupportedError, UnsupportedOpsError
from tf2jax_lite.frontend.saved import graph_def_file
from tf2jax_lite.frontend.saved.checkpoint_reader import Checkpoint
from tf2jax_lite.pipeline.convert import graph_of
from tf2jax_lite.pipeline.inspect_model import describe_model, describe_saved_model
from tf2jax_lite.pipeline.model_files import convert_file
from tf2jax_lite.verification import verify

tf1 = tf.compat.v1
DATA = Path(__file__).parent.parent.parent.parent / "testdata" / "tf1"


@pytest.fixture(autouse=True)
def _v1():
    before = control_flow_v2_toggles.control_flow_v2_enabled()
    control_flow_v2_toggles.disable_control_flow_v2()
    yield
    if before:
        control_flow_v2_toggles.enable_control_flow_v2()


def recorded(name):
    with np.load(DATA / f"{name}.npz") as data:
        return {key: data[key] for key in data.files}


@pytest.mark.full
def test_a_classifier_with_reference_variables_serves_and_trains():
    data = recorded("classifier")
    fn, params = tf2jax_lite.convert_saved_model(DATA / "classifier")
    trainable, other = tf2jax_lite.split_params(params)
    assert set(other) == {"bn/moving_mean", "bn/moving_variance"}
    assert set(trainable) == {"dense/w/part_0", "dense/w/part_1", "bn/gamma", "bn/beta", "out"}
    close(2 * fn(params, x=data["x"], training=np.array(False))[0]["logits"], data["double"])
    for step, call in enumerate((fn, jax.jit(fn), jax.jit(fn))):  # in training, in training, then not
        found, params = call(params, x=data["x"], training=np.array(step < 2))
        close(found["logits"], data[f"logits_{step}"])
    for name, value in params.items():
        close(value, data[f"after/{name}"])


def test_tags_choose_the_meta_graph():
    data = recorded("classifier")
    fn, params = tf2jax_lite.convert_saved_model(DATA / "classifier", tags=["train"])
    close(fn(params, data["x"])[0]["double"], data["double"])
    with pytest.raises(InvalidModelError, match="no MetaGraph with tags"):
        tf2jax_lite.convert_saved_model(DATA / "classifier", tags=["nothing"])
    with pytest.raises(InvalidModelError, match="serving_default"):
        tf2jax_lite.convert_saved_model(DATA / "classifier", "nothing")


@pytest.mark.full
def test_a_vocabulary_among_the_assets():
    fn, params = tf2jax_lite.convert_saved_model(DATA / "classifier", "lookup")
    found, _ = fn(params, np.array([b"dog", b"cow", b"cat"], object))
    assert list(found["ids"]) == [1, -1, 0] and not params


@pytest.mark.full
def test_an_lstm_and_its_training_step():
    data = recorded("lstm")
    fn, params = tf2jax_lite.convert_saved_model(DATA / "lstm")
    close(fn(params, data["x"])[0]["y"], data["y"])
    grads = jax.grad(lambda p: (fn(p, data["x"])[0]["y"] ** 2).sum())(params)
    close(grads["lstm/kernel"], data["kernel_grad"])
    close(grads["lstm/bias"], data["bias_grad"])
    step, params = tf2jax_lite.convert_saved_model(DATA / "lstm", "train")
    found, params = jax.jit(step)(params, data["x"])
    close(found["loss"], data["loss"])
    close(params["lstm/kernel"], data["kernel_after"])
    close(params["lstm/bias"], data["bias_after"])


@pytest.mark.full
@pytest.mark.parametrize("as_params", [True, False])
def test_a_frozen_graph_with_weights_as_params_or_as_constants(as_params):
    data = recorded("frozen_inception")
    fn, params = tf2jax_lite.convert_graph_def(
        DATA / "frozen_inception.pb", "image", "probabilities", constants_as_params=as_params
    )
    assert len(params) == (13 if as_params else 0)
    assert len(tf2jax_lite.split_params(params)[0]) == len(params), "floating weights train"
    close(fn(params, data["image"])[0], data["probabilities"])


@pytest.mark.full
def test_a_hub_module_is_the_meta_graph_without_tags():
    data = recorded("hub")
    fn, params = tf2jax_lite.convert_saved_model(DATA / "hub", "default")
    assert list(params) == ["module/embedding"]
    close(fn(params, data["default"])[0]["default"], data["result"])


def test_a_checkpoint_saved_under_another_name():
    data = recorded("checkpoint")
    fn, params = tf2jax_lite.convert_graph_def(DATA / "checkpoint" / "model.meta", "x", "y")
    close(params["renamed"], data["w"])
    close(fn(params, np.eye(3, dtype=np.float32))[0], data["w"])
    functions = convert_file(DATA / "checkpoint" / "model.meta", inputs=["x"], outputs=["y"])
    assert list(functions) == ["serving_default"]


@pytest.mark.parametrize("folder", [True, False])
def test_a_checkpoint_whose_prefix_is_a_folder(folder, tmp_path, monkeypatch):
    """`Saver.save(session, "DIR/")` writes DIR/.meta, as musicnn's models."""
    for file in (DATA / "checkpoint").iterdir():
        shutil.copy(file, tmp_path / file.name.removeprefix("model"))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / ".meta" if folder else ".meta"
    whole = recorded("checkpoint")["w"]
    close(tf2jax_lite.convert_graph_def(path, "x", "y")[1]["renamed"], whole)
    close(convert_file(path, inputs=["x"], outputs=["y"])["serving_default"][1]["renamed"], whole)
    assert "renamed" in {v.name for v in describe_model(path).variables}
    assert verify(path, ends=(["x"], ["y"]), batch_sizes=(2,)).ok


def test_a_folder_beside_a_checkpoint_of_the_same_name(tmp_path):
    for file in (DATA / "checkpoint").iterdir():
        shutil.copy(file, tmp_path)
    (tmp_path / "model").mkdir()
    close(tf2jax_lite.convert_graph_def(tmp_path / "model.meta", "x", "y")[1]["renamed"], recorded("checkpoint")["w"])


def test_parts_of_a_variable():
    checkpoint = Checkpoint(DATA / "checkpoint" / "model")
    whole = recorded("checkpoint")["w"]
    close(checkpoint.read(("under/another/name", "3 2 1,2:-")), whole[1:3])
    with pytest.raises(InvalidModelError, match="cannot be taken"):
        checkpoint.read(("under/another/name", "9 2 1,2:-"))
    with pytest.raises(InvalidModelError, match="not a checkpoint"):
        Checkpoint(DATA / "nothing")


@pytest.mark.parametrize(
    "name, kind, signatures",
    [
        ("classifier", "TF1 SavedModel", ["lookup", "serving_default"]),
        ("hub", "TF1 Hub module", ["default"]),
    ],
)
def test_inspect_says_what_it_is(name, kind, signatures):
    found = describe_saved_model(DATA / name)
    assert found.kind == kind and [s.name for s in found.signatures] == signatures and found.supported
    ops = {op for signature in found.signatures for op in signature.ops}
    assert not ops & {"Switch", "Merge", "VariableV2"}, "the description has the ops that convert"


def converted(build):
    """Return graph, inputs, outputs, and the function; variables are empty."""
    with tf.Graph().as_default() as graph:
        inputs, outputs = build()
    fn, _ = tf2jax_lite.convert_graph_def(graph.as_graph_def(), [t.name for t in inputs], [t.name for t in outputs])
    return graph, inputs, outputs, fn


def ref_variable(name, value):
    with tf1.variable_scope("", use_resource=False):
        return tf1.get_variable(name, initializer=np.asarray(value, np.float32))


def reads_between_writes():
    """Order reads by control edges alone; a reference's Identity is later."""
    x, v = tf1.placeholder(tf.float32, [], "x"), ref_variable("v", 1.0)
    early = tf.identity(v)
    before = v + 0.0
    with tf1.control_dependencies([before]):
        first = tf1.assign(v, x)
    with tf1.control_dependencies([first]):
        middle = v * 1.0
    with tf1.control_dependencies([middle]):
        second = tf1.assign_add(first, 10.0)
    with tf1.control_dependencies([second]):
        late, copied = v * 1.0, early + 0.0
    with tf1.control_dependencies([late, copied]):
        return [x], [before, middle, late, copied, tf1.assign_sub(second, 1.0) + 0.0]


def scatters():
    x, v = tf1.placeholder(tf.float32, [2, 2], "x"), ref_variable("v", np.ones([4, 2]))
    a = tf1.scatter_update(v, [0, 2], x)
    b = tf1.scatter_add(a, [2, 2], x)
    c = tf1.scatter_nd_update(b, [[3]], [[7.0, 8.0]])
    return [x], [tf.identity(tf1.assign(c, c * 2.0)), tf1.is_variable_initialized(v)]


def temporary():
    x = tf1.placeholder(tf.float32, [3], "x")
    temp = tf.raw_ops.TemporaryVariable(shape=[3], dtype=tf.float32, var_name="t")
    filled = tf1.assign(temp, x)
    added = tf1.assign_add(filled, x * 2.0)
    return [x], [tf.raw_ops.DestroyTemporaryVariable(ref=added, var_name="t")]


def written_in_one_branch():
    x, v = tf1.placeholder(tf.float32, [], "x"), ref_variable("v", 1.0)
    y = tf1.cond(x > 0.0, lambda: tf1.assign_add(v, x) + 0.0, lambda: tf.identity(v))
    with tf1.control_dependencies([y]):
        return [x], [y, v + 0.0]


def optimizers():
    x, v = tf1.placeholder(tf.float32, [3], "x"), ref_variable("v", [1.0, 2.0, 3.0])
    loss = tf.reduce_sum((v - x) ** 2)
    with tf1.control_dependencies([tf1.train.AdamOptimizer(0.1).minimize(loss)]):
        second = tf1.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_sum(v * x))
    with tf1.control_dependencies([second]):
        return [x], [v + 0.0]


@pytest.mark.full_cases("reads_between_writes--", "written_in_one_branch--")
@pytest.mark.parametrize(
    "build, shape, values",
    [
        (reads_between_writes, (), [5.0, -1.0]),
        (scatters, (2, 2), [1.0, 2.0]),
        (temporary, (3,), [1.0, 4.0]),
        (written_in_one_branch, (), [2.0, -1.0, 3.0]),
        (optimizers, (3,), [0.5, -2.0]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_reference_variables(build, shape, values):
    graph, inputs, outputs, fn = converted(build)
    variables = graph.get_collection("variables")
    with tf1.Session(graph=graph) as session:
        session.run([v.initializer for v in variables])
        params = {v.op.name: session.run(v) for v in variables}
        call = jax.jit(fn)
        for value in values:
            value = np.full(shape, value, np.float32)
            expected = session.run(outputs, {inputs[0]: value})
            found, params = call(params, value)
            for a, b in zip(found, expected, strict=True):
                close(a, b)
        for v in variables:
            close(params[v.op.name], session.run(v))


def test_gradients_of_reference_variables_that_are_assigned():
    """Any read counts as the variable; results of assignments have no gradient."""

    def build():
        x, v = tf1.placeholder(tf.float32, [2], "x"), ref_variable("v", [1.0, 2.0])
        early = v + x
        with tf1.control_dependencies([early]):
            assigned = tf1.assign(v, tf.sin(early))
        returned = assigned * 2.0
        with tf1.control_dependencies([returned]):
            late = v * 3.0
        with tf1.control_dependencies([late]):
            added = tf1.assign_add(assigned, x) * 5.0
        return [x], [early * early + returned * x + late * x + added * x]

    graph, inputs, outputs, fn = converted(build)
    with graph.as_default(), tf1.Session() as session:
        variables = graph.get_collection("variables")
        by = tf1.gradients(outputs, [inputs[0], variables[0]])
        before, x = np.float32([1, 2]), np.float32([0.3, -0.7])
        session.run(variables[0].initializer)
        y = session.run(outputs[0], {inputs[0]: x})
        expected = []
        for tensor in by:
            session.run(variables[0].initializer)
            expected.append(session.run(tensor, {inputs[0]: x}))
    found, _ = fn({"v": before}, x)
    close(found[0], y)
    by_x, by_v = jax.jit(jax.grad(lambda x, p: fn(p, x)[0][0].sum(), (0, 1)))(x, {"v": before})
    close(by_x, expected[0])
    close(by_v["v"], expected[1])


def test_a_reference_chosen_by_a_constant():
    """An assignment to the selected variable does not change the others."""

    def build():
        x, variables = tf1.placeholder(tf.float32, [2], "x"), [ref_variable(f"v{i}", [i, 2.0 * i]) for i in range(3)]
        chosen = tf.raw_ops.RefSelect(index=tf.constant(1), inputs=[v._ref() for v in variables])
        before = tf.identity(chosen) * x
        with tf1.control_dependencies([before]):
            after = tf.raw_ops.AssignAdd(ref=chosen, value=x)
        with tf1.control_dependencies([after]):
            return [x], [before, *(v + 0.0 for v in variables)]

    graph, inputs, outputs, fn = converted(build)
    x = np.float32([0.5, -3.0])
    with tf1.Session(graph=graph) as session:
        variables = graph.get_collection("variables")
        session.run([v.initializer for v in variables])
        params = {v.op.name: session.run(v) for v in variables}
        found, params = jax.jit(fn)(params, x)
        for a, b in zip(found, session.run(outputs, {inputs[0]: x}), strict=True):
            close(a, b)
        for v in variables:
            close(params[v.op.name], session.run(v))


def test_runtime_dependent_choice_of_a_reference_raises():
    def build():
        index, variables = tf1.placeholder(tf.int32, [], "index"), [ref_variable(f"v{i}", 1.0) for i in range(2)]
        chosen = tf.raw_ops.RefSelect(index=index, inputs=[v._ref() for v in variables], name="chosen")
        return [index], [tf.identity(chosen)]

    with pytest.raises(UnsupportedError, match=r"'chosen' \(RefSelect\).*constant index"):
        converted(build)


@pytest.mark.parametrize("p", [True, False])
def test_references_in_branches_that_meet(p):
    """A RefMerge of what either branch has assigned."""

    def build():
        x, pred, v = tf1.placeholder(tf.float32, [2], "x"), tf1.placeholder(tf.bool, [], "p"), ref_variable("v", [1, 2])
        off, on = gen_control_flow_ops.ref_switch(v._ref(), pred)
        results = [tf.raw_ops.AssignAdd(ref=off, value=x), tf.raw_ops.AssignSub(ref=on, value=x)]
        merged = gen_control_flow_ops.ref_merge(results).output
        with tf1.control_dependencies([merged]):
            return [x, pred], [merged * 2.0, v + 0.0]

    graph, inputs, outputs, fn = converted(build)
    x = np.float32([0.5, -3.0])
    with tf1.Session(graph=graph) as session:
        session.run([v.initializer for v in graph.get_collection("variables")])
        found, _ = jax.jit(fn)({"v": np.float32([1, 2])}, x, p)
        for a, b in zip(found, session.run(outputs, dict(zip(inputs, (x, p), strict=True))), strict=True):
            close(a, b)


def input_pipeline():
    queue = tf1.FIFOQueue(10, [tf.float32, tf.int32], [[3], []], name="queue")
    image, label = queue.dequeue(name="dequeue")
    with tf1.control_dependencies([image]):  # which would wait for the queue
        return tf.sin(image, "sin"), tf.identity(image * tf.cast(label, tf.float32), "loss")


@pytest.mark.parametrize(
    "inputs, output", [(["dequeue:0"], "sin"), (["dequeue"], "sin"), (["dequeue:1", "dequeue:0"], "loss")]
)
def test_an_input_pipeline_is_cut_where_data_comes_in(inputs, output):
    with tf.Graph().as_default() as graph:
        input_pipeline()
    fn, params = tf2jax_lite.convert_graph_def(graph.as_graph_def(), inputs, output)
    x = np.float32([0.5, -1.0, 2.0])
    feeds = {"dequeue:0": x, "dequeue": x, "dequeue:1": np.int32(3)}
    close(jax.jit(fn)(params, *(feeds[name] for name in inputs))[0], np.sin(x) if output == "sin" else 3 * x)


def test_an_input_pipeline_raises_with_advice():
    with tf.Graph().as_default() as graph:
        tf1.placeholder(tf.float32, [], "x")
        input_pipeline()
    with pytest.raises(UnsupportedOpsError, match=r"QueueDequeueV2.*\n.*convert_graph_def\(graph, \['dequeue:0'"):
        tf2jax_lite.convert_graph_def(graph.as_graph_def(), ["x"], "sin")
    with pytest.raises(InvalidModelError, match=r"2 output\(s\); 2 is to be fed"):
        tf2jax_lite.convert_graph_def(graph.as_graph_def(), ["dequeue:2"], "sin")


@pytest.mark.full
def test_a_recurrent_loop_to_the_end_of_the_longest_sequence_and_its_gradients():
    """The loop of dynamic_rnn ends by data, at the last time step at most."""
    kernel = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)

    def build():
        x, length = tf1.placeholder(tf.float32, [5, 2, 3], "x"), tf1.placeholder(tf.int32, [2], "length")
        w = ref_variable("w", kernel)
        steps, out = tf.TensorArray(tf.float32, 5).unstack(x), tf.TensorArray(tf.float32, 5)
        last = tf.minimum(5, tf.maximum(1, tf.reduce_max(length)))

        def body(time, state, out):
            new = tf.tanh(tf.matmul(tf.concat([steps.read(time), state], 1), w))
            copy = lambda: tf1.where(time >= length, state, new)  # noqa: E731
            new = tf1.cond(time < tf.reduce_min(length), lambda: new, copy)
            return time + 1, new, out.write(time, tf1.where(time >= length, tf.zeros_like(new), new))

        _, state, _ = tf1.while_loop(lambda time, *_: time < last, body, (0, tf.zeros([2, 3]), out), swap_memory=True)
        loss = tf.reduce_sum(state**2)
        return [x, length], [loss, *tf1.gradients(loss, [x, w])]

    with tf.Graph().as_default() as graph:
        inputs, outputs = build()
    names = [[t.name for t in ends] for ends in (inputs, outputs)]
    with tf2jax_lite.override_config("loop_bound", "scan"):
        fn, _ = tf2jax_lite.convert_graph_def(graph.as_graph_def(), *names, constants_as_params=False)
    x = np.random.default_rng(1).normal(size=(5, 2, 3)).astype(np.float32)
    gradient = jax.jit(jax.grad(lambda x, length, params: fn(params, x, length)[0][0], (0, 2)))
    with tf1.Session(graph=graph) as session:
        session.run([v.initializer for v in graph.get_collection("variables")])
        for length in (np.int32([5, 2]), np.int32([1, 3])):
            expected = session.run(outputs, dict(zip(inputs, (x, length), strict=True)))
            found, _ = jax.jit(fn)({"w": kernel}, x, length)
            for a, b in zip(found, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
            by_x, by_params = gradient(x, length, {"w": kernel})
            np.testing.assert_allclose(by_x, expected[1], rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(by_params["w"], expected[2], rtol=1e-4, atol=1e-6)


def test_a_table_that_the_model_computes_raises(tmp_path):
    with tf.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.int64, [None], "x")
        keys = tf.cast(tf.range(3) * 2, tf.int64)
        table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, tf.constant([1.0, 2.0, 3.0])), -1.0)
        y = table.lookup(x)
        session.run(tf1.tables_initializer())
        tf1.saved_model.simple_save(session, str(tmp_path / "m"), {"x": x}, {"y": y}, tf1.tables_initializer())
    with pytest.raises(UnsupportedError, match="only constants and text files"):
        tf2jax_lite.convert_saved_model(tmp_path / "m")


@pytest.mark.default_cases("<dtype: 'int64'>-0")
@pytest.mark.parametrize(("dtype", "buckets"), [(tf.int32, 2), (tf.int64, 2), (tf.int64, 0)], ids=str)
def test_a_table_of_a_vocabulary_of_integers(dtype, buckets):
    # Its values are a range that the graph casts, and so are the keys if they are int32.
    from tensorflow.python.ops import lookup_ops

    with tf.Graph().as_default() as graph, tf1.Session() as session:
        x = tf1.placeholder(dtype, [None], "x")
        vocabulary = tf.constant([10, 20, 30], dtype)
        table = lookup_ops.index_table_from_tensor(vocabulary, num_oov_buckets=buckets, dtype=dtype)
        y = table.lookup(x)
        session.run(tf1.tables_initializer())
        asked = np.array([30, 7, 10, 20], dtype.as_numpy_dtype)
        expected = session.run(y, {x: asked})
    fn, params = tf2jax_lite.convert_graph_def(graph.as_graph_def(), ["x"], y.name)
    np.testing.assert_array_equal(jax.jit(fn)(params, asked)[0], expected)


@pytest.mark.full
def test_a_table_without_constant_initializer_raises():
    with tf.Graph().as_default() as graph:
        x = tf1.placeholder(tf.int64, [None], "x")
        keys = tf.constant([1, 2], tf.int64)
        values = tf.cast(tf.cast(tf.constant([3, 4]), tf.int64, name="first"), tf.int32, name="second")
        table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), -1)
        y = table.lookup(x)
    proto = graph.as_graph_def()
    nodes = {node.name: node for node in proto.node}
    nodes["first"].input[0] = "second"
    for damage in (lambda node: None, lambda node: node.ClearField("input")):
        damage(nodes["first"])
        with pytest.raises(Tf2JaxError):
            tf2jax_lite.convert_graph_def(proto, ["x"], [y.name])


@pytest.mark.full
def test_without_a_checkpoint_initializers_give_the_values(tmp_path):
    target = tmp_path / "hub"
    target.mkdir()
    (target / "saved_model.pb").write_bytes((DATA / "hub" / "saved_model.pb").read_bytes())
    fn, params = tf2jax_lite.convert_saved_model(target, "default")
    # The initializer is a constant of the graph, so the variable has a value after all.
    close(params["module/embedding"], tf2jax_lite.convert_saved_model(DATA / "hub", "default")[1]["module/embedding"])
    assert graph_of(fn).captures


@pytest.mark.parametrize(("batch", "expected"), [(None, (2, 3)), (5, (None, 2, 3))])
def test_argument_of_a_queue_has_its_declared_shape(batch, expected):
    with tf.Graph().as_default() as graph:
        queue = tf.queue.FIFOQueue(9, [tf.int32, tf.float32], [[], [2, 3]])
        taken = queue.dequeue() if batch is None else queue.dequeue_many(batch)
        tf.identity(taken[1], "image")
    nodes = {node.name: node for node in graph.as_graph_def().node}
    assert graph_def_file.argument(nodes, "image").shape == expected
    assert graph_def_file.argument(nodes, taken[1].name).shape == expected


def _composite_signatures(path):
    """Write a TF1 SavedModel of sparse and ragged tensors; names do not sort."""
    with tf.Graph().as_default(), tf1.Session() as session:
        sparse, ragged = tf1.sparse_placeholder(tf.float32, [None, 9]), tf1.ragged.placeholder(tf.float32, 2, [])
        dense = tf1.placeholder(tf.float32, [None, 1])
        kernel = tf1.get_variable("kernel", [9, 1], initializer=tf1.ones_initializer(), use_resource=True)
        results = {
            "product": tf.sparse.sparse_dense_matmul(sparse, kernel) + dense,
            "twice": sparse * 2.0,
            "sums": tf.reduce_sum(ragged, -1),
        }
        session.run(tf1.global_variables_initializer())
        tf1.saved_model.simple_save(session, str(path), {"s": sparse, "s_k": dense, "r": ragged}, results)


@pytest.mark.parametrize("by_name", [True, False])
@pytest.mark.parametrize("restored", [True, False])
def test_composite_tensors_of_signatures(tmp_path, restored, by_name):
    _composite_signatures(tmp_path / "m")
    signature = tf.saved_model.load(str(tmp_path / "m")).signatures["serving_default"]
    f32 = np.float32
    given = {
        "r_component_0": np.array([1, 2, 4, 8], f32),
        "r_component_1": np.array([0, 2, 3]),
        "r_component_2": np.array([0, 1, 3, 4]),
        "s_indices": np.array([[0, 1], [1, 2], [1, 3]]),
        "s_values": np.array([5, 200, 500], f32),
        "s_dense_shape": np.array([2, 9]),
        "s_k": np.array([[1], [4]], f32),
    }
    want = {
        k: tf.nest.flatten(v, expand_composites=True)
        for k, v in signature(**tf.nest.map_structure(tf.constant, given)).items()
    }
    fn, params = (
        tf2jax_lite.convert_from_restored(signature) if restored else tf2jax_lite.convert_saved_model(tmp_path / "m")
    )
    found = fn(params, **given)[0] if by_name else fn(params, *given.values())[0]
    assert found.keys() == want.keys() and want["product"][0].numpy().ravel().tolist() == [6, 704]
    for key, value in found.items():
        for part, expected in zip(jax.tree.leaves(value), want[key], strict=True):
            close(part, expected.numpy())
    described = describe_saved_model(tmp_path / "m").signatures[0]
    assert [tensor.name for tensor in described.inputs] == list(given)
