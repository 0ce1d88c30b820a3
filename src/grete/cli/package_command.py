"""`grete package build|verify|show`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from grete.cli.options import add_common_options
from grete.cli.output import print_json, print_table
from grete.errors import PackageError
from grete.text_logs import printable

if TYPE_CHECKING:
    from grete.packages.build import Built
    from grete.packages.manifest import Manifest
    from grete.packages.verify import Verified

_FACTS = ("kind", "grete", "python", "platform", "libc", "digest", "lock")


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    actions = parser.add_subparsers(dest="action", required=True)
    build = actions.add_parser("build", help="make an environment that runs wherever it is unpacked")
    build.add_argument("kind", choices=("api", "framework", "application"), help="which environment")
    build.add_argument(
        "--into", type=Path, required=True, metavar="DIR", help="where its folder and archive go"
    )
    build.add_argument("--lock", type=Path, metavar="FILE", help="packages with versions and hashes")
    build.add_argument("--python", type=Path, help="the interpreter to copy (default: this one)")
    build.add_argument(
        "--application", type=Path, metavar="DIR", help="the folder of the application's modules"
    )
    build.set_defaults(run=_build)
    verify = actions.add_parser("verify", help="is a package what its manifest says; do several fit together")
    verify.add_argument("packages", nargs="+", type=Path, metavar="PACKAGE", help="a folder or a .tgz")
    verify.add_argument("--digest", help="what the only package has to have")
    verify.set_defaults(run=_verify)
    show = actions.add_parser("show", help="versions and hashes of a package")
    show.add_argument("packages", nargs="+", type=Path, metavar="PACKAGE", help="a folder or a .tgz")
    show.add_argument("--files", action="store_true", help="each file as well")
    show.set_defaults(run=_show)
    for sub in (build, verify, show):
        add_common_options(sub)


def _build(options: argparse.Namespace) -> int:
    built = _built(options)
    if options.output == "json":
        print_json({"folder": str(built.folder), "archive": str(built.archive), **_facts(built.manifest)})
    else:
        print(
            f"{printable(str(built.folder))}\n{printable(str(built.archive))}\ndigest {built.manifest.digest}"
        )
    return 0


def _built(options: argparse.Namespace) -> Built:
    from grete.packages.build import build_api, build_application, build_framework, default_python

    if options.kind == "api":
        _refuse(options, "lock", "python", "application")
        return build_api(options.into)
    if options.lock is None:
        raise PackageError(
            f"name the packages of the {options.kind} with --lock FILE; an empty file for none"
        )
    python = options.python or default_python()
    if options.kind == "framework":
        _refuse(options, "application")
        return build_framework(options.into, options.lock, python)
    if options.application is None:
        raise PackageError("name the folder of the application's modules with --application DIR")
    return build_application(options.into, options.lock, python, options.application)


def _refuse(options: argparse.Namespace, *names: str) -> None:
    for name in names:
        if getattr(options, name) is not None:
            raise PackageError(f"--{name} means nothing for the {options.kind} package; leave it out")


def _verify(options: argparse.Namespace) -> int:
    from grete.packages.verify import skew, verify

    if options.digest is not None and len(options.packages) > 1:
        raise PackageError("--digest is that of one package; verify the others apart")
    found = [verify(package, digest=options.digest) for package in options.packages]
    apart = skew([each.manifest for each in found if each.manifest is not None])
    if options.output == "json":
        print_json({"packages": [_verified(each) for each in found], "skew": list(apart)})
    else:
        for each in found:
            _print_verified(each)
        for line in apart:
            print(f"FAIL  {printable(line)}")
    return 1 if apart or any(each.problems for each in found) else 0


def _verified(found: Verified) -> dict[str, object]:
    facts = _facts(found.manifest) if found.manifest else {}
    return {"package": str(found.where), "ok": not found.problems, "problems": list(found.problems), **facts}


def _print_verified(found: Verified) -> None:
    digest = found.manifest.digest if found.manifest else "-"
    print(f"{'FAIL' if found.problems else 'ok  '}  {printable(str(found.where))}  {digest}")
    for problem in found.problems:
        print(f"      {printable(problem)}")


def _show(options: argparse.Namespace) -> int:
    from grete.packages.verify import read_manifest

    manifests = [read_manifest(package) for package in options.packages]
    if options.output == "json":
        print_json([_document(each, files=options.files) for each in manifests])
        return 0
    rows = [[name, *(_facts(each)[name] for each in manifests)] for name in (*_FACTS, "files", "bytes")]
    names = sorted({name for each in manifests for name in each.requirements})
    rows += [[name, *(each.requirements.get(name) for each in manifests)] for name in names]
    print_table(("", *(str(package) for package in options.packages)), rows)
    if options.files:
        for each in manifests:
            print_table(
                ("sha256", "bytes", "file"), [[e.sha256, e.bytes, n] for n, e in sorted(each.files.items())]
            )
    return 0


def _facts(manifest: Manifest) -> dict[str, object]:
    facts: dict[str, object] = {name: str(getattr(manifest, name)) for name in _FACTS}
    return {**facts, "files": len(manifest.files), "bytes": manifest.bytes}


def _document(manifest: Manifest, *, files: bool) -> dict[str, object]:
    document = {**_facts(manifest), "requirements": dict(manifest.requirements)}
    if files:
        document["hashes"] = {name: entry.sha256 for name, entry in manifest.files.items()}
    return document
