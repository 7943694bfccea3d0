import pytest
import tensorflow as tf

import tf2jax_lite
from tf2jax_lite.errors import ConfigError


def test_tensorflow_sees_no_gpu_afterwards(monkeypatch):
    asked = []
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda devices, kind: asked.append((devices, kind)))
    tf2jax_lite.hide_gpu_from_tensorflow()
    assert asked == [([], "GPU")]


def test_initialized_gpus_raise(monkeypatch):
    def initialized(devices, kind):
        raise RuntimeError("Visible devices cannot be modified after being initialized")

    monkeypatch.setattr(tf.config, "set_visible_devices", initialized)
    with pytest.raises(ConfigError, match="before TensorFlow computes anything"):
        tf2jax_lite.hide_gpu_from_tensorflow()
