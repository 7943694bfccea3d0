"""Artifacts over HTTP, with the REST forms of KServe V2 and TensorFlow Serving.

Entry: `artifacts.serve.serve_artifact`.

Read in this order:
  function: a function of an artifact, compiled for padded batches, and checks of the arrays of a request.
  batching: joins concurrent requests to batches.
  requests: bodies to arrays, results to bodies, with the limits of requests.
  http: the routes, statuses and metrics (Starlette).

Requests are untrusted: all checks of their form are in `requests`, those of arrays in `function`. Must not import
TensorFlow, the converter (`frontend`, `lowering`) or `cli`.
"""
