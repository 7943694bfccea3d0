"""FedJAX's own tests, run on this library through its documented renamings."""
