"""Places of the annotations in a copy of Cholec80."""


def phase_file(root, video=1):
    return root / "phase_annotations" / f"video{video:02d}-phase.txt"


def tool_file(root, video=1):
    return root / "tool_annotations" / f"video{video:02d}-tool.txt"
