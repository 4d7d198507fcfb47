"""The loop of one object: observe, plan, execute, report.

`reconciler` runs the loop. `observe` reads the object, its children and its model into an
`observation`; `plan` decides what to do, as data; `execute` writes it; `report` writes status and
Events. The parts of a plan follow each other, and each imports only those before it: the spec is
accepted (`accept`), the load read (`autoscaling`), the replicas placed (`scheduling`, by what
`calibration` knows), then rolled out once a person has approved it where that is asked for
(`rollout`), and reported (`status`), next to the `integrations`.
"""
