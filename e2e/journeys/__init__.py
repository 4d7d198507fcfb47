"""What users do, from `kubectl apply` to pods, on a real control plane. Each journey is a test."""
