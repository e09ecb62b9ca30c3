"""Files that are never half-written, and that one process at a time writes to; their records."""

import contextlib
import errno
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec


@contextlib.contextmanager
def atomic_replace(target: Path) -> Iterator[Path]:
    """Give a name to write to, which takes the place of a file when that has worked.

    The name has the ending of the file, for writers that go by it. An OSError leaves the file as it
    is; devices and pipes are refused by one: to rename over them would take them away from every
    other program.
    """
    if target.exists() and not (target.is_file() or target.is_dir()):
        raise OSError(errno.EINVAL, "it is no regular file")
    temporary = target.with_name(f".{target.stem}.{secrets.token_hex(8)}{target.suffix}")
    try:
        yield temporary
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


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
