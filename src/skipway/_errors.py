"""Every error skipway raises on purpose: one line that says where, what came, what was wanted and what to do next."""


class SkipwayError(Exception):
    """Base of all errors of the package; its text is one line for a person."""


class TargetError(SkipwayError):
    """A command-line target cannot be turned into a model and inputs."""


class TraceError(SkipwayError):
    """The model's forward could not be recorded."""


class NeedsDataError(TraceError):
    """The forward branches on values, so it cannot run without real weights and inputs."""


class UsageError(SkipwayError, ValueError):
    """An argument has the wrong type or a value outside its set."""


class WiringError(SkipwayError, AssertionError):
    """Raised by `assert_wired`; its text is the report."""


class SchemeError(UsageError):
    """A scheme is unknown, or was given an option, a depth, a width or a branch that it cannot work with."""


class ShapeMismatch(SkipwayError, ValueError):
    """A branch gave something that cannot be added to the stream as it is."""


class StudyError(UsageError):
    """A study file, a task, a variant or an option of a comparison is not one that can be run."""


class StoreError(SkipwayError):
    """The folder of a study cannot be used: it is held by another process, damaged, full, or no study."""


class RewireError(SkipwayError):
    """An edit cannot be planned, or the running code no longer does what the plan expects."""


class CheckpointError(SkipwayError):
    """A checkpoint folder cannot be read or written as it is."""


class ArchitectureNotPublished(SkipwayError):
    """The architecture was never published, so nobody can build it."""
