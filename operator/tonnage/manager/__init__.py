"""The kopf application, and which event enqueues which key. Only this package imports kopf.

kopf starts and ends the process and watches the kinds that users write. It decides nothing and
stores nothing: handlers other than `on.event` would write annotations and finalizers to users'
objects. Reflectors watch the kinds that have tens of thousands of objects.
"""
