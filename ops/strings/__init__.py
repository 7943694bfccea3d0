"""String ops on padded byte arrays, and those that TensorFlow evaluates at conversion.

`string_ops` first; `hashing` has FarmHash64, MurmurHash64A and SipHash-2-4; `host_evaluation` lists the ops that
TensorFlow may evaluate at conversion, with bounds of their results' sizes. TensorFlow itself is never imported.
"""

from . import string_ops  # noqa: F401
