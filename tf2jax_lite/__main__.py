"""``python -m tf2jax_lite`` is ``tf2jax-lite``."""

from tf2jax_lite.cli import main

if __name__ == "__main__":
    main()
