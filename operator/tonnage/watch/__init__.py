"""The kopf application: which event wakes which key. The only room that knows kopf.

kopf starts and ends the process and watches what users write. It decides nothing and keeps nothing:
handlers other than `on.event` would write annotations and finalizers to users' objects. What there
are tens of thousands of is watched by followers of our own.
"""
