"""`python -m tidewire.bench`: the tests of `tidewire bench`, with messages that are made and looked at in Python.

It measures what a Python application gets: the load goes through `tidewire.connect`, in one process or in several, and
without a URL against a `tidewire.Server` in a process of its own. What is counted, how it is judged and what is written
is the load lab's: `docs/report-format.md`.
"""
