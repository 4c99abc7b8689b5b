"""Health probes for GPU nodes. They use the rest of the package; nothing of it uses them."""
