"""Letters are chosen by their offsets; on a cluster, where each shard counts its own, by the ids of
their messages too."""

from app.web.consuming.redriving import chosen_letters, named


def test_letters_are_named_as_the_api_takes_them() -> None:
    assert named(chosen_letters(["12", "x", "7"])) == {"offsets": [12, 7]}
    both = named(chosen_letters(["12:0A0B", "7:0C", "7:", "7:../x"]))
    assert both == {"offsets": [12, 7], "message_ids": ["0A0B", "0C"]}
