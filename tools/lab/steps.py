"""What a run is made of: steps, and the setups that they need."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Setup:
    """A target as a step needs it. Steps that follow each other with equal setups share one started target."""

    target: str
    volume_bytes: int
    volumes: int = 1
    # Options of the target over those of its variant, as pairs.
    options: tuple = ()
    # The rate of each node's line, in tc's notation; None: everything on the loopback.
    rate: str | None = None
    # Every volume is written over its whole length before the first step.
    fill: bool = True
    written_share: float = 1.0

    @property
    def label(self):
        """The target with what sets this setup apart from others of it."""
        words = [self.target, *(f"{name}={value}" for name, value in self.options)]
        return " ".join(words)


@dataclass(frozen=True)
class Step:
    """One measurement. `action` gets a Live and returns what is noted; `seconds` is how long it is expected to take.

    Steps of one `session` (its part, and the round where each round starts targets anew) may share a started target.
    """

    experiment: str
    part: str
    setup: Setup
    test: str
    round: int
    seconds: float
    action: Callable = field(compare=False, repr=False)
    shared_by_rounds: bool = False

    @property
    def session(self):
        return (self.experiment, self.part, 0 if self.shared_by_rounds else self.round)

    @property
    def key(self):
        """Names the step within its experiment's settings."""
        return f"{self.experiment}/{self.part}/{self.setup.label}/{self.test}/{self.round}"
