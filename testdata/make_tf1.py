"""Make the small TF1 models that tests convert.

Usage: ``python testdata/make_tf1.py`` from the project's root.

``classifier``: a SavedModel with reference variables (one of them partitioned), batch norm whose update ops run in
training, two signatures, two MetaGraphs, and a vocabulary among its assets. ``lstm``: an LSTM written with
tf.while_loop and TensorArrays over resource variables. ``frozen_inception.pb``: an Inception-like block whose weights
are constants. ``hub``: a module with the tag sets and the collections of TF1 Hub. ``checkpoint``: a .meta file and its
checkpoint. Each stands beside an .npz with inputs and what tf.compat.v1.Session computed from them.
"""

import os
import shutil
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1
HERE = Path(__file__).parent / "tf1"
RNG = np.random.default_rng(0)


def variable(name, shape, resource, trainable=True, value=None):
    value = RNG.normal(size=shape).astype(np.float32) * 0.5 if value is None else value
    with tf1.variable_scope("", use_resource=resource):
        return tf1.get_variable(name, initializer=value, trainable=trainable)


def session():
    found = tf1.Session()
    found.run([tf1.global_variables_initializer(), tf1.tables_initializer()])
    return found


def record(name, **arrays):
    np.savez(HERE / f"{name}.npz", **arrays)


def signature(inputs, outputs):
    return tf1.saved_model.signature_def_utils.predict_signature_def(inputs, outputs)


def batch_norm(x, training):
    """As TF1's layers had it: averages are updated by ops in a collection."""
    size = x.shape[-1]
    gamma, beta = variable("bn/gamma", [size], False), variable("bn/beta", [size], False)
    mean = variable("bn/moving_mean", [size], False, False, np.zeros(size, np.float32))
    variance = variable("bn/moving_variance", [size], False, False, np.ones(size, np.float32))
    found, spread = tf.nn.moments(x, [0])

    def update(average, value):
        return tf1.cond(
            training, lambda: tf1.assign_sub(average, (average - value) * 0.1), lambda: tf.identity(average)
        )

    for average, value in ((mean, found), (variance, spread)):
        tf1.add_to_collection(tf1.GraphKeys.UPDATE_OPS, update(average, value).op)
    used = [
        tf1.cond(training, lambda a=a: a, lambda b=b: tf.identity(b)) for a, b in ((found, mean), (spread, variance))
    ]
    return tf.nn.batch_normalization(x, *used, beta, gamma, 1e-3)


def classifier(path):
    vocabulary = HERE / "words.txt"
    vocabulary.write_text("cat\ndog\nemu\n")
    with tf.Graph().as_default():
        x = tf1.placeholder(tf.float32, [None, 4], "x")
        training = tf1.placeholder_with_default(False, [], "training")
        with tf1.variable_scope("dense", partitioner=tf1.fixed_size_partitioner(2), use_resource=False):
            w = tf1.get_variable("w", [4, 5], initializer=tf1.random_normal_initializer(seed=7))
        hidden = batch_norm(tf.matmul(x, tf.convert_to_tensor(w)), training)
        with tf1.control_dependencies(tf1.get_collection(tf1.GraphKeys.UPDATE_OPS)):
            logits = tf.matmul(tf.nn.relu(hidden), variable("out", [5, 3], False))
        words = tf1.placeholder(tf.string, [None], "words")
        ids = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(
                str(vocabulary),
                tf.string,
                tf.lookup.TextFileIndex.WHOLE_LINE,
                tf.int64,
                tf.lookup.TextFileIndex.LINE_NUMBER,
            ),
            -1,
        ).lookup(words)
        with session() as sess:
            builder = tf1.saved_model.builder.SavedModelBuilder(str(path))
            builder.add_meta_graph_and_variables(
                sess,
                ["serve"],
                {
                    "serving_default": signature({"x": x, "training": training}, {"logits": logits}),
                    "lookup": signature({"words": words}, {"ids": ids}),
                },
                assets_collection=tf1.get_collection(tf1.GraphKeys.ASSET_FILEPATHS),
                main_op=tf1.tables_initializer(),
            )
            builder.add_meta_graph(["train"], {"serving_default": signature({"x": x}, {"double": logits * 2})})
            builder.save()
            arrays = {"x": RNG.normal(size=(6, 4)).astype(np.float32)}
            feeds = {x: arrays["x"]}
            arrays["double"] = 2 * sess.run(logits, feeds)
            for step in range(3):  # in training, in training, then not
                arrays[f"logits_{step}"] = sess.run(logits, {**feeds, training: step < 2})
            for value in tf1.global_variables():
                arrays[f"after/{value.op.name}"] = sess.run(value)
            record("classifier", **arrays)
    vocabulary.unlink()


def lstm(path):
    with tf.Graph().as_default():
        x = tf1.placeholder(tf.float32, [2, 5, 3], "x")
        kernel, bias = variable("lstm/kernel", [7, 16], True), variable("lstm/bias", [16], True)
        steps = tf.TensorArray(tf.float32, 5).unstack(tf.transpose(x, [1, 0, 2]))
        out = tf.TensorArray(tf.float32, 5)

        def body(time, h, c, out):
            z = tf.matmul(tf.concat([steps.read(time), h], 1), kernel) + bias
            i, j, f, o = tf.split(z, 4, 1)
            c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(j)
            h = tf.sigmoid(o) * tf.tanh(c)
            return time + 1, h, c, out.write(time, h)

        zeros = tf.zeros([2, 4])
        *_, out = tf1.while_loop(lambda time, *_: time < 5, body, [0, zeros, zeros, out])
        y = tf.transpose(out.stack(), [1, 0, 2])
        loss = tf.reduce_sum(tf.square(y))
        grads = tf1.gradients(loss, [kernel, bias])
        train = tf1.train.GradientDescentOptimizer(0.1).apply_gradients(zip(grads, [kernel, bias], strict=True))
        with tf1.control_dependencies([train]):
            trained = tf.identity(loss, "trained")
        with session() as sess:
            builder = tf1.saved_model.builder.SavedModelBuilder(str(path))
            builder.add_meta_graph_and_variables(
                sess,
                ["serve"],
                {"serving_default": signature({"x": x}, {"y": y}), "train": signature({"x": x}, {"loss": trained})},
            )
            builder.save()
            value = RNG.normal(size=(2, 5, 3)).astype(np.float32)
            names = ["y", "loss", "kernel_grad", "bias_grad"]
            arrays = dict(zip(names, sess.run([y, loss, *grads], {x: value}), strict=True))
            sess.run(trained, {x: value})
            record("lstm", x=value, **arrays, kernel_after=sess.run(kernel), bias_after=sess.run(bias))


def frozen_inception(path):
    with tf.Graph().as_default() as graph:
        x = tf1.placeholder(tf.float32, [None, 8, 8, 3], "image")

        def conv(x, name, size, channels):
            kernel = variable(f"{name}/w", [size, size, x.shape[-1], channels], False)
            bias = variable(f"{name}/b", [channels], False)
            return tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, kernel, 1, "SAME"), bias))

        towers = [
            conv(x, "one", 1, 4),
            conv(conv(x, "reduce3", 1, 3), "three", 3, 4),
            conv(conv(x, "reduce5", 1, 2), "five", 5, 3),
            conv(tf.nn.max_pool2d(x, 3, 1, "SAME"), "pool", 1, 2),
        ]
        mixed = tf.reduce_mean(tf.concat(towers, 3), [1, 2])
        tf.nn.softmax(tf.matmul(mixed, variable("logits", [13, 4], False)), name="probabilities")
        with session() as sess:
            frozen = tf1.graph_util.convert_variables_to_constants(sess, graph.as_graph_def(), ["probabilities"])
            path.write_bytes(frozen.SerializeToString(deterministic=True))
            image = RNG.normal(size=(2, 8, 8, 3)).astype(np.float32)
            record("frozen_inception", image=image, probabilities=sess.run("probabilities:0", {x: image}))


def hub(path):
    for number, tags in enumerate(([], ["train"])):
        with tf.Graph().as_default():
            x = tf1.placeholder(tf.float32, [None, 4], "default")
            y = tf.nn.l2_normalize(tf.matmul(x, variable("module/embedding", [4, 2], False)), 1)
            tf1.add_to_collection("hub_module_attachments", "marker")
            with session() as sess:
                if number == 0:
                    builder = tf1.saved_model.builder.SavedModelBuilder(str(path))
                    builder.add_meta_graph_and_variables(
                        sess, tags, {"default": signature({"default": x}, {"default": y})}
                    )
                    value = RNG.normal(size=(3, 4)).astype(np.float32)
                    record("hub", default=value, result=sess.run(y, {x: value}))
                else:
                    builder.add_meta_graph(tags, {"default": signature({"default": x}, {"default": y})})
    builder.save()


def checkpoint(path):
    path.mkdir()
    with tf.Graph().as_default():
        x = tf1.placeholder(tf.float32, [None, 3], "x")
        w = variable("renamed", [3, 2], False)
        tf.matmul(x, w, name="y")
        with session() as sess:
            tf1.train.Saver({"under/another/name": w}).save(sess, str(path / "model"))
            record("checkpoint", w=sess.run(w))
    (path / "checkpoint").unlink()


def main():
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir()
    tf1.disable_control_flow_v2()
    for make in (classifier, lstm, frozen_inception, hub, checkpoint):
        make(HERE / (make.__name__ + (".pb" if make is frozen_inception else "")))
    size = sum(f.stat().st_size for f in HERE.rglob("*") if f.is_file())
    print(f"{HERE}: {size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
