"""Write docs/gallery.md from records: `python -m benchmarks.render_gallery`."""

from __future__ import annotations

from collections.abc import Sequence

from . import tables
from .gallery import RESULTS
from .render import ROOT, read
from .tables import Record

PAGE = ROOT / "docs" / "gallery.md"
TEXT = """# Gallery

Models of public packages, converted without a change of their code. The error is the largest difference between
TensorFlow's results and those of the converted function under `jax.jit`, relative to the largest magnitude of the
result. Weights are random, with a fixed seed.

{table}
{times}
Measured with {versions} on a CPU, {days}.
`python -m benchmarks.gallery --times` repeats the measurements, and `python -m benchmarks.render_gallery` writes this
page from [its records](../benchmarks/results/gallery.jsonl). [benchmarks/gallery.py](../benchmarks/gallery.py) has the
code for each model.

## Packages

{packages}
"(SavedModel)": the Keras 2 model is saved, and its signature converted. "(jax2tf)": `jax2tf` brings the package's JAX
model to TensorFlow first. Such graphs hold StableHLO, which [becomes JAX again](stablehlo.md).
[Performance](guides/performance.md) has more models, with their times.

## Convert one of them

```python
import keras
import numpy as np
import tensorflow as tf
import tf2jax_lite as tf2jax

model = keras.applications.MobileNetV3Small(weights=None)  # "imagenet" downloads trained weights
jax_fn, params = tf2jax.convert(model, tf.TensorSpec([None, 224, 224, 3], tf.float32))
images = np.zeros((1, 224, 224, 3), np.float32)
np.testing.assert_allclose(jax_fn(params, images)[0], model(images), rtol=1e-4)
```
"""
PACKAGES = {
    "keras": "https://keras.io/api/applications",
    "tf_keras": "https://github.com/keras-team/tf-keras",
    "tensorflow-probability": "https://www.tensorflow.org/probability",
    "dm-haiku": "https://dm-haiku.readthedocs.io",
    "flax": "https://flax.readthedocs.io",
}


def _size(count: int) -> str:
    """Return a number of params in units for people."""
    for unit, name in ((10**6, " M"), (10**3, " k")):
        if count >= unit:
            return f"{count / unit:.1f}{name}"
    return str(count) if count else "none"


def page(records: Sequence[Record]) -> str:
    """Return the page's text.

    Args:
      records: those of `benchmarks.gallery`.
    """
    timed = any("times" in r for r in records)
    header = ("model", "package", "kind", "params", "error", *(["time / TensorFlow's"] if timed else []))
    rows = [
        (
            r["source"].rpartition(".")[2],
            r["package"],
            r["kind"],
            _size(r["params"]),
            f"`{r['error']:.0e}`" if r["error"] else "0",
            *([tables.ratio(r.get("ratios", {}).get("tensorflow"))] if timed else []),
        )
        for r in records
    ]
    packages = {r["package"]: (f"[{r['package']}]({PACKAGES[r['package']]})", r["version"], []) for r in records}
    for r in records:
        packages[r["package"]][2].append(f"`{r['source'].rpartition('.')[0]}`")
    versions = sorted({f"JAX {r['versions']['jax']} and TensorFlow {r['versions']['tensorflow']}" for r in records})
    days = sorted({r["day"] for r in records})
    return TEXT.format(
        table=tables.table(header, rows),
        times="A time is the ratio of median times of calls, in turns." if timed else "Times are not measured yet.",
        versions="; ".join(versions),
        days=" to ".join(dict.fromkeys((days[0], days[-1]))),
        packages=tables.table(
            ("package", "version", "modules"),
            [(name, version, ", ".join(dict.fromkeys(modules))) for name, version, modules in packages.values()],
        ),
    )


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(read([RESULTS])))


if __name__ == "__main__":
    main()
