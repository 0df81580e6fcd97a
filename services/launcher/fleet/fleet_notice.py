"""What a fleet announces about itself in its network. Pure."""

from dataclasses import dataclass

from services.launcher.fleet import ports


@dataclass(frozen=True, slots=True, order=True)
class AnnouncedFleet:
    """A fleet that announces itself: its Redis is at `host` and `port`, its gateway at `gateway`."""

    name: str
    host: str
    port: int
    model: str = ""
    version: str = ""
    gateway: int = 0

    def url(self) -> str:
        """The address of its Redis, without credentials."""
        return f"redis://{ports.in_url(self.host)}:{self.port}/0"

    def __str__(self) -> str:
        model = f" serves {self.model}," if self.model else ""
        return f"{self.name}{model} Redis at {ports.in_url(self.host)}:{self.port}"
