"""Data that cannot be reached."""

from pathlib import Path

import pytest

from tf2jax_lite.errors import DataError
from tf2jax_lite.training.datasets import open_clients


@pytest.mark.parametrize("name", ["clients.npz", "clients.sqlite", "clients.h5"])
def test_clients_in_a_folder_that_may_not_be_entered(monkeypatch, name):
    def refuse(path, **_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", refuse)  # root, as tests may run, is refused nothing
    with pytest.raises(DataError, match=f"{name} cannot be read: Permission denied"):
        open_clients(Path("somewhere") / name)
