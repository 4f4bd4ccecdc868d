"""Small files that ask for much, and files that change while they are read: each ends in a sentence that names it, in little memory."""
import json
import os
import pathlib
import struct
import subprocess
import tempfile
import threading
import time
import zlib

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
REDLINE = os.environ.get("REDLINE", str(ROOT / "build/redline"))
LIMIT_BYTES = 1 << 30


class Done:
    def __init__(self, code, text, usage):
        self.code, self.text, self.peak_bytes, self.cpu_seconds = code, text, usage.ru_maxrss * 1024, usage.ru_utime


def redline(*words, cwd, env=None):
    """Exit code, everything said and the peak of resident memory."""
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen([REDLINE, *map(str, words)], stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=cwd,
                                 env={**os.environ, **(env or {})})
        killer = threading.Timer(60, child.kill)
        killer.start()
        _, status, usage = os.wait4(child.pid, 0)
        killer.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        return Done(child.returncode, out.read().decode(errors="replace"), usage)


def bench(cwd, keys, workers=4, batches=2):
    (cwd / "job.yaml").write_text(keys)
    return redline("data", "bench", "job.yaml", "--workers", workers, "--batches", batches, cwd=cwd)


# --- Parquet -------------------------------------------------------------------------------------------------------------------
def zigzag(value):
    value, out = value << 1, b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def write_parquet(path, rows=None, values=None, lists=False):
    """A sound file of 64 rows, then its footer rewritten to promise other numbers (Thrift compact protocol: 0x16 is "the next field, i64")."""
    numbers = [list(range(i % 5 + 1)) for i in range(64)] if lists else list(range(64))
    pq.write_table(pa.table({"tokens": numbers}), path)
    group = pq.read_metadata(path).row_group(0)
    column = group.column(0)
    data = path.read_bytes()
    size = struct.unpack("<I", data[-8:-4])[0]
    body, footer = data[:-8 - size], data[-8 - size:-8]

    def patch(footer, old, new, after, before=b""):
        found = before + b"\x16" + zigzag(old) + after
        assert footer.count(found) == 1, footer.count(found)
        return footer.replace(found, before + b"\x16" + zigzag(new) + after)

    if rows is not None:
        footer = patch(footer, group.num_rows, rows, b"", b"\x16" + zigzag(group.total_byte_size))
    if values is not None:
        footer = patch(footer, column.num_values, values, b"\x16" + zigzag(column.total_uncompressed_size))
    path.write_bytes(body + footer + struct.pack("<I", len(footer)) + b"PAR1")


class PlainKms(pe.KmsClient):
    def __init__(self, _):
        super().__init__()

    def wrap_key(self, key, _):
        return key.hex()

    def unwrap_key(self, key, _):
        return bytes.fromhex(key)


def write_encrypted(path, plaintext_footer):
    factory = pe.CryptoFactory(PlainKms)
    settings = pe.EncryptionConfiguration(footer_key="footer", column_keys={"column": ["tokens"]}, plaintext_footer=plaintext_footer)
    keys = factory.file_encryption_properties(pe.KmsConnectionConfig(), settings)
    table = pa.table({"tokens": list(range(64))})
    with pq.ParquetWriter(path, table.schema, encryption_properties=keys) as writer:
        writer.write_table(table)


PARQUET = {
    "rows": (lambda path: write_parquet(path, rows=2**50), "promises 1125899906842624 rows"),
    "rows_and_values": (lambda path: write_parquet(path, rows=2**40, values=2**40), "promises 1099511627776 rows"),
    "rows_of_32_bits": (lambda path: write_parquet(path, rows=2**32 - 2, values=2**32 - 2), "promises 4294967294 rows"),
    "rows_of_lists": (lambda path: write_parquet(path, rows=2**50, lists=True), "promises 1125899906842624 rows"),
    "more_rows_than_values": (lambda path: write_parquet(path, rows=2**24), "sizes that cannot be"),
    "values": (lambda path: write_parquet(path, values=2**33, lists=True), "when decoded"),
    "values_of_a_column": (lambda path: write_parquet(path, values=2**27, lists=True), "when decoded"),
    "encrypted": (lambda path: write_encrypted(path, False), "encrypted"),
    "encrypted_columns": (lambda path: write_encrypted(path, True), "encrypted"),
}


@pytest.mark.parametrize("case", PARQUET)
def test_parquet(tmp_path, case):
    make, sentence = PARQUET[case]
    make(tmp_path / "hostile.parquet")
    done = bench(tmp_path, "path: hostile.parquet\nbatch_size: 8\nshuffle: true\n")
    assert done.code == 3, done.text
    assert "hostile.parquet" in done.text and sentence in done.text, done.text
    assert done.peak_bytes < LIMIT_BYTES, done.peak_bytes


def test_parquet_control(tmp_path):
    """The same writers without a lie; and data that is honest and compresses a thousandfold is read."""
    write_parquet(tmp_path / "a.parquet", rows=64, values=64)
    pq.write_table(pa.table({"tokens": pa.array(bytes(1 << 22), type=pa.uint8()).cast(pa.int64())}), tmp_path / "b.parquet")
    assert (tmp_path / "b.parquet").stat().st_size < 1 << 15
    done = bench(tmp_path, "path: .\nbatch_size: 8\nshuffle: true\n")
    assert done.code == 0, done.text


# --- audio ---------------------------------------------------------------------------------------------------------------------
def crc(data, bits, polynomial):
    value = 0
    for byte in data:
        value ^= byte << (bits - 8)
        for _ in range(8):
            value = (value << 1 ^ polynomial if value >> (bits - 1) else value << 1) & ((1 << bits) - 1)
    return value


def utf8_number(value):
    return bytes([value]) if value < 128 else chr(value).encode()


def write_flac(path, blocks, rate, total):
    """Blocks of 65,535 equal samples, 15 bytes each."""
    info = struct.pack(">HH", 65535, 65535) + bytes(6)
    info += ((rate << 44) | (0 << 41) | (15 << 36) | total).to_bytes(8, "big") + bytes(16)
    out = [b"fLaC\x80\x00\x00\x22" + info]
    for block in range(blocks):
        head = b"\xff\xf8\x7d\x08" + utf8_number(block) + struct.pack(">HH", 65534, rate)
        head += bytes([crc(head, 8, 0x07)])
        frame = head + b"\x00" + struct.pack(">h", 1000)
        out.append(frame + struct.pack(">H", crc(frame, 16, 0x8005)))
    path.write_bytes(b"".join(out))


def write_wav(path, frames, rate):
    path.write_bytes(b"RIFF" + struct.pack("<I", 36 + frames) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, rate, rate, 1, 8) + b"data" +
                     struct.pack("<I", frames) + b"\x80" * frames)


AUDIO = {
    "streamed": (lambda path: write_flac(path, 43, 255, 0), "max_duration: 16.7\n", "longer than max_duration (16.7 s)"),
    "streamed_without_limit": (lambda path: write_flac(path, 43, 255, 0), "", "max_buffer_bytes"),
    "streamed_67_GiB": (lambda path: write_flac(path, 1800, 255, 0), "", "max_buffer_bytes"),
    "counted": (lambda path: write_flac(path, 43, 255, 43 * 65535), "", "max_buffer_bytes"),
    "promised": (lambda path: write_flac(path, 43, 16000, 2**36 - 1), "", "cannot hold them"),
    "wav": (lambda path: write_wav(path, 3_000_000, 255), "", "max_buffer_bytes"),
    "wav_in_parts": (lambda path: write_wav(path, 9_000_000, 255), "", "more than the limit of"),
}


@pytest.mark.parametrize("case", AUDIO)
def test_audio(tmp_path, case):
    make, keys, sentence = AUDIO[case]
    make(tmp_path / "hostile.bin")
    for i in range(7):
        write_wav(tmp_path / f"good{i}.wav", 16000, 16000)
    names = [f"good{i}.wav" for i in range(7)] + ["hostile.bin"]
    (tmp_path / "manifest.json").write_text("".join(json.dumps({"audio_filepath": name}) + "\n" for name in names))
    done = bench(tmp_path, f"manifest_filepath: manifest.json\nbatch_size: 8\n{keys}")
    assert done.code == 0, done.text  # one of eight: a bad sample, named, with a substitute in its place
    assert "Bad sample hostile.bin: " in done.text and sentence in done.text, done.text
    assert done.peak_bytes < LIMIT_BYTES, done.peak_bytes


def test_audio_control(tmp_path):
    """A streamed FLAC of ordinary length is read, also when max_duration is set."""
    write_flac(tmp_path / "good.flac", 2, 16000, 0)
    (tmp_path / "manifest.json").write_text(json.dumps({"audio_filepath": "good.flac"}) + "\n")
    done = bench(tmp_path, "manifest_filepath: manifest.json\nbatch_size: 1\nmax_duration: 16.7\n")
    assert done.code == 0 and "Bad sample" not in done.text, done.text


@pytest.mark.parametrize("kind", ["wav", "flac"])
def test_audio_cut_while_it_is_read(tmp_path, kind):
    """A file that another process cuts short and restores over and over: bad samples, never SIGBUS."""
    path = tmp_path / "long.bin"
    if kind == "wav":
        write_wav(path, 40_000_000, 16000)
    else:
        write_flac(path, 2000, 16000, 2000 * 65535)
        path.write_bytes(path.read_bytes() + bytes(12 << 20))
    whole = path.read_bytes()
    for i in range(7):
        write_wav(tmp_path / f"good{i}.wav", 8000, 16000)
    names = ["long.bin"] * 20 + [f"good{i}.wav" for i in range(7)]
    (tmp_path / "manifest.json").write_text("".join(json.dumps({"audio_filepath": name, "duration": 40.0 if "long" in name else 0.5}) + "\n"
                                                    for name in names))
    (tmp_path / "job.yaml").write_text("manifest_filepath: manifest.json\nbatch_size: 4\nmax_bad_fraction: 1\nmin_audio_len_secs: 0\n")
    stop = threading.Event()

    def cut():
        with open(path, "r+b") as file:
            while not stop.is_set():
                file.truncate(70_000)
                time.sleep(0.002)
                file.seek(0)
                file.write(whole)
                file.flush()
                time.sleep(0.002)

    thread = threading.Thread(target=cut)
    thread.start()
    try:
        done = redline("data", "bench", "job.yaml", "--workers", 2, "--seconds", 2, cwd=tmp_path)
    finally:
        stop.set()
        thread.join()
    assert done.code in (0, 3), (done.code, done.text)  # 3: a hundred in a row
    assert done.peak_bytes < LIMIT_BYTES, done.peak_bytes


# --- pictures ------------------------------------------------------------------------------------------------------------------
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def write_png(path, width, height, grey=0):
    row = b"\x00" + bytes([grey]) * ((width + 7) // 8)
    deflate = zlib.compressobj(9)
    data = b"".join(deflate.compress(row * 64) for _ in range(height // 64)) + deflate.compress(row * (height % 64)) + deflate.flush()
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)) + chunk(b"IDAT", data) +
                     chunk(b"IEND", b""))


def picture_folder(tmp_path, hostile, good=8):
    (tmp_path / "pictures/class").mkdir(parents=True)
    for i in range(good):
        write_png(tmp_path / f"pictures/class/good{i}.png", 16, 16)
    hostile(tmp_path / "pictures/class")
    return "path: pictures\nbatch_size: 8\nimage_size: 32\nmax_bad_fraction: 1\n"


def empty_picture(path, width, height):
    """A header that promises much and a file that holds nothing."""
    write_png(path, 16, 16)
    data = bytearray(path.read_bytes())
    data[16:24] = struct.pack(">II", width, height)
    data[29:33] = struct.pack(">I", zlib.crc32(bytes(data[12:29])))
    path.write_bytes(bytes(data))


def write_progressive(path, hidden):
    """A progressive JPEG, whose decoder holds every coefficient, that promises 144 megapixels; `hidden`: behind markers that have no length and bytes
    between segments, which the decoder passes over."""
    data = (ROOT / "tests/fixtures/images/progressive.jpg").read_bytes()
    frame = data.index(b"\xff\xc2")
    data = data[:frame + 5] + struct.pack(">HH", 12000, 12000) + data[frame + 9:]
    path.write_bytes(data[:2] + b"\xff\x01\xff\xd3" + data[2:frame] + b"\x00\x42" + data[frame:] if hidden else data)


PICTURES = {
    "progressive": (lambda path: write_progressive(path, False), "too many"),
    "progressive_and_hidden": (lambda path: write_progressive(path, True), "too many"),
    "268_megapixels": (lambda path: write_png(path, 16384, 16384), "too many"),
    "a_million_rows": (lambda path: write_png(path, 1, 1 << 20), "too many"),
    "promised": (lambda path: empty_picture(path, 12000, 12000), "cannot hold them"),
}


@pytest.mark.parametrize("case", PICTURES)
def test_pictures(tmp_path, case):
    make, sentence = PICTURES[case]
    keys = picture_folder(tmp_path, lambda folder: [make(folder / f"hostile{i}.png") for i in range(4)])
    if case == "a_million_rows":
        keys = keys.replace("image_size: 32", "image_size: 256")
    done = bench(tmp_path, keys, workers=4)
    assert done.code == 0, done.text
    assert "hostile0.png: " in done.text and sentence in done.text, done.text
    assert done.peak_bytes < LIMIT_BYTES, done.peak_bytes


def test_texts_in_a_picture_are_passed_over(tmp_path):
    """A megabyte of compressed notes beside 16 x 16 pixels: nearly a gigabyte for whoever unpacks them."""
    def with_texts(path):
        write_png(path, 16, 16)
        data = path.read_bytes()
        path.write_bytes(data[:33] + chunk(b"zTXt", b"note\0\0" + zlib.compress(bytes(15 << 20), 9)) * 60 + data[33:])

    keys = picture_folder(tmp_path, lambda folder: [with_texts(folder / f"texts{i}.png") for i in range(4)], good=4)
    done = bench(tmp_path, keys, workers=1)
    assert done.code == 0 and "Bad sample" not in done.text, done.text
    assert done.peak_bytes < LIMIT_BYTES, done.peak_bytes
    assert done.cpu_seconds < 5, done.cpu_seconds  # it took 16


def test_large_pictures_share_the_memory_of_all_workers(tmp_path):
    """49 megapixels are allowed (147 MB); eight workers that meet one each stay within the budget of all, and all are read."""
    keys = picture_folder(tmp_path, lambda folder: [write_png(folder / f"large{i}.png", 7000, 7000) for i in range(8)], good=0)
    done = bench(tmp_path, keys, workers=8, batches=1)
    assert done.code == 0 and "Bad sample" not in done.text, done.text
    assert done.peak_bytes < LIMIT_BYTES, done.peak_bytes


# --- tars, lists and files beside the data --------------------------------------------------------------------------------------
def tar_header(name, size):
    head = bytearray(name.encode().ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2 + b"%011o\0" % size + b"%011o\0" % 0 + b" " * 8 + b"0")
    head = head.ljust(257, b"\0") + b"ustar\x0000"
    head = bytearray(head.ljust(512, b"\0"))
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head)


def write_sparse_tar(path, size):
    """A tar with one picture of `size` bytes, all of them a hole."""
    with open(path, "wb") as file:
        file.write(tar_header("hostile.png", size))
        file.truncate(512 + (size + 511) // 512 * 512 + 1024)


def test_tar_member_of_gigabytes(tmp_path):
    write_sparse_tar(tmp_path / "a.tar", 6 << 30)
    done = bench(tmp_path, "path: [a.tar]\nbatch_size: 1\n", workers=2)
    assert done.code == 3, done.text
    assert "a.tar" in done.text, done.text
    assert done.peak_bytes < LIMIT_BYTES, done.peak_bytes


def test_tar_member_that_passes_the_end(tmp_path):
    (tmp_path / "a.tar").write_bytes(tar_header("a.wav", 6 << 30) + bytes(2048))
    done = bench(tmp_path, "path: a.tar\nbatch_size: 1\n")
    assert done.code == 3 and "a.tar" in done.text and "passes the end" in done.text, done.text
    assert done.peak_bytes < LIMIT_BYTES, done.peak_bytes


def test_lines_without_end(tmp_path):
    (tmp_path / "manifest.json").write_text('{"audio_filepath": "' + "a" * (20 << 20) + '"}\n')
    done = bench(tmp_path, "manifest_filepath: manifest.json\nbatch_size: 1\n")
    assert done.code == 3 and "manifest.json:1" in done.text, done.text[:500]
    (tmp_path / "table.csv").write_text("path,label\n" + "," * (30 << 20) + "\n")
    done = bench(tmp_path, "path: table.csv\nbatch_size: 1\nimage_size: 8\n")
    assert done.code == 3 and "table.csv" in done.text, done.text[:500]
    assert done.peak_bytes < LIMIT_BYTES, done.peak_bytes


def test_files_beside_the_data_are_not_believed(tmp_path):
    write_parquet(tmp_path / "a.parquet", lists=True)
    with open(tmp_path / ".a.parquet.redline.len", "wb") as file:
        file.truncate(8 << 30)
    done = bench(tmp_path, "path: a.parquet\nbatch_size: 8\nnum_buckets: 2\n")
    assert done.code == 0, done.text
    assert done.peak_bytes < LIMIT_BYTES, done.peak_bytes
    assert (tmp_path / ".a.parquet.redline.len").stat().st_size < 1 << 20, "made again"


# --- the order --------------------------------------------------------------------------------------------------------------------
def test_max_buffer_bytes_does_not_change_the_order(tmp_path):
    for i in range(4):
        pq.write_table(pa.table({"tokens": [[i, j] for j in range(200)]}), tmp_path / f"{i}.parquet", row_group_size=50)
    orders = []
    for size in ("1GiB", "4GiB", "1000"):
        (tmp_path / "job.yaml").write_text(f"path: .\nbatch_size: 16\nshuffle: true\nseed: 3\ncolumns: [tokens]\nmax_buffer_bytes: {size}\n")
        done = redline("data", "order", "job.yaml", "--json", "--quiet", cwd=tmp_path)
        assert done.code == 0, done.text
        answer = json.loads(done.text[done.text.index("{"):])
        orders.append((answer["plan_hash"], answer["order_hash"]))
    assert len(set(orders)) == 1, orders


# --- threads -----------------------------------------------------------------------------------------------------------------------
def test_workers_that_cannot_be_started(tmp_path):
    for i in range(8):
        write_wav(tmp_path / f"good{i}.wav", 16000, 16000)
    (tmp_path / "manifest.json").write_text("".join(json.dumps({"audio_filepath": f"good{i}.wav"}) + "\n" for i in range(8)))
    (tmp_path / "job.yaml").write_text("manifest_filepath: manifest.json\nbatch_size: 4\n")
    words = ("data", "bench", "job.yaml", "--workers", 3, "--batches", 3)
    fewer = redline(*words, cwd=tmp_path, env={"REDLINE_FAULTS": "data.worker_start@2"})
    assert fewer.code == 0 and "Only 1 of 3 data workers" in fewer.text, fewer.text
    none = redline(*words, cwd=tmp_path, env={"REDLINE_FAULTS": "data.worker_start@1"})
    assert none.code == 1 and "No data worker can be started" in none.text, none.text
