"""The storm: real workers and a real PostgreSQL under every fault that we could think of, and what must hold."""
