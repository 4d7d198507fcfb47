"""What the cluster has: pools of nodes with the same accelerator, and each node's free GPUs.

`model` is the data; `fleet` updates it event by event. `nodes` reads Node and Pod objects,
`devices` recognizes accelerators, and `pools` groups nodes into pools. `dra` reads the devices that
drivers publish and claims hold, and `usage` counts the GPUs that pods hold and that replicas
reserve.
"""
