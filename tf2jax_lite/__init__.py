"""Convert TensorFlow functions and SavedModels to JAX.

Importing this package imports neither TensorFlow nor JAX: each name loads what it needs when it is first used, so that
``tf2jax-lite --help`` answers at once. Without TensorFlow, which is an extra, functions that need it raise
`MissingLibraryError` when they are called.
"""

import functools
import importlib
from typing import TYPE_CHECKING, Any

from .errors import MissingInputError, MissingLibraryError, Tf2JaxError
from .support.config import get_config, override_config, set_names, update_config

if TYPE_CHECKING:
    from .artifacts.export_tf import export_to_tf
    from .calling.params import (
        Variable,
        VariableName,
        flatten_params,
        merge_params,
        nest_params,
        split_params,
    )
    from .calling.tabulate import tabulate
    from .export import export_functions, load, load_host
    from .export.hub import push_to_hub
    from .export.nnx import to_nnx
    from .frontend.runtime.gpu_memory import hide_gpu_from_tensorflow
    from .ops.registry import override_op, register_op
    from .pipeline.convert import (
        convert,
        convert_from_restored,
        convert_functional,
        convert_functional_from_restored,
        convert_graph_def,
        convert_saved_model,
    )
    from .pipeline.converted_function import AnnotatedFunction
    from .stablehlo.api import from_stablehlo
    from .verification import verify

_LAZY = {
    "AnnotatedFunction": ".pipeline.converted_function",
    "convert": ".pipeline.convert",
    "convert_from_restored": ".pipeline.convert",
    "convert_functional": ".pipeline.convert",
    "convert_functional_from_restored": ".pipeline.convert",
    "convert_graph_def": ".pipeline.convert",
    "convert_saved_model": ".pipeline.convert",
    "export_functions": ".export",
    "export_to_tf": ".artifacts.export_tf",
    "load": ".export",
    "load_host": ".export",
    "push_to_hub": ".export.hub",
    "to_nnx": ".export.nnx",
    "hide_gpu_from_tensorflow": ".frontend.runtime.gpu_memory",
    "Variable": ".calling.params",
    "VariableName": ".calling.params",
    "flatten_params": ".calling.params",
    "merge_params": ".calling.params",
    "nest_params": ".calling.params",
    "split_params": ".calling.params",
    "tabulate": ".calling.tabulate",
    "override_op": ".ops.registry",
    "register_op": ".ops.registry",
    "from_stablehlo": ".stablehlo.api",
    "verify": ".verification",
}

__all__ = [
    "AnnotatedFunction",
    "MissingInputError",
    "Tf2JaxError",
    "Variable",
    "VariableName",
    "convert",
    "convert_from_restored",
    "convert_functional",
    "convert_functional_from_restored",
    "convert_graph_def",
    "convert_saved_model",
    "export_functions",
    "export_to_tf",
    "flatten_params",
    "from_stablehlo",
    "get_config",
    "hide_gpu_from_tensorflow",
    "load",
    "load_host",
    "merge_params",
    "nest_params",
    "override_config",
    "override_op",
    "push_to_hub",
    "register_op",
    "split_params",
    "tabulate",
    "to_nnx",
    "update_config",
    "verify",
]


def _names(*modules: str) -> Any:
    found = [importlib.import_module(module, __name__) for module in modules]
    return {name for m in found for name in m.NAMES}, {name for m in found for name in getattr(m, "REQUIRED", ())}


for _option, _modules in (
    ("passes", (".passes.manager", ".lowering.planning.rewrites", ".lowering.scan_opt")),
    ("xla_cpu_rules", (".xla_cpu.catalog",)),
):
    set_names(_option, functools.partial(_names, *_modules))


def _unavailable(name: str, reason: str) -> Any:
    """Return a function in place of one whose library is not installed.

    ``from tf2jax_lite import *`` and `help` work without the library.
    """

    def function(*args: Any, **kwargs: Any) -> Any:
        raise MissingLibraryError(reason)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Raise `MissingLibraryError`: {reason}"
    return function


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module(".support.extras", __name__).installed_version()
    if name == "xla_cpu":
        return importlib.import_module(".xla_cpu", __name__)
    if name in _LAZY:
        try:
            return getattr(importlib.import_module(_LAZY[name], __name__), name)
        except MissingLibraryError as error:
            return _unavailable(name, str(error))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
