"""`draftmesh doctor`."""

from services.launcher.settings.doctor_options import DoctorOptions


def doctor(options: DoctorOptions) -> int:
    """Check Redis, devices, models and vocabularies, and measure whether speculation pays here."""
    from services.launcher.forecast.doctor import run

    return run(options)
