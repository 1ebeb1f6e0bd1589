"""milrec beside other libraries: one task, done in each, in an environment of its own, and judged alike.

`python -m experiments.peers --data DATA --out FOLDER` does it, and `python -m experiments.peers.page` writes the tables
of docs/peers.md. A library's file has its MODELS, `fit` and `lists`: that is the task. What else it can do is tried out
by `list_of_allowed`, `list_without`, `list_for_newcomer` and `save`; a function that is not there is something that the
library does not offer.
"""
