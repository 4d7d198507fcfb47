"""How many replicas the load asks for, from what vLLM measures. Pure.

In reading order: `signals` (what was measured, pod by pod), `conventions` (what other autoscalers
do), `terms` (what the user asks for), `curve` (how requests slow down each other), `capacity`
(requests that a replica holds at once), `needs` (replicas by target), `opinion` (what follows, or
why nothing does), `window` (recommendations of the past that still count), `step` (the number that
is wanted next).
"""
