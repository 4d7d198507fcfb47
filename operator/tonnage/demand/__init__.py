"""Computes the replicas that the load needs, from engines' metrics. Pure.

Reading order: `signals` (measurements by pod), `conventions` (defaults of other autoscalers),
`terms` (targets and bounds of the spec), `curve` (how concurrent requests slow each other down),
`capacity` (concurrent requests of a replica), `needs` (replicas by target), `opinion` (the result,
or why there is none), `window` (past recommendations that still count), `step` (the next number of
replicas).
"""
