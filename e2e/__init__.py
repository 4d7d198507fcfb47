"""A real control plane without containers, for tests and demonstrations.

etcd, kube-apiserver, kube-controller-manager, kube-scheduler and KWOK run as plain processes on
loopback ports; GPU nodes are KWOK nodes with the labels that the vendors' labellers write. Nothing
here knows the operator: it is tested from outside, as a cluster would run it.
"""
