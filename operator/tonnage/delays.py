"""How long the operator waits: every delay, interval and timeout that is not a setting.

All are in seconds. Delays that a user may change are in `controller/settings.py`; durations of a
spec, and their limits, belong to the spec.
"""

from typing import Final

# Batching: one reconcile or read handles events that arrive together.

BATCH: Final = 0.5
"""A write has several effects, such as a ReplicaSet, its pods and the status of a Deployment. Their
events arrive within this time, and one reconcile handles all of them."""

LOSS_BATCH: Final = 0.3
"""Nodes often fail several at a time. An object that lost GPUs is reconciled once."""

PROVISIONAL: Final = 10.0
"""A scheduler binds pods within seconds. If the pool is lost before that, the operator replaces a
placement no older than this at once, without waiting for `placement.fallback.after`."""

HEARTBEATS_BATCH: Final = 0.4
"""10,000 nodes report 33 times a second, and waking up for an event costs more CPU than reading it.
In a large cluster one read takes the events of nodes that arrive within this time."""

FLEET_BATCH: Final = 1.5
"""A node that comes up changes several times. Its pool is reported once."""

RESYNC_BATCH: Final = 1.0
"""Watches often restart together. One resync follows all of them."""

# Requeue: for what no watch reports.

REQUEUE_NOW: Final = 0.1
"""The next reconcile acts on the status that this one wrote."""

REQUEUE_LEFTOVER: Final = 2.0
"""The garbage collector is about to remove children of a deleted object of the same name."""

REQUEUE_SOURCE: Final = 15.0
"""The role does not allow a watch of ConfigMaps and Secrets, so the operator reads them again."""

ADAPTER_FACTS: Final = 60.0
"""The operator reads a ConfigMap with the facts of an adapter again after this time: a running pod
does not follow a change of it, and an object may have 128 of them."""

REQUEUE_UNWATCHED: Final = 30.0
"""The operator does not watch PriorityClasses, foreign objects that hold a name, and the kinds of
the Gateway API, so it reads again what is missing or taken."""

REQUEUE_FORBIDDEN: Final = 60.0
"""People change a role or a quota. A shorter interval only fills logs."""

UNSCHEDULABLE: Final = 120.0
"""A pod that the scheduler could not place for so long, though GPUs are free, has no GPUs reserved
until it has a node. So other objects get them within three minutes."""

LOST: Final = 150.0
"""The same for a pod whose node was deleted. The pod garbage collector deletes such a pod within a
minute (kubernetes pkg/controller/podgc), and their successors need GPUs."""

POD_REPORTS: Final = 120.0
"""After so long without all replicas ready, the operator reads an object's Failed pods, and the
Events of its pods without a container. A kubelet reports a volume that it cannot mount after two
minutes (kubernetes pkg/kubelet/volumemanager). No watch reports these, so it is also the time
between two reads."""

PROGRESS_DEADLINE: Final = 600
"""progressDeadlineSeconds of a Deployment that has none."""

RECENT_FAILURE: Final = 3600.0
"""A pod that failed longer ago explains nothing: its successor would have failed since."""

POD_REPORTS_CACHED: Final = 20.0
"""A pod that a kubelet rejects has a successor within a second, and each of them requeues."""

START_PHASES: Final = 30.0
"""After so long, the status reports the phase of a start, and the operator reads the log of the
starting container, at most once in this time. Shorter starts are over before that."""

START_LOG: Final = 3.0
"""One read of the log of a starting container. A kubelet that hangs must not delay a reconcile."""

# Retries.

FIRST_RETRY: Final = 0.2
LAST_RETRY: Final = 300.0
"""A key that keeps failing is retried after 0.2 s, 0.4 s, 0.8 s and so on, at most 5 minutes."""

JOB_RETRY: Final = 10.0
"""A periodic job that failed runs again after this time, whatever its period."""

START_UP_RETRY: Final = 15.0
LIST_RETRY: Final = 30.0
"""The longest pauses between two attempts to start, and between two attempts at a list."""

READ_RETRY: Final = 0.2
READ_RETRY_WITHIN: Final = 5.0
"""A failed read is retried once, after the first of these times or the server's Retry-After, and
only within the second."""

MAX_RETRY_AFTER: Final = 300.0
"""The longest Retry-After taken from an API server. A wrong header must not park a key."""

MAX_HUB_RETRY_AFTER: Final = 3600.0
"""The longest Retry-After taken from a Hub."""

HUB_FIRST_RETRY: Final = 30.0
HUB_LAST_RETRY: Final = 600.0
"""Between two attempts to read a model from the Hub, doubled each time."""

DOWNLOAD_RETRY: Final = 600.0
"""Between the failure of a Job that downloads weights, after the attempts of its own, and the next
Job."""

PREFETCH_RETRY: Final = 3600.0
"""The same for a Job that downloads to a node before a replica needs it: no request waits for it,
and a disk that is full stays full for long."""

PREFETCH_RENEWAL: Final = 72000.0
"""A Job that has brought the weights to a node is followed by another one on the same node, since
the files may have been deleted. It is shorter than the time after which such a Job expires: without
a Job, the node is chosen anew by its free GPUs."""

PREFETCH_CHECK: Final = 60.0
"""No event of a node that joins or leaves concerns an object without pods on it, so the operator
chooses the nodes to prefetch to again."""

POD_METRICS_RETRY: Final = 300.0
"""The operator asks a pod that gave no metrics again after this time: a NetworkPolicy may be the
reason."""

ADAPTER_FIRST_RETRY: Final = 15.0
ADAPTER_LAST_RETRY: Final = 300.0
"""Between two attempts to load the same adapters into a pod, doubled each time. A pod that gave no
list of its models is asked again after the first of these times."""

ADAPTER_PAUSE: Final = 2.0
"""Between two changes of the adapters of a pod that both succeed: a pod whose list does not follow
would get them in a loop."""

KOPF_BACKOFFS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, *[30.0] * 100_000)
"""Between attempts at one of kopf's requests. kopf ends the process after the last one, which helps
no replica in an outage that all share: these last for a month."""

KOPF_WORKER_IDLE: Final = 0.1
"""kopf has a task for each object with an event, and keeps it and the last event for this time. A
list of 5,000 objects must not be in memory as a whole."""

# Intervals of periodic work.

RESYNC: Final = 600.0
"""Between two resyncs. Each reconciles the objects that were planned before the fleet changed, and
a sixth of the others."""

VERIFY: Final = 600.0
"""Between two comparisons of the stores with lists."""

REPORT_FLEET: Final = 300.0
"""Between two reports on the pools, and between two reconciles of objects that wait for GPUs, where
nothing changes."""

CHECK_WATCHES: Final = 5.0
"""Between two checks that the watches deliver the operator's own writes."""

READ_FLEET_FILE: Final = 5.0
"""Between two reads of a fleet file. An unchanged file costs nothing."""

READ_CORRECTIONS: Final = 60.0
"""Between two reads of the ConfigMap of corrections."""

READ_PRIORITY_CLASSES: Final = 600.0
"""Between two lists of PriorityClasses, which the operator does not watch."""

READ_VOLUMES: Final = 600.0
"""Between two reads of a bound PersistentVolume, which the operator does not watch."""

REFRESH_MODEL: Final = 3600.0
"""Between two reads of a model whose revision is a branch or a tag."""

ADAPTER_REFRESH: Final = 300.0
"""Between two reads of the adapters of a pod that loads them while it runs: other clients may load
and unload them too."""

READ_CERTIFICATE: Final = 60.0
"""Between two reads of the certificate of the operator's server. cert-manager renews one weeks
before it expires."""

KEEP_ALLOWED: Final = 60.0
KEEP_REFUSED: Final = 10.0
"""How long the verdict on a token for /metrics counts. Prometheus scrapes every 15 to 60 s, and a
role that was just granted takes effect within the second."""

MEASURE_LAG: Final = 1.0
"""Between two measurements of the event loop's lag."""

# Timeouts.

REQUEST_TIMEOUT: Final = 30.0
"""One request to the API server. The deadline of a reconcile is a setting."""

CONNECT_TIMEOUT: Final = 10.0
"""A connection of kopf to the API server, until it is open."""

ACCESS_REVIEW_TIMEOUT: Final = 5.0
"""Each of the two requests that review a token for /metrics. A scrape times out after 10 s."""

CONFIG_MAP_TIMEOUT: Final = 10.0
LEASE_TIMEOUT: Final = 3.0
"""The same for the ConfigMap of corrections, and for the Lease, which must be renewed in time."""

WATCH_TIMEOUT: Final = 300
"""The API server ends a watch after this time. The next one continues where it ended."""

WATCH_SILENT: Final = 70.0
"""A watch that delivers nothing for this long is dead: the API server sends a bookmark every minute
(KEP-956). Some proxies forward nothing before the first of them."""

EVENT_DUE: Final = 10.0
"""A watch delivers an own write within milliseconds, and within seconds under load. After this time
the watch is suspect."""

LIST_EVENT_DUE: Final = 2.0
"""A watch delivers what a list shows within this time. In a large fleet the heartbeat of some node
is always on its way."""

EXPECTATION: Final = 300.0
"""No event is on its way for longer than this; ExpectationsTimeout of the ReplicaSet controller
(kubernetes pkg/controller/controller_utils.go)."""

FORGET_DENIAL: Final = 900.0
"""The operator uses each right that it needs every ten minutes or more often. A denial older than
this concerns an object that is gone."""

MAX_LAG: Final = 10.0
"""A call blocks an event loop that is this late, and only a restart helps."""

HUB_ANSWER: Final = 60.0
"""The body of one answer of the Hub. The timeout of a request counts for each read alone."""

POD_METRICS: Final = 3.0
"""The metrics of one pod. The operator asks all pods of a query at the same time."""

POD_MODELS: Final = 5.0
"""The list of models of one pod, and the removal of an adapter from that list."""

ADAPTER_LOAD: Final = 180.0
"""vLLM loads an adapter within seconds. From a Hub it downloads it first, and goes on with that
after this time."""

# Leader election.

LEASE: Final = 12.0
RENEW_DEADLINE: Final = 8.0
RENEW: Final = 2.0
"""A candidate sees a renewal up to 2.4 s late and takes over 12 s after that: within 15 s of the
last renewal, which client-go's 15 s, 10 s and 2 s exceed."""

# The end of the process.

END_EVENTS: Final = 2.0
"""For queued Events. Nothing depends on them."""

END_KOPF: Final = 5.0
"""For kopf, after all other work has ended."""

END_TASKS: Final = 5.0
"""For tasks that outlive the main one. What must end in order has ended before."""
