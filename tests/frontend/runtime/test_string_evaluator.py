"""Ops on strings that are known at conversion against TensorFlow."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import OpError, Tf2JaxError, UnsupportedAttributeError, UnsupportedOpsError
from tf2jax_lite.frontend.runtime import string_evaluator
from tf2jax_lite.pipeline.inspect_model import describe_saved_model

raw = tf.raw_ops
W = np.array([[b" Ab c\n", b"x,y"], [b"", "grün,,é".encode()]], object)
FLAT = W.reshape(-1)
EVALUATED = {
    "lower": lambda: tf.strings.lower(W),
    "lower utf-8": lambda: tf.strings.lower(np.array("GRÜN"), encoding="utf-8"),
    "upper": lambda: tf.strings.upper(W),
    "strip": lambda: tf.strings.strip(W),
    "substr": lambda: tf.strings.substr(W, 0, 2),
    "substr each": lambda: tf.strings.substr(FLAT[[0, 1]], [1, -2], [3, 1]),
    "substr characters": lambda: tf.strings.substr(FLAT[3:], 2, 2, unit="UTF8_CHAR"),
    "split": lambda: raw.StringSplit(input=FLAT, delimiter=np.array(b","), skip_empty=False),
    "split 2": lambda: raw.StringSplitV2(input=FLAT, sep=np.array(b","), maxsplit=1),
    "split words": lambda: tf.strings.split(FLAT).to_tensor(default_value="-"),
    "join": lambda: tf.strings.reduce_join(W, axis=1, separator="+"),
    "join both": lambda: tf.strings.reduce_join(W, axis=[1, 0], keepdims=True),
    "join nothing": lambda: tf.strings.reduce_join(np.zeros([0, 3], object), axis=0),
    "join segments": lambda: tf.strings.unsorted_segment_join(FLAT, [2, 0, 2, 3], 5, separator="|"),
    "numbers": lambda: tf.strings.to_number(np.array([b"1.5", b"-2e3", b"inf"], object)),
    "numbers 64": lambda: tf.strings.to_number(np.array([b"12", b"-7"], object), tf.int64),
    "numbers double": lambda: tf.strings.to_number(np.array(b"0.25", object), tf.float64),
    "replace": lambda: tf.strings.regex_replace(W, "([a-z])", r"<\1>"),
    "replace first": lambda: tf.strings.regex_replace(W, "[a-z]", "", replace_global=False),
    "replace by input": lambda: raw.RegexReplace(input=W, pattern=np.array(b"b|y"), rewrite=np.array(b"zz")),
    "match": lambda: tf.strings.regex_full_match(W, ".*,.*"),
    "match by input": lambda: raw.RegexFullMatch(input=W, pattern=np.array(b"")),
    "bytes": lambda: tf.io.decode_raw(np.array([b"abcd", b"efgh"], object), tf.int16),
    "bytes of the other end": lambda: tf.io.decode_raw(np.array(b"abcd", object), tf.int16, little_endian=False),
    "padded bytes": lambda: tf.io.decode_raw(FLAT, tf.uint8, fixed_length=8),
    "base64": lambda: tf.io.encode_base64(W, pad=True),
    "of base64": lambda: tf.io.decode_base64(np.array([b"eA", b""], object)),
    "characters": lambda: tf.strings.unicode_decode(FLAT, "UTF-8").to_tensor(),
    "characters and offsets": lambda: raw.UnicodeDecodeWithOffsets(input=FLAT, input_encoding="UTF-8"),
    "of characters": lambda: tf.strings.unicode_encode(np.int32([103, 252]), "UTF-16-BE"),
    "scripts": lambda: tf.strings.unicode_script(np.int32([65, 0x416, 0x5D0])),
    "transcoded": lambda: tf.strings.unicode_transcode(W, "UTF-8", "UTF-32-BE"),
    "damaged": lambda: tf.strings.unicode_transcode(np.array(b"a\xffb", object), "UTF-8", "UTF-8"),
    "ngrams": lambda: tf.strings.ngrams(FLAT, [2, 3], pad_values=("<", ">")),
    "ngrams padded": lambda: tf.strings.ngrams(FLAT, 3, pad_values=("", "$"), padding_width=1),
    "one after the other": lambda: tf.strings.length(
        tf.strings.strip(tf.strings.regex_replace(tf.strings.join([W, tf.strings.as_string(3)]), "3", " "))
    ),
}


@pytest.mark.parametrize("x64", [True, False])
@pytest.mark.parametrize("name", EVALUATED)
def test_ops_of_known_strings(name, x64):
    function = tf.function(EVALUATED[name], autograph=False)
    expected = tf.nest.flatten(function(), expand_composites=True)
    with jax.enable_x64(x64):
        converted = tf2jax.convert_functional(function)
        for e, a in zip(expected, jax.tree.leaves(converted()), strict=True):
            np.testing.assert_array_equal(a, e)
            assert a.dtype == e.numpy().dtype if x64 and e.dtype != tf.string else a.shape == tuple(e.shape)
        if not any(e.dtype == tf.string for e in expected):
            for e, a in zip(expected, jax.tree.leaves(jax.jit(converted)()), strict=True):
                np.testing.assert_array_equal(a, e)


@pytest.mark.full
def test_numbers_written_as_text_meet_data():
    factors = tf.constant("0.5 2 -1")

    def scaled(x):
        return x * tf.strings.to_number(tf.strings.split(factors))

    x = np.float32([3, 4, 5])
    converted = tf2jax.convert_functional(tf.function(scaled, autograph=False), tf.TensorSpec([3]))
    np.testing.assert_array_equal(jax.jit(converted)(x), scaled(x))
    np.testing.assert_array_equal(jax.jit(jax.vmap(converted))(np.stack([x, -x])), np.stack([scaled(x), scaled(-x)]))
    gradient = jax.jit(jax.grad(lambda x: converted(x).sum()))(x)
    np.testing.assert_array_equal(gradient, np.float32([0.5, 2, -1]))


@pytest.mark.full
def test_models_that_are_saved(tmp_path):
    model = tf.Module()
    words = tf.constant([f" word {i} " for i in range(300)])  # more than TensorFlow copies into a graph

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32)], autograph=False)
    def letters(x):
        return {"y": x * tf.reduce_sum(tf.strings.length(tf.strings.strip(words)))}

    model.letters, model.words = letters, words
    tf.saved_model.save(model, str(tmp_path), signatures=letters)
    (signature,) = describe_saved_model(tmp_path).signatures
    function, params = tf2jax.convert_saved_model(tmp_path)
    np.testing.assert_array_equal(jax.jit(function)(params, np.int32(2))[0]["y"], letters(2)["y"])
    assert "StringStrip" in signature.ops and not signature.unsupported


@pytest.mark.parametrize(
    "function",
    [
        lambda: tf.strings.regex_replace(W, "", "x" * 2000),
        lambda: raw.RegexReplace(input=W, pattern=np.array(b""), rewrite=np.array(b"x" * 2000)),
        lambda: tf.strings.reduce_join(np.zeros([0, 1 << 40], object), axis=0),
        lambda: tf.strings.unsorted_segment_join(FLAT, [0, 0, 0, 0], 1 << 30),
        lambda: tf.io.decode_raw(FLAT, tf.uint8, fixed_length=1 << 28),
        lambda: tf.strings.ngrams(FLAT, 1 << 20),
        lambda: tf.strings.substr(FLAT[:, None], np.zeros([1, 400], np.int32), np.ones([1, 400], np.int32)),
        lambda: tf.strings.lower(np.array(b"a" * 2000, object)),
    ],
    ids=["replace", "replace by input", "join", "segments", "bytes", "ngrams", "substr", "lower"],
)
def test_results_that_could_be_too_large(function):
    made = tf.function(function, autograph=False).get_concrete_function()
    with tf2jax.override_config("max_constant_bytes", 50_000):
        converted = tf2jax.convert_functional(made)
        with pytest.raises(Tf2JaxError, match=r"node .*static.*max_constant_bytes allows 50000"):
            converted()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda: tf.strings.to_number(np.array(b"ten", object)), "could not correctly convert string: ten"),
        (lambda: tf.strings.regex_replace(W, "(", ""), "Invalid pattern"),
        (
            lambda: tf.io.decode_base64(np.array(b"!", object)),
            r"\(DecodeBase64\): TensorFlow: Base64 string length cannot be 1",
        ),
    ],
)
def test_values_that_tensorflow_rejects_raise(function, message):
    made = tf.function(function, autograph=False).get_concrete_function()
    with pytest.raises(Tf2JaxError, match=rf"(?si)node '.*{message}"):
        tf2jax.convert_functional(made)()


@pytest.mark.full
def test_ops_that_are_never_evaluated():
    """These expand inputs, read files, or depend on run-time strings."""
    evaluator = string_evaluator.StringEvaluator(1 << 20)
    for op in ("ReadFile", "ParseTensor", "DecodeCompressed", "PyFunc", "WholeFileReader", "NoSuchOp", "PrintV2"):
        assert not evaluator.accepts(op)
        with pytest.raises(OpError, match="cannot be evaluated"):
            evaluator.evaluate(op, [W], {})
    with pytest.raises(UnsupportedOpsError, match="StringStrip"):
        tf2jax.convert_functional(tf.function(tf.strings.strip), tf.TensorSpec([2], tf.string))


def test_ops_of_ones_own_come_first():
    with tf2jax.override_op("StringStrip", lambda input: input, fold=lambda input: np.array(b"mine", object)):
        converted = tf2jax.convert_functional(tf.function(lambda: tf.strings.strip(W), autograph=False))
    assert converted() == b"mine"


@pytest.mark.default_cases("class")
@pytest.mark.parametrize("attribute", ["a b", "class", "inputs", ""])
def test_attributes_of_other_ops_raise(attribute):
    """Such as a hostile file has: names that no parameter of Python's can have, too."""
    function = tf.function(lambda x: x + tf.strings.to_number(tf.strings.lower("3")), autograph=False)
    graph = function.get_concrete_function(tf.TensorSpec([2])).graph.as_graph_def()
    (node,) = (n for n in graph.node if n.op == "StringLower")
    output = graph.node[-1].name
    jax_fn, params = tf2jax.convert_graph_def(graph, ["x"], [output])
    np.testing.assert_array_equal(jax.jit(jax_fn)(params, np.float32([1, 2]))[0], [[4, 5]])
    node.attr[attribute].i = 3
    with pytest.raises(UnsupportedAttributeError, match=r"StringLower.*not handled"):
        tf2jax.convert_graph_def(graph, ["x"], [output])
