#!/usr/bin/env bash
# Is this tree fit to be released? Builds sdist and wheel, looks for the package's data in the wheel, installs it in a new
# virtual environment (with what is installed here as its dependencies), and uses it from another folder. Then compiles
# the sources with every other Python that is here.
#   tools/check_release.sh            needs: pip install build hatchling
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=${PYTHON:-python}

"$python" -m build --no-isolation --outdir "$work/dist" "$root" > "$work/build.log" 2>&1 || { tail -n 30 "$work/build.log"; exit 1; }
wheel=$(ls "$work"/dist/*.whl)
sdist=$(ls "$work"/dist/*.tar.gz)

"$python" - "$root" "$wheel" "$sdist" <<'PY'
import sys, tarfile, zipfile
from pathlib import Path
root, wheel, sdist = map(Path, sys.argv[1:])
inside = set(zipfile.ZipFile(wheel).namelist())
source = root / "src"
wanted = {p.relative_to(source).as_posix() for p in (source / "calgrad").rglob("*") if p.is_file() and "__pycache__" not in p.parts}
missing = sorted(wanted - inside)
assert not missing, f"the wheel lacks {missing}"
kinds = ("recipes/*.yaml", "examples/*.npz", "paper/published/*.csv", "report/page/*", "py.typed")
for kind in kinds:
    assert any(Path(name).match(f"calgrad/{kind}") for name in inside), f"no {kind} in the wheel"
packed = {"/".join(name.split("/")[1:]) for name in tarfile.open(sdist).getnames()}
assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "src/calgrad/__init__.py"} <= packed, "the sdist is incomplete"
print(f"{wheel.name}: {len(inside)} files, {wheel.stat().st_size / 1e6:.1f} MB; {sdist.name}: {sdist.stat().st_size / 1e6:.1f} MB")
PY

# --system-site-packages would see the interpreter's, not this environment's: a .pth file lends the dependencies instead.
for built in "$wheel" "$sdist"; do
    rm -rf "$work/venv"
    "$python" -m venv "$work/venv"
    site=$("$work/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    "$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$site/dependencies.pth"
    "$work/venv/bin/pip" install -q --no-deps --no-index --no-build-isolation --force-reinstall "$built"
    cd "$work"
    "$work/venv/bin/python" - "$work/venv" <<'PY'
import sys
import calgrad
from calgrad.recipes import load_recipe
assert calgrad.__file__.startswith(sys.argv[1]), f"imported from {calgrad.__file__}"
assert load_recipe("digits")
PY
    "$work/venv/bin/calgrad" --version
    "$work/venv/bin/calgrad" evaluate example-test --bootstrap 0 | tail -n 1
    "$work/venv/bin/calgrad" paper list > /dev/null
done

for other in python3.11 python3.12 python3.13 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[123]*/bin/python; do
    if "$other" --version > /dev/null 2>&1; then
        PYTHONPYCACHEPREFIX="$work/pyc" "$other" -W error -m compileall -q "$root/src" "$root/examples"
        echo "$("$other" --version): compiles"
    fi
done
echo "release: ok"
