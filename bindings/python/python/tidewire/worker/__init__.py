"""A worker of `tidewire bench` with this package's client: `python -m tidewire.worker`.

It speaks the worker contract (docs/worker-contract.md) on its standard streams.
"""
