"""The packages to install; pyproject.toml has all else.

The option ``package-dir`` makes `ops/` the package `tf2jax_lite.ops`. Discovery would find it by the link at
`tf2jax_lite/ops`, which source distributions and checkouts on Windows lack.
"""

from setuptools import find_packages, setup

setup(
    packages=[
        *find_packages(include=["tf2jax_lite", "tf2jax_lite.*"], exclude=["tf2jax_lite.ops", "tf2jax_lite.ops.*"]),
        "tf2jax_lite.ops",
        *(f"tf2jax_lite.ops.{name}" for name in find_packages("ops")),
    ]
)
