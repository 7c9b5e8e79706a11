"""Lint rules on residual wiring, one a file: the docstring is what `skipway explain` prints, `check` finds, `bad` and `good` show.

A member has CODE, STAGE ("graph", "values" or "train"), SEVERITY (the highest it gives), `check(facts)`, `bad()` and `good()`. Where an edit of the
join mends what it finds, `mend(where, values)` gives the steps after `skipway.rewire(model, ...)` for one finding, or None.
"""
