"""What the cluster has: pools of nodes with the same accelerator, and each node's free GPUs.

`model` is the data; `fleet` updates it event by event. `nodes` reads Node and Pod objects,
`devices` recognizes accelerators, `pools` groups nodes into pools, and `usage` counts the GPUs that
pods hold and that replicas reserve.
"""
