"""pyturbo beside other programs on the same weights, in the same run and with as many threads.

Machines are noisy, so nothing is measured alone: every contender lives in a process of its own that is loaded
and warm, they are asked in turns, round after round, and what counts is the median of each round's ratio.
"""
