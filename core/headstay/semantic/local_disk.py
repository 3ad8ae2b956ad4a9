"""Is a path on a network? SQLite's write-ahead log needs memory that all its processes share, so one machine."""

from pathlib import Path

_MOUNTS = Path("/proc/self/mounts")  # Linux; elsewhere the question stays open
# fuse.* names a program behind a userspace mount; only those that reach over a network are here
_NETWORK = frozenset(
    (
        *(
            "9p",
            "afs",
            "beegfs",
            "ceph",
            "cifs",
            "davfs",
            "gfs2",
            "glusterfs",
            "gpfs",
            "lustre",
            "nfs",
            "nfs4",
            "ocfs2",
        ),
        *("orangefs", "prl_fs", "smb2", "smb3", "smbfs", "vboxsf", "vmhgfs", "fuse.ceph", "fuse.davfs", "fuse.gcsfuse"),
        *("fuse.glusterfs", "fuse.juicefs", "fuse.mountpoint-s3", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
        "fuse.vmhgfs-fuse",
    )
)


def network_filesystem(path: Path, mounts: str | None = None) -> str | None:
    """Return the type of the network filesystem that a path lies on, or None where it is local or not known.

    Args:
        path: A file or folder; it need not exist yet.
        mounts: The mount table, in the form of `/proc/self/mounts`; None reads this machine's.
    """
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape") if mounts is None else mounts
        place = path.resolve()
    except (OSError, RuntimeError):  # no mount table here, or a link in a circle: opening the file will tell
        return None
    best: tuple[int, str] = (0, "")
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = Path(_unescaped(fields[1]))
        # a later mount on the same point hides the earlier one
        if place.is_relative_to(point) and len(point.parts) >= best[0]:
            best = (len(point.parts), fields[2])
    return best[1] if best[1] in _NETWORK else None


def _unescaped(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text
