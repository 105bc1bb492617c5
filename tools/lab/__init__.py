"""The lab: published storage experiments, repeated on this machine for Azekura and for its peers.

The tour: `plan` says what to run and how long, `experiments/` turn it into steps, `targets/` are the systems that the
steps run against, `runner` runs the steps that `results` does not have yet, `report/` shows published and measured
figures together.
"""
