"""Deployment with Argo CD, and what it and Flux see of an object."""
