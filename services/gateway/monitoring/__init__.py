"""What the gateway measures: metrics, queues, its own loop, and a snapshot of the fleet for those who look on.

No HTTP; views and routes show it.
"""
