"""What the other folders rely on: the control plane, its nodes and pods, and simulated servers.

These tests come first: one waits a minute for the garbage collector of pods, and at the end all
others would wait for it.
"""
