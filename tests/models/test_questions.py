"""The table of questions: what is read, and what is refused with its line."""

from __future__ import annotations

import pytest

from libra_plan.errors import InputError
from libra_plan.models.questions import read_questions


def _read(tmp_path, text):
    path = tmp_path / "points.csv"
    path.write_text(text)
    return read_questions(path)


def test_rows_are_read_in_order_with_their_lines(tmp_path):
    """Answers are looked up by line, blank lines and quoted cells included."""
    rows = _read(tmp_path, 'role,model,batch,seq_len\ndecode,m,1,512\n\ntrain,"m",2,1e3\n').rows
    assert [(row.line, row.phase, row.query.seq_len_tokens) for row in rows] == [
        (2, "decode", 512.0),
        (4, "train", 1000.0),
    ]


def test_an_empty_cell_states_nothing(tmp_path):
    """Empty and absent are the same, and neither is the text ''."""
    (row,) = _read(tmp_path, "role,model,mode,batch,seq_len,tp\nscore,m,,1,512,\n").rows
    assert (row.mode, row.precision, row.query.layout.tp) == (None, None, 1)


def test_serving_columns(tmp_path):
    """Serving tables ask by prompt, output and tensor-parallel size."""
    (row,) = _read(tmp_path, "role,model,batch,isl,osl,tp\nserve,m,16,1024,128,4\n").rows
    assert (row.query.prompt_tokens, row.query.output_tokens, row.query.layout.tp) == (1024, 128, 4)


def test_other_columns_are_left_alone_and_named(tmp_path):
    """A table of measurements can be asked as it is."""
    assert _read(tmp_path, "role,model,batch,seq_len,step_s\nscore,m,1,512,0.1\n").unused == ("step_s",)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", None, "no question"),
        ("role,model,batch\n", None, "no question"),
        ("role,model\nscore,m\n", 1, "`batch` is missing"),
        ("rol,model,batch\nscore,m,1\n", 1, "rename `rol`"),
        ("role,model,batch,seq_lne\nscore,m,1,2\n", 1, "did you mean `seq_len`?"),
        ("role,model,batch,batch\nscore,m,1,2\n", 1, "stands twice"),
        ('role,model,batch\nscore,"m,1\n', 2, "not valid CSV"),
    ],
)
def test_a_wrong_table_says_where(tmp_path, text, line, said):
    """In a table of thousands of rows a message without its line is of no use."""
    with pytest.raises(InputError) as caught:
        _read(tmp_path, text)
    assert said in caught.value.message
    if line is not None:
        assert caught.value.where.line == line


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("role,model,batch\ndecoding,m,1\n", 2, "unknown role"),
        ("role,model,batch\n,m,1\n", 2, "unknown role"),
        ("role,model,batch\nscore,,1\n", 2, "no model"),
        ("role,model,batch\nscore,m,\n", 2, "no batch"),
        ("role,model,batch\nscore,m,many\n", 2, "not a size"),
        ("role,model,batch\nscore,m,0\n", 2, "not a size"),
        ("role,model,batch\nscore,m,nan\n", 2, "not a size"),
        ("role,model,batch\nscore,m,-3\n", 2, "not a size"),
        ("role,model,batch,tp\nscore,m,1,1.5\n", 2, "not a whole number"),
        ("role,model,batch,tp\nscore,m,1,1e18\n", 2, "not a degree of parallelism"),
        ("role,model,batch\nscore,m,1,2\n", 2, "wrong number of cells"),
        ("role,model,batch\ndecod,m,1\n", 2, "did you mean `decode`?"),
    ],
)
def test_a_bad_row_does_not_hide_the_others(tmp_path, text, line, said):
    """One slip in ten thousand rows must not cost the other answers; it is told with its line."""
    bad, good = _read(tmp_path, text + "score,m,1" + "," * (text.count(",tp")) + "\n").rows
    assert said in bad.reason.message
    assert (bad.line, bad.reason.where.line, good.line) == (line, line, line + 1)
    assert bad.said["role" if text.splitlines()[1][0] != "," else "model"]
    assert good.phase == "score"
