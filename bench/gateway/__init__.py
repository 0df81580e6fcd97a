"""The gateway alone under load: many streams from a scripted target."""
