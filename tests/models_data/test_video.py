"""Videos and folders of images: frame numbers from time stamps, damaged files, black borders and naming rules."""

import numpy as np
import pytest
from PIL import Image

from hmmjax.io import FormatError
from models.data import picture as picture_of
from models.data import video
from models.data.video_extract import extract, main
from models.data.video_images import align_images, find_images, load_image
from models.data.video_packets import needed

pytest.importorskip("av", reason="videos need PyAV (the vision extra)")


def numbered(count, height=32, width=48):
    """Yield images that encode their number: four gray blocks, one base-4 digit each."""
    for n in range(count):
        digits = [n // 4**d % 4 for d in range(4)]
        blocks = np.array(digits, np.uint8) * 60 + 30
        yield np.repeat(np.tile(np.repeat(blocks, width // 4), (height, 1))[..., None], 3, axis=2)


def read_number(picture):
    blocks = picture.mean((0, 2)).reshape(4, -1)[:, 2:-2].mean(1)
    return int(sum(round((b - 30) / 60) * 4**d for d, b in enumerate(blocks)))


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    path = tmp_path_factory.mktemp("clip") / "clip.mp4"
    assert video.write_video(path, numbered(128)) == 128
    return path


def test_probe(clip):
    info = video.probe(clip)
    assert (info.width, info.height, info.fps, info.num_frames) == (48, 32, 25, 128)
    assert info.seconds == pytest.approx(5.12)


@pytest.mark.parametrize("offset", [0, 24])
def test_frames_are_the_ones_asked_for(clip, offset):
    found = [(n, read_number(picture)) for n, picture in video.read_frames(clip, rate=1, offset=offset)]
    assert found == [(n, n) for n in range(offset, 128, 25)]


def test_all_frames_and_other_rates(clip):
    assert [read_number(p) for _, p in video.read_frames(clip, rate=None)] == list(range(128))
    assert [n for n, _ in video.read_frames(clip, rate=5)] == list(range(0, 128, 5))
    with pytest.raises(FormatError, match="divides 25"):
        list(video.read_frames(clip, rate=4))


def test_one_frame_by_seeking(clip):
    assert [read_number(video.read_frame(clip, n)) for n in (0, 1, 77, 127)] == [0, 1, 77, 127]
    with pytest.raises(FormatError, match="the video has no frame 128"):
        video.read_frame(clip, 128)


def test_scaling_and_progress(clip, capsys):
    number, picture = next(iter(video.read_frames(clip, size=(16, 24), progress=True)))
    assert number == 0 and picture.shape == (16, 24, 3) and picture.dtype == np.uint8
    assert "clip.mp4" in capsys.readouterr().out


def test_cut_off_anywhere_is_an_error_naming_the_file(clip, tmp_path):
    whole = clip.read_bytes()
    for fraction in (0.02, 0.3, 0.6, 0.9, 0.99):
        part = tmp_path / f"cut{fraction}.mp4"
        part.write_bytes(whole[: int(len(whole) * fraction)])
        with pytest.raises(FormatError, match=f"cut{fraction}.mp4"):
            list(video.read_frames(part))


@pytest.fixture(scope="module")
def holes(tmp_path_factory):
    """Return a video without frames 30 to 39 and 75."""
    import av

    path = tmp_path_factory.mktemp("holes") / "holes.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 48, 32, "yuv420p"
        for n, picture in enumerate(numbered(100)):
            if 30 <= n < 40 or n == 75:
                continue
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts = n
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def test_dropped_frames_never_shift_the_rest(holes):
    """Frame numbers follow time stamps, and missing frames are found before any is decoded."""
    found = [(n, read_number(picture)) for n, picture in video.read_frames(holes, rate=1, offset=24)]
    assert found == [(24, 24), (49, 49), (74, 74), (99, 99)]
    with pytest.raises(FormatError, match="frame 75 is missing: the next one is 76"):
        next(video.read_frames(holes, rate=1))


def encode(path, codec, options):
    """Encode moving and flickering images, so that encoders use all types of frames."""
    import av

    y, x = np.mgrid[:48, :64]
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=25, options=options)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for n in range(160):
            bright = 60 * np.sin((x + 2 * n) / 7) + 60 * np.sin((y - n) / 5) + 120 + (n > 90) * 30 * np.sin(n)
            picture = np.repeat(bright.clip(0, 255).astype(np.uint8)[..., None], 3, 2)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode(None))
    return path


@pytest.mark.parametrize(
    ("name", "codec", "options"),
    [
        ("usual.mp4", "libx264", {}),
        ("short.mp4", "libx264", {"g": "10"}),
        ("open.mp4", "libx264", {"x264-params": "keyint=20:open-gop=1:bframes=4:b-adapt=0"}),
        ("rolling.mp4", "libx264", {"x264-params": "keyint=20:intra-refresh=1"}),
        ("stream.mkv", "libx264", {"x264-params": "keyint=20:bframes=2"}),
        ("old.avi", "mpeg4", {}),
        ("old.mp4", "mpeg4", {"bf": "2", "g": "12"}),
    ],
)
@pytest.mark.parametrize(("rate", "offset"), [(1, 0), (1, 24), (5, 3)])
def test_skipping_packets_changes_no_pixel(tmp_path, name, codec, options, rate, offset):
    path = encode(tmp_path / name, codec, options)
    whole = dict(video.read_frames(path, rate=None))
    assert list(whole) == list(range(160))
    some = dict(video.read_frames(path, rate=rate, offset=offset))
    assert list(some) == list(range(offset, 160, 25 // rate))
    for number, picture in some.items():
        np.testing.assert_array_equal(picture, whole[number])


def test_packets_after_the_last_wanted_one_wait_for_the_next_restart():
    wanted = np.array([0, 0, 1, 0, 0, 0, 1, 0, 0, 0], bool)
    restarts = np.array([1, 0, 0, 0, 1, 0, 0, 0, 1, 0], bool)
    assert needed(wanted, restarts).astype(int).tolist() == [1, 1, 1, 0, 1, 1, 1, 0, 0, 0]


def test_no_video(tmp_path):
    with pytest.raises(FormatError, match="no such video"):
        video.probe(tmp_path / "absent.mp4")
    (tmp_path / "text.mp4").write_text("hello")
    with pytest.raises(FormatError, match=r"text\.mp4: not a readable video"):
        video.probe(tmp_path / "text.mp4")


def test_odd_sizes_cannot_be_written(tmp_path):
    with pytest.raises(ValueError, match="even"):
        video.write_video(tmp_path / "odd.mp4", [np.zeros((31, 48, 3), np.uint8)])
    with pytest.raises(ValueError, match="no images"):
        video.write_video(tmp_path / "none.mp4", [])


@pytest.mark.parametrize("size", [(480, 854), (96, 128)])
def test_black_border_is_found(size):
    rng = np.random.default_rng(0)
    picture = rng.integers(0, 12, (*size, 3)).astype(np.uint8)  # a border is never exactly black
    picture[20:-12, 40:-24] = rng.integers(60, 200, (size[0] - 32, size[1] - 64, 3))
    picture[2, 2] = 255  # a hot pixel is not content
    top, bottom, left, right = picture_of.find_content(picture)
    slack = max(1, size[0] // 120) + 1
    assert abs(top - 20) <= slack and abs(bottom - (size[0] - 12)) <= slack
    assert abs(left - 40) <= slack and abs(right - (size[1] - 24)) <= slack


def test_all_dark_is_left_alone():
    assert picture_of.find_content(np.zeros((48, 64, 3), np.uint8)) == (0, 48, 0, 64)


def test_extract_names_pictures_by_frame(clip, tmp_path):
    assert extract(clip, tmp_path / "out", size=(32, 48)) == 6
    images = find_images(tmp_path / "out", "frame")
    assert list(images) == [0, 25, 50, 75, 100, 125]
    assert [read_number(load_image(p)) for p in images.values()] == list(images)
    with pytest.raises(FormatError, match="exists"):
        extract(clip, tmp_path / "out")


def test_a_failed_extraction_leaves_no_folder(clip, tmp_path):
    cut = tmp_path / "cut.mp4"
    cut.write_bytes(clip.read_bytes()[:-300])
    with pytest.raises(FormatError):
        extract(cut, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_extraction_never_mixes_with_the_one_before(clip, tmp_path):
    """Images of a killed run are in .part, possibly at another rate."""
    (tmp_path / "out.part").mkdir()
    (tmp_path / "out.part" / "000013.jpg").write_bytes(b"stale")
    assert extract(clip, tmp_path / "out") == 6
    assert len(list((tmp_path / "out").iterdir())) == 6 and not (tmp_path / "out.part").exists()


def test_nothing_is_written_for_a_video_that_cannot_be_read(clip, tmp_path):
    cut = tmp_path / "cut.mp4"
    cut.write_bytes(clip.read_bytes()[:-300])
    for video_file in (cut, tmp_path / "absent.mp4"):
        with pytest.raises(FormatError):
            extract(video_file, tmp_path / "new" / "out")
    assert not (tmp_path / "new").exists()


def test_a_batch_names_what_fails_and_resumes(clip, tmp_path, capsys):
    (tmp_path / "cut.mp4").write_bytes(clip.read_bytes()[:-300])
    words = [str(tmp_path / "cut.mp4"), str(tmp_path / "absent.mp4"), str(clip), "--out", str(tmp_path / "out")]
    assert main(words) == 2
    printed = capsys.readouterr()
    lines = [line for line in printed.err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 2 and "cut.mp4" in lines[0] and "no such video" in lines[1] and "Traceback" not in printed.err
    assert "clip: 6 images" in printed.out and [p.name for p in (tmp_path / "out").iterdir()] == ["clip"]
    assert main([str(clip), "--out", str(tmp_path / "out")]) == 0
    assert "exists, skipped" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([str(clip), str(tmp_path / "clip.mp4"), "--out", str(tmp_path / "out")])
    assert "several videos are named clip" in capsys.readouterr().err


# Folders of pictures


def dump(folder, names):
    folder.mkdir()
    for n, name in enumerate(names):
        Image.new("RGB", (8, 8), (n % 256, 0, 0)).save(folder / name)
    return folder


def test_three_naming_rules_are_one_dataset(tmp_path):
    """The same four seconds named by frame, by second and by ffmpeg's counter (in two spellings)."""
    folders = {
        "frame": dump(tmp_path / "frame", ["0.png", "25.png", "50.png", "75.png"]),
        "second": dump(tmp_path / "second", ["00000.png", "00001.png", "00002.png", "00003.png"]),
        "counter": dump(tmp_path / "counter", [f"video01_{n:06d}.png" for n in (1, 2, 3, 4)]),
    }
    for rule, folder in folders.items():
        assert list(find_images(folder, rule)) == [0, 25, 50, 75], rule
    jpegs = dump(tmp_path / "dashes", [f"video1-{n}.jpg" for n in (1, 2, 3, 4)])
    assert list(find_images(jpegs, "counter")) == [0, 25, 50, 75]


def test_pictures_sort_by_number_not_by_letter(tmp_path):
    folder = dump(tmp_path / "x", [f"{n}.png" for n in (0, 100, 25, 1000, 75)])
    assert list(find_images(folder, "frame")) == [0, 25, 75, 100, 1000]


def test_flips_are_not_frames(tmp_path):
    folder = dump(tmp_path / "x", ["v01_000025.png", "v01_000025_flip.png"])
    assert list(find_images(folder, "frame")) == [25]


def test_two_ffmpeg_pictures_too_many_are_dropped_with_a_warning(tmp_path):
    images = find_images(dump(tmp_path / "x", [f"{n:04d}.png" for n in range(1, 103)]), "counter")
    frames = np.arange(100) * 25
    with pytest.warns(UserWarning, match=r"dropped 2 image\(s\) after the last annotated frame 2475"):
        paths = align_images(images, frames)
    assert len(paths) == 100 and paths[-1].endswith("0100.png")


def test_more_than_two_too_many_is_an_error(tmp_path):
    images = find_images(dump(tmp_path / "x", [f"{n:04d}.png" for n in range(1, 104)]), "counter")
    with pytest.raises(FormatError, match="3 images come after"):
        align_images(images, np.arange(100) * 25)


def test_off_by_one_rule_is_noticed(tmp_path):
    """A counter from 1 that is read as seconds would shift every label, but the first frame has no image."""
    images = find_images(dump(tmp_path / "x", [f"{n:04d}.png" for n in range(1, 11)]), "second")
    with pytest.raises(FormatError, match="the first is frame 0"):
        align_images(images, np.arange(10) * 25)
    zero = dump(tmp_path / "y", [f"{n:04d}.png" for n in range(10)])
    with pytest.raises(FormatError, match="starts at 1"):
        find_images(zero, "counter")


def test_denser_pictures_than_annotation_are_noticed(tmp_path):
    images = find_images(dump(tmp_path / "x", [f"{n}.png" for n in range(0, 101, 5)]), "frame")
    with pytest.raises(FormatError, match="between annotated frames"):
        align_images(images, [0, 25, 50, 75, 100])


def test_bad_folders(tmp_path):
    with pytest.raises(FormatError, match="unknown naming rule"):
        find_images(tmp_path, "guess")
    with pytest.raises(FormatError, match="no images"):
        find_images(tmp_path, "frame")
    with pytest.raises(FormatError, match="no number"):
        find_images(dump(tmp_path / "a", ["cover.png"]), "frame")
    with pytest.raises(FormatError, match="frame 1 is also"):
        find_images(dump(tmp_path / "b", ["1.png", "01.png"]), "frame")
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG\r\n\x1a\n123")
    with pytest.raises(FormatError, match=r"broken\.png"):
        load_image(broken)


# Damage that decoders and headers hide


def test_damage_inside_a_video_is_an_error_not_an_older_picture(tmp_path):
    path = encode(tmp_path / "good.mp4", "libx264", {"x264-params": "keyint=50"})
    data = path.read_bytes()
    first = data.index(b"mdat") + 1000
    found = 0
    for k in range(6):
        damaged = bytearray(data)
        for byte in range(8):
            damaged[first + 300 * k + byte] ^= 0xFF
        (tmp_path / "bad.mp4").write_bytes(damaged)
        try:
            list(video.read_frames(tmp_path / "bad.mp4", rate=None))
        except FormatError as error:
            found += "bad.mp4" in str(error)
    assert found >= 4  # some damaged files are still valid


@pytest.mark.parametrize("suffix", ["mkv", "ts"])
def test_videos_without_a_number_of_frames(tmp_path, suffix):
    path = encode(tmp_path / f"a.{suffix}", "libx264", {"x264-params": "keyint=20"})
    assert video.probe(path).num_frames == 0 and video.count_frames(path) == 160
    assert video.content_box(path) == (0, 48, 0, 64)
    np.testing.assert_array_equal(video.read_frame(path, 26), dict(video.read_frames(path, rate=None))[26])


def test_a_cut_mkv_is_an_error(tmp_path):
    path = encode(tmp_path / "a.mkv", "libx264", {"x264-params": "keyint=20"})
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(FormatError, match=r"a\.mkv: truncated: the header gives 6\.4 s"):
        list(video.read_frames(path))


def test_a_dark_sample_does_not_switch_cropping_off(tmp_path):
    def pictures():
        for n in range(100):
            picture = np.zeros((96, 96, 3), np.uint8)
            if not 30 < n < 60:
                picture[16:80, 16:80] = 150
            yield picture

    video.write_video(tmp_path / "a.mp4", pictures())
    top, bottom, left, right = video.content_box(tmp_path / "a.mp4")
    assert max(abs(top - 16), abs(bottom - 80), abs(left - 16), abs(right - 80)) <= 2


def test_frame_numbers_out_of_range(clip):
    for number in (-1, 10**18):
        with pytest.raises(FormatError, match=f"the video has no frame {number}"):
            video.read_frame(clip, number)


def test_frames_hidden_by_an_edit_list_are_called_so(tmp_path):
    import av

    path = encode(tmp_path / "whole.mp4", "libx264", {"x264-params": "keyint=20:bframes=0"})
    with av.open(str(path)) as source, av.open(str(tmp_path / "cut.mp4"), "w") as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.dts is not None:
                packet.pts, packet.dts = packet.pts - 5120, packet.dts - 5120  # ten frames before the start
                packet.stream = stream
                target.mux(packet)
    with pytest.raises(FormatError, match=r"an edit list hides .* re-encode"):
        list(video.read_frames(tmp_path / "cut.mp4"))


def test_images_of_sixteen_bits_are_rejected(tmp_path):
    Image.fromarray(np.full((8, 8), 3000, np.uint16)).save(tmp_path / "a.png")
    with pytest.raises(FormatError, match=r"a\.png: .*eight bits"):
        load_image(tmp_path / "a.png")


def test_hidden_files_are_ignored(tmp_path):
    folder = dump(tmp_path / "x", ["0.png", "25.png"])
    (folder / "._50.png").write_bytes(b"of macOS")
    assert list(find_images(folder, "frame")) == [0, 25]
