"""The machine around the loop: the queue of keys, its workers, what is known of the fleet, health.

Nothing here knows what an InferenceDeployment is; nothing here knows kopf.
"""
