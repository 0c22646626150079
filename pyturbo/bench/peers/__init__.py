"""Compare pyturbo with other engines on the same weights, in the same run and with as many threads.

Each engine, a contender, runs in a process of its own that is loaded and warmed up first. They take turns,
round after round, so that other load on the machine affects all of them; the result is the median ratio.
"""
