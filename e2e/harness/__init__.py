"""The control plane of tests: its programs, processes, clients and the operator as a process."""
