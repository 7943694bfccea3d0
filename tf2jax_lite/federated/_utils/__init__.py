"""Helpers of all subpackages.

Each module is an entry. Read in this order:
  validation: checks of options.
  user_functions: errors that name a user's function.
  placement: arrays on one device.
  fractions: exact shares of counts.

Must not import other subpackages of `federated`.
"""
