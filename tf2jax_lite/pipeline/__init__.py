"""The driver: import, verify, passes, plan, call.

`convert` is the entry behind `tf2jax_lite.api`: it calls the frontend and the passes in order and wraps the result.
`converted_function` is what users call, `model_files` converts files, `inspect_model` says what converts. The only
package that imports both `frontend` and `lowering`, but for the edges that tests/test_arrows.py lists.
"""
