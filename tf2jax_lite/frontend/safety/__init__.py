"""What is refused of an untrusted file before TensorFlow or Keras reads it.

`unsafe_ops` lists ops that run code or touch files, `load_time_ops` what TensorFlow would run on load,
`checkpoint_index` and `raw_protos` read bytes that nobody has verified, `keras_config` finds code in Keras files.
"""
