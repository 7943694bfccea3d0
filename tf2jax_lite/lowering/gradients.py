"""tf.custom_gradient: an IdentityN node whose gradient TensorFlow replaced."""
