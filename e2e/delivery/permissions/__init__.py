"""Who may do what: the operator, tenants, and people with the roles of Kubernetes."""
