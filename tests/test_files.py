"""Files that are written whole or not at all."""

import errno
import os
import stat

import pytest

from levydiff.files import atomic_file


def test_write_and_replace(tmp_path):
    path = tmp_path / "a.txt"
    for text in ("first", "second"):
        with atomic_file(path) as temporary:
            assert temporary.parent == tmp_path and temporary.suffix == ".txt" and temporary.read_bytes() == b""
            temporary.write_text(text)
            assert path.exists() is (text == "second")  # nothing is seen under the name before the end
        assert path.read_text() == text
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("error", [RuntimeError("no"), KeyboardInterrupt(), FileNotFoundError(2, "an input")])
def test_an_exception_leaves_the_target_alone(tmp_path, error):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(type(error)) as caught, atomic_file(path) as temporary:  # noqa: PT012
        temporary.write_text("half")
        raise error
    assert caught.value is error  # the body's own errors are not reworded
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["a.txt"]


def test_synced_before_it_takes_its_name_and_the_folder_after(tmp_path, monkeypatch):
    events = []
    fsync, replace = os.fsync, os.replace

    def spy_fsync(handle):
        events.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def spy_replace(source, target):
        events.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", spy_fsync)
    monkeypatch.setattr(os, "replace", spy_replace)
    with atomic_file(tmp_path / "a") as temporary:
        temporary.write_text("x")
    assert events == ["file", "replace", "folder"]


def test_full_disk(tmp_path):
    # A real refusal by the operating system: the size limit on files, 4 kB here.
    resource = pytest.importorskip("resource")
    path = tmp_path / "a.bin"
    path.write_text("old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OSError, match="cannot write a.bin in folder") as caught, atomic_file(path) as temporary:
            temporary.write_bytes(bytes(10_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.errno == errno.EFBIG and str(tmp_path) in str(caught.value)
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["a.bin"]


@pytest.mark.parametrize("call", ["open", "fsync", "replace"])
@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_refusals_name_the_folder(tmp_path, monkeypatch, call, number):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def refuse(*args, **kwargs):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        with pytest.raises(OSError, match=f"cannot write a.txt in folder {tmp_path}: ") as caught:  # noqa: PT012
            if call == "open":
                patch.setattr(os, call, refuse)
            with atomic_file(path) as temporary:
                temporary.touch()
                patch.setattr(os, call, refuse)
        assert caught.value.errno == number
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_folder(tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(PermissionError, match="in folder"), atomic_file(tmp_path / "a.txt"):
            pass
    finally:
        tmp_path.chmod(0o700)


def test_missing_folder_and_folder_as_target(tmp_path):
    missing = tmp_path / "none"
    with pytest.raises(FileNotFoundError, match=f"a.txt in folder {missing}"), atomic_file(missing / "a.txt"):
        pass
    with pytest.raises(IsADirectoryError, match="path must name a file"), atomic_file(tmp_path):
        pass


def test_permissions_are_kept(tmp_path):
    path = tmp_path / "a.txt"
    with atomic_file(path) as temporary:
        temporary.write_text("x")
    (tmp_path / "usual").touch()
    assert path.stat().st_mode == (tmp_path / "usual").stat().st_mode
    path.chmod(0o640)
    with atomic_file(path) as temporary:
        temporary.write_text("y")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_link_and_long_name(tmp_path):
    real, link = tmp_path / ("n" * 251 + ".txt"), tmp_path / "link"
    real.write_text("old")
    link.symlink_to(real)
    with atomic_file(link) as temporary:
        temporary.write_text("new")
    assert link.is_symlink() and real.read_text() == "new"
