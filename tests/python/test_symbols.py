"""No library in the process may take a symbol of ours for its own, nor give us one: Arrow's libraries export a simdjson and an OpenSSL of
their own versions, and of two definitions of a name the dynamic linker lets the first serve everybody."""
import os
import pathlib
import re
import subprocess

import pytest

REDLINE = pathlib.Path(os.environ.get("REDLINE", "build/redline")).resolve()
SITE = next((REDLINE.parent.parent / ".venv/lib").glob("python3*/site-packages"))
# Names that Arrow's libraries export too, or did: JSON parsers, OpenSSL, xxHash.
SHARED = re.compile(r"simdjson|rapidjson|(^|\s)(EVP_|SHA256|OPENSSL_|CRYPTO_|XXH)")


def dynamic_symbols(path):
    """(kind, name) of each entry of the dynamic symbol table; kind U is one that another library gives."""
    lines = subprocess.run(["nm", "-D", str(path)], check=True, capture_output=True, text=True).stdout.splitlines()
    return [(line.split()[-2], line.split()[-1]) for line in lines if len(line.split()) >= 2]


def meeting(path):
    return [(kind, name) for kind, name in dynamic_symbols(path) if SHARED.search(name)]


def needed(path):
    text = subprocess.run(["readelf", "-d", str(path)], check=True, capture_output=True, text=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.+)\]", text)


def test_the_program_shares_no_symbol_with_arrow():
    assert dynamic_symbols(REDLINE), "the program has a dynamic symbol table"
    assert meeting(REDLINE) == []
    assert [name for name in needed(REDLINE) if re.match(r"lib(simdjson|crypto|ssl|xxhash)\.", name)] == []


def test_arrow_does_export_them_so_the_check_can_see_one():
    exported = [name for library in SITE.glob("pyarrow/lib*.so.*00") for kind, name in meeting(library) if kind in "TWVDBR"]
    assert any("simdjson" in name for name in exported) and any(name.startswith("EVP_") for name in exported)


@pytest.fixture
def small_program(tmp_path):
    def build(*options):
        source = tmp_path / "small.c"
        source.write_text('#include <openssl/sha.h>\nint main(void) { SHA256_CTX state; return SHA256_Init(&state) == 0; }\n')
        program = tmp_path / "small"
        subprocess.run(["gcc", str(source), "-o", str(program), *options], check=True, capture_output=True)
        return program

    return build


def test_the_check_sees_a_library_that_is_linked_the_usual_way(small_program):
    program = small_program("-lcrypto")
    assert ("U", "SHA256_Init") in [(kind, name.split("@")[0]) for kind, name in meeting(program)]
    assert any(name.startswith("libcrypto.") for name in needed(program))


def test_the_check_sees_an_archive_whose_symbols_are_not_kept_inside(small_program):
    # As the program is linked, with one of Arrow's libraries beside; then without keeping them inside.
    arrow = next(SITE.glob("pyarrow/libarrow.so.*00"))
    arrows, first = [str(arrow), f"-Wl,-rpath,{arrow.parent}"], ["-Wl,-u,SHA256_Init", "-l:libcrypto.a"]
    hidden = ["-Wl,--exclude-libs,libcrypto.a"]
    assert meeting(small_program("-rdynamic", *first, *hidden, *arrows)) == []
    assert meeting(small_program("-rdynamic", *first, *arrows)) != []  # exported, so libarrow's calls would land in ours


def test_arrows_own_json_code_is_bound_to_itself():
    """What the dynamic linker really does, for the program and its libraries."""
    ask = dict(os.environ, LD_DEBUG="bindings", LD_BIND_NOW="1")
    text = subprocess.run([str(REDLINE), "--version"], env=ask, capture_output=True, text=True, errors="replace").stderr
    bindings = re.findall(r"binding file (\S+) \[\d+\] to (\S+) \[\d+\]: normal symbol `(\S*simdjson\S*)'", text)
    assert bindings, "the linker reports bindings"
    assert {pathlib.Path(giver).name.split(".")[0] for _, giver, _ in bindings} <= {"libarrow", "libparquet"}
