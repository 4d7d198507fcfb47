"""The work queue: priorities, fairness between namespaces, and delays."""
