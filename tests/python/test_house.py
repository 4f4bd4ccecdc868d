"""The house keeps its order: rooms, format, sizes, documents in step. Each check has a control that must fail."""
import pathlib
import re
import shutil
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(*words):
    return subprocess.run([str(w) for w in words], capture_output=True, text=True, cwd=ROOT)


def sources():
    return [p for p in (ROOT / "src").rglob("*") if p.suffix in (".h", ".cpp")]


def test_rooms():
    done = run(ROOT / "tools/check_rooms")
    assert done.returncode == 0, done.stdout


def room_copy(tmp_path, edit):
    for room in (ROOT / "src").iterdir():
        (tmp_path / "src" / room.name).mkdir(parents=True)
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    edit(tmp_path)
    return run(ROOT / "tools/check_rooms", tmp_path)


def test_rooms_control_include(tmp_path):
    done = room_copy(tmp_path, lambda d: (d / "src/core/x.h").write_text('#include "train/loop.h"\n'))
    assert done.returncode == 1 and "core may not include train" in done.stdout


def test_rooms_control_link(tmp_path):
    def edit(d):
        (d / "src/core/x.h").write_text("\n")
        (d / "src/core/CMakeLists.txt").write_text("redline_room(core LIBRARIES redline_train)\n")
    done = room_copy(tmp_path, edit)
    assert done.returncode == 1 and "core may not link train" in done.stdout


def test_rooms_control_torch(tmp_path):
    done = room_copy(tmp_path, lambda d: (d / "src/measure/x.h").write_text("#include <torch/torch.h>\n"))
    assert done.returncode == 1 and "no torch header" in done.stdout


def test_rooms_control_folder(tmp_path):
    def edit(d):
        (d / "src/doctor/rules").mkdir()
        (d / "src/doctor/rules/x.h").write_text("\n")
        (d / "src/tune/x.cpp").write_text('#include "doctor/rules/x.h"\n')
    done = room_copy(tmp_path, edit)
    assert done.returncode == 1 and "doctor/rules/x.h is doctor's own" in done.stdout


def test_rooms_control_top(tmp_path):
    def edit(d):
        (d / "src/doctor/needed.h").write_text('#include "doctor/through.h"\n')
        (d / "src/doctor/through.h").write_text("\n")
        (d / "src/doctor/alone.h").write_text("\n")
        (d / "src/tune/x.cpp").write_text('#include "doctor/needed.h"\n')
        (d / "src/app/own.h").write_text("\n")
    done = room_copy(tmp_path, edit)
    assert done.returncode == 1 and "src/doctor/alone.h: no other room needs it" in done.stdout
    assert "needed.h" not in done.stdout and "through.h" not in done.stdout and "own.h" not in done.stdout


def test_format():
    done = run(ROOT / "tools/check_format")
    assert done.returncode == 0, done.stdout


def test_sizes():
    lines = sorted((len(p.read_text().splitlines()), p.relative_to(ROOT)) for p in sources())
    counts = [n for n, _ in lines]
    print(f"{len(counts)} files, median {statistics.median(counts)}, 90th percentile {counts[int(0.9 * len(counts))]}, largest {lines[-1]}")
    assert statistics.median(counts) < 150
    assert counts[int(0.9 * (len(counts) - 1))] < 400, [str(p) for n, p in lines if n >= 400]
    assert counts[-1] <= 800, lines[-1]
    assert len((ROOT / "src/app/main.cpp").read_text().splitlines()) < 100


def commands_in(path):
    blocks = re.findall(r"```(?:sh|bash)\n(.*?)```", (ROOT / path).read_text(encoding="utf-8"), re.S)
    return [line.split("#")[0].strip() for block in blocks for line in block.splitlines() if line.split("#")[0].strip()]


def test_readmes_have_the_same_commands():
    english, chinese = commands_in("README.md"), commands_in("README.zh-CN.md")
    assert english and english == chinese


def told_in(text):
    """What two languages have in common: where the links lead, what is in code letters in a table, the figures of the measurements."""
    text = text[text.index("## "):text.rindex("## ")]
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return {"links": sorted(set(re.findall(r"\]\(([^)]+)\)", text))), "rows": [re.findall(r"`[^`]+`", row) for row in rows],
            "figures": [re.findall(r"\d+\.\d+(?=×| –|\)|）)", row) for row in rows]}


def test_readmes_say_the_same():
    english, chinese = [(ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh-CN.md")]
    assert told_in(english) == told_in(chinese)
    # Controls: a row of the table, a link and a figure that only one of them has.
    row = next(line for line in chinese.splitlines() if line.startswith("| `launch`"))
    for wrong in (chinese.replace(row + "\n", ""), chinese.replace("](docs/lift_splat.md)", ""), chinese.replace("4.3×", "4.8×")):
        assert told_in(english) != told_in(wrong)


def test_links_in_documents_exist():
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).exists(), f"{document.name} points at {target}"


def test_room_table_of_the_architecture_is_the_checked_one():
    table = dict(re.findall(r"^\| `(\w+)` \|.*\| ([^|]*) \|$", (ROOT / "ARCHITECTURE.md").read_text(), re.M))
    rooms = dict(line.split(":") for line in (ROOT / "tools/rooms.txt").read_text().splitlines() if line and line[0] != "#")
    assert set(table) == set(rooms)
    for room, allowed in rooms.items():
        assert re.findall(r"\w+", table[room]) == (allowed.split() or []) or table[room].strip() == "-", room


def batch_path(text):
    """The numbered files of ARCHITECTURE.md: number, file under src, function, number of its caller or ''."""
    return re.findall(r"^(\d+)\. `([\w/.]+)` `(\w+)`(?: \(from (\d+)\))?:", text, re.M)


def problems_of_the_path(entries):
    text = {file: re.sub(r"//.*", "", (ROOT / "src" / file).read_text()) if (ROOT / "src" / file).is_file() else None for _, file, _, _ in entries}
    files = {number: file for number, file, _, _ in entries}
    for place, (number, file, function, caller) in enumerate(entries, 1):
        if int(number) != place:
            yield f"{number} stands in place {place}"
        if text[file] is None:
            yield f"{file} does not exist"
        elif not re.search(rf"^\S.*\b{function}\(|\b{function}\([^;{{]*\) override {{", text[file], re.M):
            yield f"{file} does not define {function}"
        if caller and (int(caller) >= place or not re.search(rf"\b{function}\b", text[files[caller]] or "")):
            yield f"{files.get(caller)} does not call {function} of {file}"


def test_the_life_of_a_batch_is_the_one_in_the_code():
    entries = batch_path((ROOT / "ARCHITECTURE.md").read_text())
    assert len(entries) >= 33
    assert list(problems_of_the_path(entries)) == []
    # Controls: a file that is gone, a function that lives elsewhere, a caller that does not call.
    gone = [("1", "data/gone.cpp", "open", "")]
    elsewhere = [("1", "data/workers/collate.cpp", "split_step", "")]
    silent = [("1", "data/plan/plan.cpp", "epoch", ""), ("2", "data/workers/collate.cpp", "collate", "1")]
    for wrong in (gone, elsewhere, silent):
        assert list(problems_of_the_path(wrong)), wrong


def test_no_kind_of_data_is_told_by_its_name():
    compared = re.compile(r"[!=]= \"(audio|parquet|images|tensors)\"|\bsource_kind\b")
    assert compared.search('if (kind == "audio")')
    for path in sources():
        if not path.name.endswith("_test.cpp"):
            found = compared.search(re.sub(r"//.*", "", path.read_text()))
            assert not found, f"{path.relative_to(ROOT)}: {found.group(0)}"


def test_a_room_shows_few_files():
    """What other rooms may include stands on top of `data`; the rest is in folders."""
    assert len([p for p in (ROOT / "src/data").iterdir() if p.is_file()]) <= 30


def test_models_draw_only_from_the_context():
    forbidden = re.compile(r"torch::(dropout|rand\w*|normal|bernoulli|multinomial)\b|at::(dropout|rand\w*|bernoulli)\b|\bDefaultCPUGenerator|nn::Dropout")
    assert forbidden.search("torch::dropout(x)")
    for path in (ROOT / "src/models").rglob("*"):
        if path.suffix in (".h", ".cpp") and not path.name.endswith("_test.cpp"):
            found = forbidden.search(re.sub(r"//.*", "", path.read_text()))
            assert not found, f"{path.relative_to(ROOT)}: {found.group(0)}"


def test_answers_become_text_in_one_place():
    """nlohmann's dump() throws on bytes that are no UTF-8, such as those of a path; app/json_text.h replaces them."""
    for path in (ROOT / "src/app").rglob("*.cpp"):
        assert ".dump(" not in path.read_text(), f"{path.name}: use json_text()"


def test_only_one_place_removes_folders():
    """Whole folders go only through core/own_folder, which looks for redline's mark; tests may clear what they made."""
    forbidden = re.compile(r"\bremove_all\b|\brmtree\b|\bnftw\b|rm -rf")
    assert forbidden.search("std::filesystem::remove_all(path, ignored);")
    for path in [*sources(), *(ROOT / "python").rglob("*.py")]:
        if path.name.endswith("_test.cpp") or "testing" in path.parts or re.search(r"testing|test_files|test_state|simulated_disk", path.name):
            continue
        found = forbidden.search(re.sub(r"//.*", "", path.read_text()))
        assert not found, f"{path.relative_to(ROOT)}: {found.group(0)}"


def unread_rows(files):
    """Option rows whose member nobody reads: neither outside its table nor beside its declaration."""
    code = {path: re.sub(r'//[^\n]*|"(?:[^"\\\n]|\\.)*"', "", text) for path, text in files.items()}
    rows = {member for text in files.values() for _, member in re.findall(r'\badd\(\s*(?:"[^"]+"|k\w+),\s*&(\w+)::(\w+)', text)}
    reads = {member: 0 for member in rows}
    for path, text in code.items():
        for match in re.finditer(r"\b\w+\b", text):
            if match.group() not in reads or text[max(0, match.start() - 2):match.start()] == "::":
                continue
            line = text[text.rfind("\n", 0, match.start()) + 1:match.start()]
            declares = path.endswith(".h") and "(" not in line and re.match(r"\s*(std::|bool|int|double|config::|\w+ = |\w+(Config|Options) )", line)
            reads[match.group()] += not declares
    return sorted(member for member, count in reads.items() if count == 0)


def product_files():
    return {str(p.relative_to(ROOT)): p.read_text(encoding="utf-8") for p in sources() if "_test" not in p.name and "testing" not in p.parts}


def test_every_option_is_read():
    files = product_files()
    assert unread_rows(files) == ["pos_emb_max_len"]  # NeMo's name; docs/speech.md says that it limits nothing here
    files["src/train/x.h"] = "struct X {\n  bool never_looked_at = false;\n};\n"
    files["src/train/x.cpp"] = 't.add("never_looked_at", &X::never_looked_at, "Nobody reads never_looked_at.");\n'
    assert "never_looked_at" in unread_rows(files)


def test_a_row_is_named_once():
    named = [path for path, text in product_files().items() if re.search(r'"(?:[a-z_.]+\.)?num_workers(?: x [a-z_]+)?"', text)]
    assert named == ["src/data/option_names.h"], "its constant: data::kNumWorkers"
