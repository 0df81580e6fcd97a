"""What is here: devices, model files, what fits, and running fleets as their files and cards tell.

Reads only; starts nothing but the child that lists devices.
"""
