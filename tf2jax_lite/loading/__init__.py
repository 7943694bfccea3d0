"""TensorFlow in, ir out: the only part of the library that imports TensorFlow."""
