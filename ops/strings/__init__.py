"""String ops on static strings and on padded byte arrays.

Read in this order:

- `byte_strings`: the value of traced strings, conversion of static ones;
- `string_ops`: formatting, joining, length, hash buckets, fingerprint;
- `hashing`: FarmHash64, MurmurHash64A and SipHash-2-4;
- `host_evaluation`: string ops that TensorFlow may evaluate at conversion, with bounds of the sizes of their results.

Never imports TensorFlow.
"""

from . import string_ops  # noqa: F401
