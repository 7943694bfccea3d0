"""Fine-tuning of JAX models, centrally and by federated averaging. Names follow FedJAX and TensorFlow Federated."""
