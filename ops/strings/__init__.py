"""String ops on static strings and on padded byte arrays.

`string_ops` has the value of traced strings, `hashing` FarmHash64, MurmurHash64A and SipHash-2-4, `host_evaluation`
string ops that TensorFlow may evaluate at conversion, with bounds of the sizes of their results.

Never imports TensorFlow.
"""

from . import string_ops  # noqa: F401
