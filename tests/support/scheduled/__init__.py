"""An app whose code declares the schedules that a test wants: start it with other variables for another version."""
