"""The eval harness: its manifests, judges, reports, and what it says of a target that is breached."""
