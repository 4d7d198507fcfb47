"""What production clusters do to pods, for the cluster in memory.

Messages, reasons and fields are those of Kubernetes 1.35, written as its source does. Each fault is
one call: a body for `Cluster.administer`, a webhook for `Cluster.webhooks`, or a behaviour of a
kubelet for `Cluster.behaviours`.
"""
