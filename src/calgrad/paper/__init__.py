"""The paper, reproduced: one command a table and a figure, ours beside the published number.

    published/*.csv   every number the paper prints, as printed
    records.py        runs as rows: what a run folder shows, small enough to commit
    tables.py         the tables that runs fill
    plan.py           the runs that a table still lacks, and what they cost
    items.py          the list of everything, with state, command and cost

A figure's module computes its data first (rows that are saved as CSV) and draws second, from those rows alone.
"""
