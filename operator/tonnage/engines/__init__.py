"""Renders what an engine needs of a pod: arguments, image, environment, lifetimes.

`replica` is the input; `defaults` and `quantity` are shared with the rest of the pod template.
"""
