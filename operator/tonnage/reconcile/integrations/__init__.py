"""Objects of other projects, and optional objects: gateways, endpoints, pools, model sources."""
