"""What the API server says, kept and indexed: reflectors fill stores, and reconciles read them.

`expectations` and `store` hold objects, `reflector` lists and watches one kind, `stores` is the set
of all kinds, and `resync` verifies the stores against lists now and then.
"""
