"""Models of the standard data sets, as FedJAX has them, in Flax.

As there, their functions take and return plain pytrees of params. They need Flax (extra: flax). Convolutional and
dense networks are for EMNIST, recurrent ones for Shakespeare and Stack Overflow. Source: fedjax.models; Reddi et al.
2020, McMahan et al. 2017.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from tf2jax_lite.learning import metrics
from tf2jax_lite.learning.model import Model
from tf2jax_lite.learning.process import ModelWeights
from tf2jax_lite.learning.sources import create_model_from_flax
from tf2jax_lite.support.errors import MissingLibraryError

__all__ = [
    "create_char_lstm_model",
    "create_conv_model",
    "create_dense_model",
    "create_logistic_model",
    "create_lstm_model",
]

PAD, BOS, EOS = 0, 1, 2
"""Labels that tokenizers of this package reserve."""


def _linen() -> Any:
    try:
        import flax.linen
    except ImportError as error:
        raise MissingLibraryError("federated.models needs Flax: pip install 'tf2jax-lite[flax]'.") from error
    return flax.linen


def _of_params(model: Model) -> Model:
    """Return a model of trainable weights alone as one of plain params."""

    def of(params: Any) -> ModelWeights:
        return ModelWeights(params, {})

    return dataclasses.replace(
        model,
        init=lambda key: model.init(key).trainable,
        apply_for_train=lambda params, batch, rng=None: model.apply_for_train(of(params), batch, rng).predictions,
        apply_for_eval=lambda params, batch: model.apply_for_eval(of(params), batch),
    )


def _classifier(call: Callable[[Any, Any, bool], Any], shape: tuple[int, ...]) -> Model:
    """Return a model of classes by ``(linen, x, train) -> logits``, compact."""
    nn = _linen()

    class Network(nn.Module):
        @nn.compact
        def __call__(self, x: Any, train: bool) -> Any:
            return call(nn, x, train)

    def loss(batch: Mapping[str, Any], logits: Any) -> Any:
        return metrics.sparse_categorical_crossentropy(batch["y"], logits)

    model = create_model_from_flax(
        Network(),
        {"x": np.zeros((1, *shape), np.float32), "y": np.zeros(1, np.int32)},
        loss,
        {"accuracy": metrics.Accuracy()},
        train_kwargs={"train": True},
        eval_kwargs={"train": False},
    )
    return _of_params(model)


def _classes(only_digits: bool) -> int:
    return 10 if only_digits else 62


def create_conv_model(only_digits: bool = False) -> Model:
    """Create the convolutional network for EMNIST, with Dropout.

    Args:
      only_digits: 10 classes instead of 62.
    """

    def call(nn: Any, x: Any, train: bool) -> Any:
        x = nn.relu(nn.Conv(32, (3, 3), padding="VALID")(x))
        x = nn.relu(nn.Conv(64, (3, 3), padding="VALID")(x))
        x = nn.Dropout(0.25, deterministic=not train)(nn.max_pool(x, (2, 2), strides=(2, 2)))
        x = nn.relu(nn.Dense(128)(x.reshape(x.shape[0], -1)))
        return nn.Dense(_classes(only_digits))(nn.Dropout(0.5, deterministic=not train)(x))

    return _classifier(call, (28, 28, 1))


def create_dense_model(only_digits: bool = False, hidden_units: int = 200) -> Model:
    """Create a network of two hidden layers for EMNIST.

    Args:
      only_digits: 10 classes instead of 62.
      hidden_units: of each hidden layer.
    """

    def call(nn: Any, x: Any, train: bool) -> Any:
        x = x.reshape(x.shape[0], -1)
        for _ in range(2):
            x = nn.relu(nn.Dense(hidden_units)(x))
        return nn.Dense(_classes(only_digits))(x)

    return _classifier(call, (28, 28, 1))


def create_logistic_model(only_digits: bool = False) -> Model:
    """Create logistic regression for EMNIST.

    Args:
      only_digits: 10 classes instead of 62.
    """
    return _classifier(lambda nn, x, train: nn.Dense(_classes(only_digits))(x.reshape(x.shape[0], -1)), (28, 28, 1))


def _language_model(
    vocab_size: int,
    embed_size: int,
    hidden_size: int,
    layers: int,
    *,
    projects: bool,
    shares: bool,
    special: tuple[int, int, int],
    scale: Callable[[Any], Any],
) -> Model:
    """Return an LSTM over tokens.

    Args:
      vocab_size: number of words, without the special labels.
      embed_size: of a token.
      hidden_size: of a layer.
      layers: number of layers.
      projects: whether a dense layer follows each, to the size of embeddings.
      shares: whether the output's weights are the embeddings.
      special: the labels of the begin and the end of a sentence, and of other words.
      scale: from the tokens' losses (n, tokens) to the sentences'.
    """
    nn, size = _linen(), vocab_size + 4
    bos, eos, oov = special
    # The end is not guessed, and a guess of another word is a mistake.
    mask = tuple(-np.inf if label in (PAD, bos, eos, oov) else 0.0 for label in range(size))

    class Network(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            embed = nn.Embed(size, embed_size)
            x = embed(x)
            for _ in range(layers):
                x = jnp.tanh(nn.RNN(nn.OptimizedLSTMCell(hidden_size))(x))
                x = nn.Dense(embed_size)(x) if projects else x
            if shares:
                return embed.attend(x) + self.param("bias", nn.initializers.zeros, (size,))
            return nn.Dense(size)(x)

    def loss(batch: Mapping[str, Any], logits: Any) -> Any:
        losses = metrics.sparse_categorical_crossentropy(batch["y"], logits)
        return scale(jnp.where(batch["y"] == PAD, 0, losses))

    padding, without = (PAD,), (PAD, eos)
    found = {
        "accuracy_in_vocab": metrics.SequenceTokenAccuracy(masked_target_values=without, logits_mask=mask),
        "accuracy_no_eos": metrics.SequenceTokenAccuracy(masked_target_values=without),
        "num_tokens": metrics.SequenceTokenCount(masked_target_values=padding),
        "sequence_length": metrics.SequenceLength(masked_target_values=padding),
        "sequence_loss": metrics.SequenceCrossEntropyLoss(masked_target_values=padding),
        "token_loss": metrics.SequenceTokenCrossEntropyLoss(masked_target_values=padding),
        "token_oov_rate": metrics.SequenceTokenOOVRate(masked_target_values=padding, oov_target_values=(oov,)),
        "truncation_rate": metrics.SequenceTruncationRate(masked_target_values=padding, eos_target_value=eos),
    }
    sample = np.zeros((1, 1), np.int32)
    return _of_params(create_model_from_flax(Network(), {"x": sample, "y": sample}, loss, found))


def create_lstm_model(
    vocab_size: int = 10_000,
    embed_size: int = 96,
    lstm_hidden_size: int = 670,
    lstm_num_layers: int = 1,
    share_input_output_embeddings: bool = False,
    expected_length: float | None = None,
) -> Model:
    """Create the LSTM over words for Stack Overflow. See fedjax.models.stackoverflow.

    Args:
      vocab_size: number of words, without the special labels of `StackoverflowTokenizer`.
      embed_size: of a word.
      lstm_hidden_size: of a layer.
      lstm_num_layers: number of layers.
      share_input_output_embeddings: whether the output's weights are the embeddings.
      expected_length: a sentence's loss is the sum of its words' losses, divided by this if given.
    """
    return _language_model(
        vocab_size,
        embed_size,
        lstm_hidden_size,
        lstm_num_layers,
        projects=True,
        shares=share_input_output_embeddings,
        special=(BOS, EOS, vocab_size + 3),
        scale=lambda losses: jnp.sum(losses, axis=-1) / (expected_length or 1.0),
    )


def create_char_lstm_model(
    vocab_size: int = 86, embed_size: int = 8, lstm_hidden_size: int = 256, lstm_num_layers: int = 2
) -> Model:
    """Create the LSTM over characters for Shakespeare. See fedjax.models.shakespeare.

    Args:
      vocab_size: number of characters, without the special labels of `shakespeare_sequences`.
      embed_size: of a character.
      lstm_hidden_size: of a layer.
      lstm_num_layers: number of layers.
    """
    return _language_model(
        vocab_size,
        embed_size,
        lstm_hidden_size,
        lstm_num_layers,
        projects=False,
        shares=False,
        special=(BOS, EOS, vocab_size + 3),
        scale=lambda losses: jnp.mean(losses, axis=-1),
    )
