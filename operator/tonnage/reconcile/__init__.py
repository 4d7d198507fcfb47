"""The loop of one object: observe, plan, execute, report.

`reconciler` runs the loop. `observe` reads the object, its children and its model; `plan` decides
what to do, as data; `execute` writes it; `report` writes status and Events. The other packages are
parts of the plan: `scheduling`, `rollout`, `approval`, `autoscaling`, `calibration`,
`integrations`, and the `status` that results.
"""
