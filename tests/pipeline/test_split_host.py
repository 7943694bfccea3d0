"""Models with strings, decoders, tables: split_host against the whole."""

import json
import shutil
import tempfile
import warnings

import jax
import keras
import numpy as np
import pytest
import tensorflow as tf
from jax import export

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import ExportError, InputError, UnsupportedError, UnsupportedOpsError, UntrustedError
from tf2jax_lite.pipeline.convert import split_concrete

WORDS = ["the", "cat", "sat", "on", "a", "mat"]


class Text(tf.Module):
    """Embed tokens of a vocabulary with a custom gradient; label by string."""

    def __init__(self):
        keys = tf.lookup.KeyValueTensorInitializer(WORDS, tf.range(1, len(WORDS) + 1, dtype=tf.int64))
        self.table = tf.lookup.StaticHashTable(keys, 0)
        labels = tf.lookup.KeyValueTensorInitializer(tf.constant([0, 1], tf.int64), tf.constant(["no", "yes"]))
        self.labels = tf.lookup.StaticHashTable(labels, "?")
        self.embedding = tf.Variable(tf.random.stateless_normal([7, 3], [1, 2]), name="embedding")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string), tf.TensorSpec([None], tf.float32)])
    def __call__(self, text, bias):
        tf.debugging.assert_greater(tf.strings.length(text), 0, message="empty text")
        ids = self.table.lookup(tf.strings.split(tf.strings.lower(text))).to_tensor()
        mask = tf.cast(ids > 0, tf.float32)[..., None]
        pooled = tf.reduce_sum(tf.nn.swish(tf.gather(self.embedding, ids)) * mask, 1)
        logits = tf.reduce_sum(pooled, -1) + bias
        return {"logits": logits, "label": self.labels.lookup(tf.cast(logits > 0, tf.int64)), "ids": ids}


def _text_inputs():
    return {"text": np.array(["The cat", "sat on a dog", "mat"]), "bias": np.array([0.1, 0.2, 0.3], np.float32)}


class Images(tf.Module):
    """JPEG bytes, decoded in a map_fn (a While whose body has no counterpart in JAX)."""

    def __init__(self):
        self.kernel = tf.Variable(tf.random.stateless_normal([3, 3, 3, 2], [3, 4]), name="kernel")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def __call__(self, images):
        def decode(data):
            image = tf.io.decode_jpeg(data, channels=3)
            return tf.image.resize(tf.cast(image, tf.float32) / 255.0, [8, 8])

        pixels = tf.map_fn(decode, images, fn_output_signature=tf.TensorSpec([8, 8, 3], tf.float32))
        return tf.nn.relu(tf.nn.conv2d(pixels, self.kernel, 1, "SAME"))


def _image_inputs():
    rng = np.random.default_rng(0)
    pixels = [rng.integers(0, 255, (h, 9, 3)).astype(np.uint8) for h in (6, 11)]
    return {"images": np.array([tf.io.encode_jpeg(p).numpy() for p in pixels], object)}


class Examples(tf.Module):
    """Parse tf.Example protos, whose sparse features have dynamic shapes."""

    def __init__(self):
        self.weights = tf.Variable(tf.random.stateless_normal([10, 2], [5, 6]), name="weights")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def __call__(self, serialized):
        features = tf.io.parse_example(
            serialized, {"x": tf.io.FixedLenFeature([3], tf.float32), "ids": tf.io.VarLenFeature(tf.int64)}
        )
        ids = tf.sparse.to_dense(features["ids"], default_value=-1)
        rows = tf.gather(self.weights, tf.maximum(ids, 0)) * tf.cast(ids >= 0, tf.float32)[..., None]
        return tf.reduce_sum(rows, 1), tf.reduce_sum(features["x"], -1)


def _example_inputs():
    def one(x, ids):
        feature = {
            "x": tf.train.Feature(float_list=tf.train.FloatList(value=x)),
            "ids": tf.train.Feature(int64_list=tf.train.Int64List(value=ids)),
        }
        return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()

    return {"serialized": np.array([one([1, 2, 3], [1, 9]), one([4, 5, 6], []), one([0, 0, 1], [3, 4, 5])], object)}


class Vocabulary(tf.Module):
    """Text embeddings as on TensorFlow Hub: a vocabulary asset, and hashed words."""

    def __init__(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False) as file:
            file.write("\n".join(WORDS))
        whole, line = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
        rows = tf.lookup.TextFileInitializer(file.name, tf.string, whole, tf.int64, line)
        self.table = tf.lookup.StaticVocabularyTable(rows, 3)
        self.embedding = tf.Variable(tf.random.stateless_normal([len(WORDS) + 3, 4], [7, 8]), name="embedding")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def __call__(self, text):
        words = tf.strings.split(tf.strings.regex_replace(tf.strings.lower(text), "[^a-z ]", ""))
        words = words.to_tensor()
        mask = tf.cast(words != "", tf.float32)[..., None]
        summed = tf.reduce_sum(tf.gather(self.embedding, self.table.lookup(words)) * mask, 1)
        return {"embedding": tf.math.l2_normalize(summed, 1)}


def _vocabulary_inputs():
    return {"text": np.array(["The cat!", "sat on a dog", "zebra mat"])}


CASES = {
    "text": (Text, _text_inputs),
    "images": (Images, _image_inputs),
    "examples": (Examples, _example_inputs),
    "vocabulary": (Vocabulary, _vocabulary_inputs),
}


@pytest.fixture(scope="module", params=CASES)
def split(request, tmp_path_factory):
    """Return a split model, its inputs, and the module."""
    kind, inputs = CASES[request.param]
    module = kind()
    path = str(tmp_path_factory.mktemp(request.param))
    outputs = module.__call__.get_concrete_function()
    if not isinstance(outputs.structured_outputs, dict):
        inner = module.__call__

        def named(*args):
            found = inner(*args)
            return {f"output_{i}": r for i, r in enumerate(found if isinstance(found, tuple) else (found,))}

        specs = [tf.TensorSpec(t.shape, t.dtype, name=n) for t, n in zip(outputs.inputs, inputs(), strict=False)]
        signature = tf.function(named).get_concrete_function(*specs)
    else:
        signature = module.__call__
    tf.saved_model.save(module, path, signatures=signature)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        host_fn, jax_fn, params = tf2jax.convert_saved_model(path, split_host=True)
    return module, host_fn, jax_fn, params, inputs(), path


def _reference(path, inputs):
    signature = tf.saved_model.load(path).signatures["serving_default"]
    found = signature(**{name: tf.constant(value) for name, value in inputs.items()})
    return {name: value.numpy() for name, value in found.items() if value.dtype != tf.string}


@pytest.mark.full
def test_the_two_halves_give_what_the_model_gives(split):
    _, host_fn, jax_fn, params, inputs, path = split
    results, _ = jax.jit(jax_fn)(params, **host_fn(**inputs))
    expected = _reference(path, inputs)
    assert set(results) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(results[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.default_cases("text", "vocabulary")
def test_stored_host_part_computes_the_same(split, tmp_path):
    """Its tables have their contents, without the model's files."""
    _, host_fn, jax_fn, params, inputs, path = split
    shapes = {tensor.name: "b, m" for tensor in host_fn.cut if tensor.shape is None}
    tf2jax.export_functions({"f": (jax_fn, params)}, tmp_path / "out", shapes=shapes or None, platforms=["cpu"])
    shutil.move(path, tmp_path / "model")
    try:
        found, expected = tf2jax.load_host(tmp_path / "out")(**inputs), host_fn(**inputs)
    finally:
        shutil.move(tmp_path / "model", path)
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert found[name].dtype == value.dtype
        np.testing.assert_array_equal(found[name], value)


def test_host_part_with_a_table_of_vectors_is_left_out_with_a_warning(tmp_path):
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, default_value=tf.zeros([2]))
    table.insert(["a"], [[1.0, 2.0]])
    fn = tf.function(lambda key: table.lookup(key) * 2.0, input_signature=[tf.TensorSpec([None], tf.string)])
    _, jax_fn, params = split_concrete(fn.get_concrete_function(), "lookup")
    report = tf2jax.export_functions({"f": (jax_fn, params)}, tmp_path / "out", shapes=["b, 2"], platforms=["cpu"])
    assert any("is a resource whose contents cannot be stored" in text for text in report.warnings), report.warnings
    with pytest.raises(ExportError, match="'f' has no part that runs in TensorFlow"):
        tf2jax.load_host(tmp_path / "out")


def test_host_part_that_reads_files_is_not_loaded(tmp_path):
    fn = tf.function(lambda text: tf.strings.length(text) * 2, input_signature=[tf.TensorSpec([None], tf.string)])
    _, jax_fn, params = split_concrete(fn.get_concrete_function(), "length")
    tf2jax.export_functions({"f": (jax_fn, params)}, tmp_path / "out", platforms=["cpu"])
    file = tmp_path / "out" / "host.f.pb"
    graph = tf.compat.v1.GraphDef.FromString(file.read_bytes())
    (node,) = [node for node in graph.node if node.op == "StringLength"]
    read = graph.node.add(name="read", op="ReadFile", input=[node.input[0]])
    node.input[0] = read.name
    file.write_bytes(graph.SerializeToString())
    with pytest.raises(ExportError, match="damaged"):
        tf2jax.load_host(tmp_path / "out")
    with pytest.raises(UntrustedError, match="ReadFile"):
        tf2jax.load_host(tmp_path / "out", verify_hashes=False)
    node.op, node.input[0] = "StringLower", read.input[0]
    read.op = "StringLower"
    file.write_bytes(graph.SerializeToString())
    metadata = json.loads((tmp_path / "out" / "metadata.json").read_text())
    metadata["signatures"]["f"]["host"]["setup"] = [read.name]
    (tmp_path / "out" / "metadata.json").write_text(json.dumps(metadata))
    with pytest.raises(UntrustedError, match="would run StringLower"):  # at once, which tables do not need
        tf2jax.load_host(tmp_path / "out", verify_hashes=False)
    file.write_bytes(b"x")
    with pytest.raises(ExportError, match=r"host\.f\.pb"):
        tf2jax.load_host(tmp_path / "out", verify_hashes=False)


def test_damaged_description_of_the_host_part_raises(tmp_path):
    fn = tf.function(lambda text: tf.strings.length(text) * 2, input_signature=[tf.TensorSpec([None], tf.string)])
    _, jax_fn, params = split_concrete(fn.get_concrete_function(), "length")
    tf2jax.export_functions({"f": (jax_fn, params)}, tmp_path / "out", platforms=["cpu"])
    file = tmp_path / "out" / "metadata.json"
    metadata = json.loads(file.read_text())
    good = metadata["signatures"]["f"]["host"]
    core = [{**good["core_inputs"][0], "tensor": "x:7"}]
    for damage in (
        *({"interface": x} for x in (None, {"args": 3})),
        *({"feeds": x} for x in (None, [["text"]], [["x", "text"]], [["nothing:0", good["feeds"][0][1]]])),
        *({"core_inputs": x} for x in (None, [], core, [{"name": "other"}])),
        *({key: ["nothing"]} for key in ("effects", "setup")),
        *({"file": x} for x in (None, "../host.pb", "model.py")),
    ):
        metadata["signatures"]["f"]["host"] = {**good, **damage}
        file.write_text(json.dumps(metadata))
        with pytest.raises(ExportError):
            tf2jax.load_host(tmp_path / "out")
    metadata["signatures"]["f"]["host"] = 3
    file.write_text(json.dumps(metadata))
    with pytest.raises(ExportError, match="not an object"):
        tf2jax.load_host(tmp_path / "out")


class Looked(tf.Module):
    """A table, and nothing between it and the core that would tell the rank."""

    def __init__(self):
        keys = tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2])
        self.table = tf.lookup.StaticHashTable(keys, 0)
        self.weights = tf.Variable(tf.random.stateless_normal([3, 2], [5, 6]))

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.string, name="keys")])
    def __call__(self, keys):
        return {"y": tf.gather(self.weights, self.table.lookup(keys))}


@pytest.mark.full
def test_looked_up_values_have_the_shape_of_the_keys(tmp_path):
    """The table's Python object knows that, and is not saved."""
    module = Looked()
    tf.saved_model.save(module, str(tmp_path / "m"), signatures=module.__call__)
    host_fn, jax_fn, params = tf2jax.convert_saved_model(tmp_path / "m", split_host=True)
    assert [(t.op, t.shape) for t in host_fn.cut] == [("LookupTableFindV2", (None, 2))]
    keys = np.array([["a", "c"], ["b", "a"], ["b", "b"]])
    expected = module(tf.constant(keys))["y"]
    tf2jax.export_functions({"f": (jax_fn, params)}, tmp_path / "out")
    for fn, given in ((jax_fn, params), tf2jax.load(tmp_path / "out")):
        np.testing.assert_allclose(fn(given, **host_fn(keys=keys))[0]["y"], expected, rtol=1e-6)


def test_vector_keys_leave_the_rank_unknown():
    empty, deleted = (tf.constant([i, i], tf.int64) for i in (-1, -2))
    table = tf.lookup.experimental.DenseHashTable(tf.int64, tf.int32, 0, empty, deleted)
    fn = tf.function(table.lookup, input_signature=[tf.TensorSpec([None, 2], tf.int64)])
    host_fn, *_ = split_concrete(fn.get_concrete_function(), "lookup")
    assert [t.shape for t in host_fn.cut] == [None]


@pytest.mark.full
def test_the_core_trains(split):
    """Gradients of the core by its params are those of the whole model."""
    module, host_fn, jax_fn, params, inputs, _ = split
    first = min(k for k in _reference(split[5], inputs) if k != "ids")
    gradient = jax.grad(lambda p: (jax_fn(p, **host_fn(**inputs))[0][first] ** 2).sum())(params)
    with tf.GradientTape() as tape:
        results = module(*[tf.constant(v) for v in inputs.values()])
        chosen = results[first] if isinstance(results, dict) else tf.nest.flatten(results)[0]
        loss = tf.reduce_sum(chosen**2)
    (variable,) = module.trainable_variables
    (got,) = gradient.values()
    np.testing.assert_allclose(got, tf.convert_to_tensor(tape.gradient(loss, variable)), rtol=1e-4, atol=1e-5)


def test_host_function_describes_the_boundary():
    module = Text()
    with pytest.warns(UserWarning, match="label"):
        host_fn, jax_fn, _ = _split(module)
    assert [(t.name, t.dtype.name) for t in host_fn.cut] == [("bias", "float32"), ("RaggedTensorToTensor", "int64")]
    assert host_fn.dropped == ("label",)
    assert {op for op, _ in host_fn.reasons.values()} >= {"StringLower", "StringSplitV2", "LookupTableFindV2"}
    assert list(jax_fn.signature.parameters) == ["bias", "RaggedTensorToTensor"]
    # What asserts something about strings stays with them.
    with pytest.raises(InputError, match="empty text"):
        host_fn(text=[""], bias=np.zeros(1, np.float32))


def _split(module, name="serving_default"):
    import tempfile

    path = tempfile.mkdtemp()
    tf.saved_model.save(module, path, signatures=module.__call__)
    return tf2jax.convert_saved_model(path, name, split_host=True)


@pytest.mark.full
def test_without_split_the_error_names_split_host(tmp_path):
    module = Images()
    wrapped = tf.function(lambda images: {"y": module(images)}, input_signature=[tf.TensorSpec([None], tf.string)])
    tf.saved_model.save(module, str(tmp_path), signatures=wrapped.get_concrete_function())
    with pytest.raises(UnsupportedOpsError, match="split_host=True"):
        tf2jax.convert_saved_model(tmp_path)


@pytest.mark.full
def test_strings_that_depend_on_trained_variables_raise():
    class Middle(tf.Module):
        def __init__(self):
            self.v = tf.Variable([1.0, 2.0], name="v")

        @tf.function(input_signature=[tf.TensorSpec([2], tf.float32)])
        def __call__(self, x):
            text = tf.strings.as_string(x * self.v)
            return {"y": tf.strings.to_number(text) + 1.0}

    with pytest.raises(UnsupportedError, match=r"AsString.*depends on trained variables"):
        _split(Middle())


def test_only_string_results_raise():
    class Echo(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([], tf.string)])
        def __call__(self, x):
            return {"y": x + "!"}

    with pytest.raises(UnsupportedError, match="no numeric core"):
        _split(Echo())


@pytest.mark.full
def test_a_model_without_strings_has_an_empty_prefix():
    class Plain(tf.Module):
        def __init__(self):
            self.v = tf.Variable([1.0, 2.0], name="v")

        @tf.function(input_signature=[tf.TensorSpec([2], tf.float32, "x")])
        def __call__(self, x):
            return {"y": x * self.v}

    host_fn, jax_fn, params = _split(Plain())
    assert host_fn.nodes == 0
    results, _ = jax_fn(params, **host_fn(x=np.array([3.0, 4.0], np.float32)))
    np.testing.assert_allclose(results["y"], [3.0, 8.0])


@pytest.mark.full
def test_a_loop_over_strings_in_a_called_function_and_variables_written_by_the_core():
    """The prefix is cut from inlined calls; written variables return."""

    class Counting(tf.Module):
        def __init__(self):
            self.calls = tf.Variable(0, name="calls", trainable=False)
            self.scale = tf.Variable(2.0, name="scale")

        @tf.function
        def lengths(self, text):
            total = tf.zeros_like(tf.strings.length(text))
            for _ in tf.range(3):
                text = tf.strings.join([text, "x"])
                total += tf.strings.length(text)
            return total

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
        def __call__(self, text):
            self.calls.assign_add(1)
            return {"y": tf.cast(self.lengths(text), tf.float32) * self.scale}

    module = Counting()
    host_fn, jax_fn, params = _split(module)
    results, state = jax.jit(jax_fn)(params, **host_fn(np.array(["a", "bcd"])))
    np.testing.assert_allclose(results["y"], module(tf.constant(["a", "bcd"]))["y"])
    assert {str(k).split(":")[0]: int(v) for k, v in state.items()}["calls"] == 1


@pytest.mark.full
def test_keras_text_vectorization(tmp_path):
    vectorize = keras.layers.TextVectorization(max_tokens=10, output_sequence_length=5)
    vectorize.adapt(["the cat sat", "the mat"])
    model = keras.Sequential(
        [
            keras.Input((), dtype="string", name="text"),
            vectorize,
            keras.layers.Embedding(10, 4),
            keras.layers.LSTM(3),
            keras.layers.Dense(2),
        ]
    )
    model.export(str(tmp_path / "saved"), verbose=False)
    text = np.array(["The cat", "a mat sat there today again"])
    expected = model(tf.constant(text)).numpy()
    host_fn, jax_fn, params = tf2jax.convert_saved_model(tmp_path / "saved", split_host=True)
    inputs = host_fn(text)
    results, _ = jax.jit(jax_fn)(params, **inputs)
    np.testing.assert_allclose(jax.tree.leaves(results)[0], expected, rtol=1e-5, atol=1e-6)
    # The core has no strings left: it can be exported.
    specs = {k: jax.ShapeDtypeStruct(v.shape, v.dtype) for k, v in inputs.items()}
    assert export.export(jax.jit(jax_fn))(params, **specs).serialize()


@pytest.mark.full
def test_tf1_export_with_parse_example_a_table_and_a_cond(tmp_path):
    """An Estimator's export: the prefix is cut, v1 control flow stays."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        serialized = v1.placeholder(tf.string, [None], "examples")
        features = v1.parse_example(
            serialized, {"x": v1.FixedLenFeature([3], tf.float32), "ids": v1.FixedLenFeature([2], tf.int64)}
        )
        keys = tf.lookup.KeyValueTensorInitializer(tf.constant(["odd", "even"]), tf.constant([0, 1], tf.int64))
        table = tf.lookup.StaticHashTable(keys, -1)
        named = tf.where(features["ids"] % 2 == 0, tf.fill(tf.shape(features["ids"]), "even"), "odd")
        kernel = v1.get_variable("kernel", initializer=tf.random.stateless_normal([3, 2], [1, 2]))
        doubled = v1.cond(
            tf.reduce_sum(features["x"]) > 0, lambda: features["x"] @ kernel * 2.0, lambda: features["x"] @ kernel
        )
        y = doubled + tf.cast(table.lookup(named), tf.float32)
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        feature = {
            "x": tf.train.Feature(float_list=tf.train.FloatList(value=[1, 2, 3])),
            "ids": tf.train.Feature(int64_list=tf.train.Int64List(value=[4, 5])),
        }
        example = tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
        data = np.array([example, example], object)
        expected = session.run(y, {serialized: data})
        path = str(tmp_path / "model")
        v1.saved_model.simple_save(
            session, path, {"examples": serialized}, {"y": y}, legacy_init_op=v1.tables_initializer()
        )
    host_fn, jax_fn, params = tf2jax.convert_saved_model(path, split_host=True)
    results, _ = jax.jit(jax_fn)(params, **host_fn(data))
    np.testing.assert_allclose(results["y"], expected, rtol=1e-6)
    assert list(params) == ["kernel"]
    # Constants are not carried across the cut.
    assert not any(t.op == "Const" for t in host_fn.cut)


def test_reasons_tell_strings_from_tables():
    def table(keys):
        values = tf.constant([2, 3], tf.int64)
        return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), 0)

    numbers, words = table(tf.constant([0, 1], tf.int64)), table(tf.constant(["a", "b"]))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string), tf.TensorSpec([None], tf.int64)])
    def found(text, ids):
        with tf.name_scope("words"):
            by_word = words.lookup(text)
        with tf.name_scope("numbers"):
            return by_word + numbers.lookup(ids)

    host, *_ = split_concrete(found.get_concrete_function(), "found")
    reasons = {node.split("/")[0]: reason for node, (op, reason) in host.reasons.items() if "Find" in op}
    assert reasons == {"words": "works on strings", "numbers": "reads a table or dataset"}
