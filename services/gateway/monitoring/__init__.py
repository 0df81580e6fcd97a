"""What the gateway measures: metrics, queues, its own event loop, and snapshots of the fleet for watchers.

No HTTP; views and routes show it.
"""
