"""Files that are never half-written, and that one process at a time writes to; their records."""

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from treeproof.errors import InvalidInput


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], what: str = "The run file") -> Iterator[IO[bytes]]:
    """Open a file that takes the place of another when everything is written and on disk.

    An error leaves the other as it is; `what` the user knows it as is for its sentence. Devices and
    pipes are refused: to rename over them would take them away from every other program.
    """
    try:
        # Links stay links: what they point at is replaced.
        target = Path(path).resolve()
        if target.exists() and not (target.is_file() or target.is_dir()):
            raise OSError(errno.EINVAL, "it is no regular file")
    except (OSError, ValueError) as error:  # a name that is none is a ValueError
        raise unwritable(path, error, what) from error
    temporary = target.with_name(f".{target.stem}.{secrets.token_hex(8)}{target.suffix}")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        raise unwritable(path, error, what) from error
    finally:
        with contextlib.suppress(OSError):  # a read-only system says so even of what is not there
            temporary.unlink()


def unwritable(
    path: str | os.PathLike[str], error: Exception, what: str = "The run file"
) -> InvalidInput:
    """Return the error for a file that the system does not let us write."""
    reason = getattr(error, "strerror", None) or error
    return InvalidInput(f"{what} '{path}' cannot be written: {reason}.")


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Keep out all others that ask for the same file; raises TimeoutError where one is there.

    The lock is held on a file beside it. What a killed process leaves of it locks nothing.
    """
    from filelock import FileLock  # slow to import, and only writers of runs need it

    target = path.resolve()
    lock = FileLock(target.with_name(f".{target.name}.lock"), thread_local=False)
    lock.acquire(blocking=False)
    try:
        yield
    finally:
        # While it is held: who opens it later gets a new one. Windows keeps it, which is harmless.
        with contextlib.suppress(OSError):
            Path(lock.lock_file).unlink()
        lock.release()


def prepare_records(*kinds: Any) -> None:
    """Make records known to msgspec, where they are defined and so in one thread.

    msgspec works out what a type is when it is first used, and crashes where two threads do so at
    once.
    """
    for kind in kinds:
        msgspec.json.Decoder(kind)
