"""One tree of errors for everything grete raises.

GreteError
├── ConfigError            the configuration is wrong; lists every problem at once
├── WireError              bytes that are not the format they claim to be
├── IllegalStateError      a call in the wrong order or a value that must not be blank
├── LogError               a keyed log or store could not do what was asked
│   ├── Fenced             a higher epoch owns the scope; this incarnation must end
│   ├── InDoubt            the append may or may not be durable; resolve it before anything else
│   ├── LoginRefused       the servers do not let us in: user, password, certificate
│   ├── LogCorrupted       the stored bytes fail their hash chain or structure
│   ├── StorageFull        no space; reads still work, nothing was half written
│   └── UnsafeStorage      the file system or SQLite build cannot keep the promises
├── CoordinationError
│   ├── HeldByOther        another process leads; names the holder
│   ├── LeadershipLost     we led and no longer do
│   └── SteppedDown        we led, and were asked to let another coordinator lead
├── StreamError            an input or output system
│   ├── StreamNotFound
│   └── OffsetOutOfRange   the offset asked for is gone or not there yet; carries the range
│       └── OffsetsRemoved retention has removed what was not processed
├── CoordinatorUnavailable the job coordinator's HTTP server did not answer in time
├── JobError               a job could not be started, stopped or continued
│   ├── JobNotFound        there is no such job, or no submit of it has succeeded
│   ├── ApplicationError   the application cannot be loaded, or its plan cannot be built
│   │   └── StateDoesNotFit   Spark's state is damaged, or of another plan than the pipeline's
│   ├── ApplicationGone    the application's own process has ended; its share begins again
│   ├── ManagerUnreachable a cluster manager did not answer
│   ├── FilesUnreachable   a file system of Hadoop's did not answer, as one that has lineages
│   ├── ContainerGone      a share has lost its connection to its container, and begins again
│   └── ProcessingError    a message could not be processed; names task, SSP and offset
│       └── ExpectationFailed   it does not meet what its task expects
├── PackageError           an environment cannot be built, or is not what its manifest says
└── MissingExtra           an optional dependency is not installed

Messages say what was attempted, on what, and the way out.
"""

from __future__ import annotations

from collections.abc import Sequence


class GreteError(Exception):
    """Base of every error grete raises on purpose. `exit_code` is what the command line ends with.

    `may_pass`: a store or a process did not answer, and the same may work when it is back, without intervention.
    """

    exit_code = 1
    may_pass = False


class ConfigError(GreteError):
    """The configuration is wrong. `problems` holds every problem found, not only the first."""

    exit_code = 2

    def __init__(self, *problems: str) -> None:
        self.problems: tuple[str, ...] = problems
        super().__init__("\n".join(problems))


class WireError(GreteError):
    """Bytes are not what their format says."""


class IllegalStateError(GreteError):
    """Called in the wrong order, or a value that must be present is blank."""


class LogError(GreteError):
    """A keyed log could not do what was asked; nothing was half done."""


class LogNotFound(LogError):
    """The log does not exist, and was not to be made."""


class Fenced(LogError):
    """The scope has seen a higher epoch: this incarnation must stop acting and end."""

    exit_code = 5

    def __init__(self, scope: str, *, epoch: int, seen: int) -> None:
        self.scope = scope
        self.epoch = epoch
        self.seen = seen
        super().__init__(
            f"epoch {epoch} of {scope!r} is fenced: epoch {seen} has taken over; this process must end"
        )


class LogUnreachable(LogError):
    """The store gave no answer in time. Nothing was done."""

    may_pass = True


class CheckpointsMoved(LogError):
    """Another run or epoch of this container has begun or committed since this one read its checkpoints.

    Nothing was written.

    The container reads them again and goes on from there.
    """

    may_pass = True


class InDoubt(LogError):
    """The append failed in a way that leaves open whether it is durable.

    Ask `KeyedLog.resolve(append_id)` (after reopening if the log is closed) before appending again. `may_pass` when
    the answer was lost with a connection, and not with a disk.
    """

    def __init__(self, append_id: str, cause: str, *, may_pass: bool = False) -> None:
        self.append_id = append_id
        self.may_pass = may_pass
        super().__init__(f"append {append_id} is in doubt ({cause}); resolve it before writing again")


class LoginRefused(LogError):
    """The servers do not let us in, or we do not trust them. The message names the system and the keys to check."""


class LogCorrupted(LogError):
    """Stored bytes fail their hash chain or structure. The message names file and offset."""


class StorageFull(LogError):
    """The disk is full. Everything acknowledged before is readable."""


class UnsafeStorage(LogError):
    """The file system or the SQLite build cannot keep the log's promises."""


class CoordinationError(GreteError):
    """Leader election, lock or membership failed."""


class HeldByOther(CoordinationError):
    """Another process holds the leadership: `holder`.

    `may_be_dead`: it has not been seen to renew since we first looked, and nothing else shows whether it lives.
    """

    exit_code = 4

    def __init__(self, scope: str, holder: str, *, may_be_dead: bool = False) -> None:
        self.scope = scope
        self.holder = holder
        self.may_be_dead = may_be_dead
        super().__init__(f"{scope} is held by {holder}")


class IdTaken(CoordinationError):
    """There is a member of this id, and it may be alive."""

    exit_code = 4

    def __init__(self, id: str, holder: str) -> None:
        self.id = id
        self.holder = holder
        super().__init__(
            f"{id!r} is a member already: {holder}. Give each process an id of its own; one that died is succeeded "
            f"after its TTL"
        )


class MembersElsewhere(CoordinationError):
    """The job's other processors, one of which is `other`, are where this one cannot share it with them."""

    exit_code = 4

    def __init__(self, id: str, other: str, what: str) -> None:
        self.id = id
        self.other = other
        super().__init__(
            f"processor {id} cannot join: processor {other} of the job {what}. Processors of a job run on "
            f"one machine, in one network, with one GRETE_HOME, unless each has a processor.address: set it for "
            f"all of them, or start this one there, or stop the others first; one that died is forgotten after "
            f"job.coordinator.lease.ttl.ms"
        )


class CellChanged(CoordinationError):
    """A coordination cell was not written: another process has changed, made or removed it since it was read."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"coordination cell {name} has changed since it was read")


class CellTooLarge(CoordinationError):
    """A coordination cell was not written: the service holds no value of that size."""

    def __init__(self, name: str, size: int, largest: int, service: str) -> None:
        super().__init__(
            f"coordination cell {name} has {size} bytes, and {service} holds {largest} at most: keep it in a log, or "
            f"elect in a service that holds more (sqlite, azure)"
        )


class CoordinationUnreachable(CoordinationError):
    """The coordination service gave no answer in time. What was asked for may have been done."""

    may_pass = True


class LeadershipLost(CoordinationError):
    """We led this scope and no longer do; this incarnation must end."""

    exit_code = 5


class SteppedDown(CoordinationError):
    """We led, and were asked to let another coordinator lead; containers go on."""


class StreamError(GreteError):
    """An input or output system could not do what was asked."""


class StreamUnreachable(StreamError):
    """The system gave no answer in time. Nothing was done."""

    may_pass = True


class StreamNotFound(StreamError):
    """The stream does not exist in its system."""


class StreamRecreated(StreamError):
    """An input was deleted and made again under its name: offsets that were read or committed are of the old one."""


class OffsetOutOfRange(StreamError):
    """The offset asked for is not in the stream. The message carries the range that is there."""


class OffsetsRemoved(OffsetOutOfRange):
    """Retention has removed it before it was processed; `task.lost-offsets.policy` may go on without it."""


class CoordinatorUnavailable(GreteError):
    """The job coordinator did not answer."""


class ProcessorFailed(GreteError):
    """A stream processor has ended, since its container has."""

    def __init__(self, processor: str, failure: str) -> None:
        self.processor = processor
        super().__init__(
            f"processor {processor} has ended with its container: {failure}. Its tasks go to the other processors; "
            f"start another one once the cause is removed"
        )


class JobError(GreteError):
    """A job could not be started, stopped or continued."""


class JobNotFound(JobError):
    """There is no such job here, or no submit of it has succeeded."""


class ApplicationError(JobError):
    """The application cannot be loaded, or its plan cannot be built; trying again changes nothing."""


class StateDoesNotFit(ApplicationError):
    """A pipeline's state in Spark's checkpoint is damaged, of another plan, or of other offsets; says how."""


class ManagerUnreachable(JobError):
    """A cluster manager did not answer. What was asked for may have been done."""

    may_pass = True


class FilesUnreachable(JobError):
    """A file system of Hadoop's did not answer, as one that has lineages. Nothing was begun or given up."""

    may_pass = True


class MayStillCommit(JobError):
    """A share of a container that was lost could not be refused, since its store does not answer."""

    may_pass = True


class ContainerGone(JobError):
    """A share has lost its connection to its container. What it had not committed is processed again."""

    may_pass = True


class ApplicationGone(JobError):
    """The process that an application has for itself has ended. Nothing of the batch was committed."""

    may_pass = True


class ProcessingError(JobError):
    """A message could not be processed. The message names task, SSP and offset."""

    exit_code = 3


class ExpectationFailed(ProcessingError):
    """A message does not meet what its task expects. `sets_aside` says that it is to be a dead letter."""

    def __init__(self, message: str, *, sets_aside: bool = False) -> None:
        super().__init__(message)
        self.sets_aside = sets_aside


class PackageError(GreteError):
    """An environment cannot be built, or is not what its manifest says."""


class MissingExtra(GreteError):
    """An optional dependency is not installed; the message says which extra brings it."""

    exit_code = 2

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(f"{module} is not installed; install it with: pip install 'grete[{extra}]'")


def bullet_list(problems: Sequence[str]) -> str:
    """Problems as one text, a line each, for the terminal."""
    return "\n".join(f"  - {problem}" for problem in problems)
