"""What is here: devices, model files, what fits, and running fleets, from their files and cards.

Reads only; starts nothing but the child that lists devices.
"""
