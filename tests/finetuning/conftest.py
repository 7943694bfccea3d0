"""The model, its artifact and the data of the tests of artifacts."""

from tests.artifacts.conftest import artifact, converted, keras_file

__all__ = ["artifact", "converted", "keras_file"]
