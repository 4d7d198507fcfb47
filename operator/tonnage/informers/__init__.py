"""A cache of the API server's objects: reflectors fill stores, and reconciles read them.

`store` and `expectations` hold objects, `reflector` lists and watches one kind, `stores` is the set
of all kinds, and `resync` compares the stores with lists at intervals.
"""
