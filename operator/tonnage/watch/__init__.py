"""The kopf application: which event wakes which key. The only room that knows kopf.

kopf starts and ends the process and multiplexes watches. It decides nothing and keeps nothing:
handlers other than `on.event` would write annotations and finalizers to users' objects.
"""
