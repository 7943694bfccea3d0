"""Models with random weights in Keras 3 or tf_keras, and their inputs."""

import numpy as np

VOCABULARY = 50


def images(size, channels=3, batch=2, dtype=np.float32):
    return np.random.default_rng(0).normal(size=(batch, size, size, channels)).astype(dtype)


def tokens(length=12, batch=3):
    """Token ids, padded with zeros at the end so that masking has something to do."""
    ids = np.random.default_rng(1).integers(1, VOCABULARY, (batch, length)).astype(np.int32)
    ids[0, length // 2 :] = 0
    ids[1, length - 2 :] = 0
    return ids


def application(K, name, size=32, **kwargs):
    K.utils.set_random_seed(0)
    model = getattr(K.applications, name)(weights=None, input_shape=(size, size, 3), classes=10, **kwargs)
    return _randomize(model), images(size)


def _randomize(model):
    """Give batch statistics and zero weights values that would show an error."""
    rng = np.random.default_rng(2)
    for variable in model.variables:
        name = getattr(variable, "path", variable.name)
        value = np.asarray(variable)
        if "moving_variance" in name:
            variable.assign(rng.uniform(0.5, 1.5, value.shape).astype(value.dtype))
        elif "moving_mean" in name or "beta" in name or "bias" in name:
            variable.assign((0.1 * rng.normal(size=value.shape)).astype(value.dtype))
        elif "gamma" in name and "layer_scale" not in name:
            variable.assign(rng.uniform(0.8, 1.2, value.shape).astype(value.dtype))
    return model


def small_cnn(K, dtype=np.float32):
    K.utils.set_random_seed(0)
    L = K.layers
    model = K.Sequential(
        [
            K.Input((16, 16, 3)),
            L.Conv2D(8, 3, strides=2, padding="same", use_bias=False),
            L.BatchNormalization(),
            L.ReLU(6.0),
            L.DepthwiseConv2D(3, padding="same", dilation_rate=2),
            L.SeparableConv2D(12, 3, activation="elu"),
            L.AveragePooling2D(2, padding="same"),
            L.Conv2DTranspose(6, 3, strides=2, padding="same", activation="gelu"),
            # TensorFlow interpolates in float32 whatever the dtype: no use where 1e-10 is asked for.
            L.UpSampling2D(2, interpolation="bilinear" if dtype == np.float32 else "nearest"),
            L.ZeroPadding2D(((1, 0), (2, 1))),
            L.Cropping2D(1),
            L.MaxPooling2D(3, strides=2),
            L.GlobalAveragePooling2D(),
            L.Dense(7, activation="softmax"),
        ]
    )
    return _randomize(model), images(16, dtype=dtype)


def recurrent(K, kind, bidirectional=False, stacked=False, masking=True):
    K.utils.set_random_seed(0)
    L = K.layers
    cell = getattr(L, kind)
    inputs = K.Input((None,), dtype="int32")
    x = L.Embedding(VOCABULARY, 8, mask_zero=masking)(inputs)

    def layer(units, sequences):
        made = cell(units, return_sequences=sequences)
        return L.Bidirectional(made) if bidirectional else made

    if stacked:
        x = layer(6, True)(x)
    x = layer(5, False)(x)
    return _randomize(K.Model(inputs, L.Dense(3)(x))), tokens()


def text_cnn(K):
    K.utils.set_random_seed(0)
    L = K.layers
    inputs = K.Input((12,), dtype="int32")
    x = L.Embedding(VOCABULARY, 8)(inputs)
    x = L.Conv1D(8, 3, padding="causal", activation="swish")(x)
    x = L.GlobalMaxPooling1D()(x)
    return K.Model(inputs, L.Dense(2, activation="sigmoid")(x)), tokens()


def transformer(K, causal):
    """Return a BERT-like encoder with padding mask, or a causal GPT decoder."""
    K.utils.set_random_seed(0)
    L = K.layers
    width, heads, length = 16, 4, 12
    inputs = K.Input((length,), dtype="int32")
    positions = L.Embedding(length, width)
    x = L.Embedding(VOCABULARY, width, mask_zero=not causal)(inputs)
    x = L.Add()([x, positions(np.arange(length, dtype=np.int32)[None])])
    for _ in range(2):
        normed = L.LayerNormalization(epsilon=1e-6)(x)
        attention = L.MultiHeadAttention(heads, width // heads)
        attended = attention(normed, normed, use_causal_mask=causal)
        x = L.Add()([x, L.Dropout(0.1)(attended)])
        hidden = L.Dense(4 * width, activation="gelu")(L.LayerNormalization(epsilon=1e-6)(x))
        x = L.Add()([x, L.Dense(width)(hidden)])
    x = L.LayerNormalization(epsilon=1e-6)(x)
    outputs = L.Dense(VOCABULARY)(x) if causal else L.Dense(2)(L.GlobalAveragePooling1D()(x))
    return _randomize(K.Model(inputs, outputs)), tokens(length)


def tabular(K):
    K.utils.set_random_seed(0)
    L = K.layers
    numbers = K.Input((5,), name="numbers")
    category = K.Input((1,), dtype="int32", name="category")
    embedded = L.Flatten()(L.Embedding(7, 3)(category))
    x = L.Concatenate()([L.Normalization(mean=0.3, variance=2.0)(numbers), embedded])
    x = L.Dense(8, activation="selu")(x)
    x = L.LeakyReLU()(L.Dense(8)(x))
    model = K.Model({"numbers": numbers, "category": category}, {"score": L.Dense(1, activation="softplus")(x)})
    rng = np.random.default_rng(0)
    return model, {
        "numbers": rng.normal(size=(4, 5)).astype(np.float32),
        "category": rng.integers(0, 7, (4, 1)).astype(np.int32),
    }
