"""A fence is taken off where the whole text is one, and nowhere else."""

from __future__ import annotations

import pytest

from kern_sandbox.tool._fence import without_fence


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\nprint(1)\n```", "print(1)\n"),
        ("\n```py\nprint(1)\nprint(2)\n```  \n\n", "print(1)\nprint(2)\n"),
        ("```\r\nprint(1)\r\n```\r\n", "print(1)\r\n"),
        ("~~~bash\necho hi\n~~~", "echo hi\n"),
        ("````\ns = '''\n```\n'''\n````", "s = '''\n```\n'''\n"),
        ("```python\n```", ""),
    ],
)
def test_a_fence_around_everything_is_taken_off(text: str, code: str) -> None:
    assert without_fence(text) == code


@pytest.mark.parametrize(
    "text",
    [
        "print(1)",
        's = """```\n"""\n',
        "```python\nprint(1)",
        "Here it is:\n```python\nprint(1)\n```",
        "```python\nprint(1)\n```\nThis prints 1.",
        "```python\na()\n```\n```python\nb()\n```",
        "`print(1)`",
        "```python\nx = '```",
        "python\nprint(1)",
        "\ufeffprint(1)\r\n",
        "",
    ],
)
def test_anything_else_is_left_as_it_is(text: str) -> None:
    assert without_fence(text) == text


@pytest.mark.parametrize(
    "text", ["```\n" * 50_000, "```\na\n```" + " " * 200_000 + "x", "```" + " " * 200_000, "`" * 200_000]
)
def test_text_that_is_long_costs_no_more_than_its_length(text: str) -> None:
    """With a pattern that goes back over what it has seen, these would take longer than a test may."""
    assert without_fence(text) == text
