import time
from contextlib import suppress

import pytest

from gpumemnet.directives.parse import parse_comment, parse_script
from gpumemnet.errors import DirectiveError
from gpumemnet.names import MpsServer
from gpumemnet.units import GIB, MIB
from tests.timing import within

JOB = """#!/bin/bash
#SBATCH --gpus=1
#RAD model=resnet50.txt batch_size=128 optimizer=adamw precision=amp
python x.py
"""


def test_reads_the_keys_of_a_script() -> None:
    said = parse_script(JOB, "job.sh")
    assert said is not None
    assert (said.model, said.line, said.path) == ("resnet50.txt", 3, "job.sh")
    assert (said.setup.batch_size, said.setup.optimizer, said.setup.precision) == (128, "adamw", "amp")
    assert (said.gpus, said.policy, said.memory_bytes, said.retry) == (None, None, None, True)


@pytest.mark.parametrize(("text", "value"), [("0.9", 0.9), ("bound", "bound"), (".999", 0.999)])
def test_how_safe_a_booking_shall_be(text: str, value: object) -> None:
    said = parse_comment(f"rad:model=m.txt,confidence={text}")
    assert said is not None and said.confidence == value


@pytest.mark.parametrize("text", ["0.4", "1", "nan", "inf", "-0.9", "90%", "1e-999999", "0x1", "auto"])
def test_a_confidence_that_is_none_is_named(text: str) -> None:
    with pytest.raises(DirectiveError, match=r"give a share of jobs from 0\.5 to 0\.999, or bound"):
        parse_comment(f"rad:model=m.txt,confidence={text}")


def test_no_directive_is_none() -> None:
    assert parse_script("#!/bin/bash\n# RAD is mentioned here\n#RADAR on\npython x.py\n", "job.sh") is None
    assert parse_comment("brad:model=x, no rad here") is None


@pytest.mark.parametrize("change", [lambda t: "\ufeff" + t, lambda t: t.replace("\n", "\r\n")])
def test_byte_order_mark_and_dos_line_ends_do_no_harm(change) -> None:
    assert parse_script(change(JOB), "job.sh") == parse_script(JOB, "job.sh")


BLANKS = " " * 60_000


@pytest.mark.parametrize(
    "line",
    [
        f"#rad{BLANKS}x",
        f"# RAD{BLANKS.replace(' ', chr(9))}",
        f"#{BLANKS}rad",
        f"# rad model = x{BLANKS}y",
        f"#RAD model ={BLANKS}x",
        f"#RAD model = a{BLANKS}b",
        "#RAD a = b" + " , " * 20_000,
        "#RAD " + "= " * 30_000,
        "#rad " * 12_000,
        "#RAD '" + "x" * 60_000,
    ],
    ids=range(10),
)
def test_no_line_of_a_users_keeps_radd_from_everybody_else(line: str) -> None:
    """One such comment kept it busy for 220 s: two runs of blanks in a row, tried in every division."""
    began_s = time.process_time()
    with suppress(DirectiveError):
        parse_script(f"#!/bin/bash\n{line}\n", "job.sh")
    assert time.process_time() - began_s < within(1)


@pytest.mark.parametrize(
    ("lines", "reported"),
    [
        (
            "#RAD model=my models/resnet 50.txt batch_size=64",
            'job.sh:2: a name with spaces is quoted; write #RAD model="my models/resnet 50.txt" batch_size=64',
        ),
        (
            "#RAD --model resnet50.txt --batch-size=64",
            "job.sh:2: each key and its value are one word; write #RAD model=resnet50.txt batch_size=64",
        ),
        ("#RAD memory 12G", "job.sh:2: each key and its value are one word; write #RAD memory=12G"),
        ("#RAD model: a.txt", "job.sh:2: each key and its value are one word; write #RAD model=a.txt"),
        (
            "#RAD model=a.txt \\\n#RAD batch_size=64",
            "job.sh:2: a #RAD line does not continue on the next line; begin that with #RAD too, and remove the \\",
        ),
        ("#RAD opt=adamw", "job.sh:2: unknown key 'opt'; did you mean optimizer?"),
        ("#RAD memory", "job.sh:2: memory has no value; write memory=VALUE with no spaces around ="),
    ],
)
def test_what_was_meant_is_reported_as_it_must_stand(lines: str, reported: str) -> None:
    with pytest.raises(DirectiveError) as found:
        parse_script(f"#!/bin/bash\n{lines}\npython x.py\n", "job.sh")
    assert str(found.value) == reported
    if "; write #RAD " in reported:
        right = reported.partition("; write ")[2]
        assert parse_script(f"#!/bin/bash\n{right}\npython x.py\n", "job.sh") is not None


@pytest.mark.parametrize(
    ("begins", "ends"), [("<<EOF", "EOF"), ("<< 'END'", "END"), ('<<-"E"', "\tE"), (r"<<\STOP", "STOP")]
)
def test_a_job_script_that_is_written_by_this_one_is_none_of_its_lines(begins: str, ends: str) -> None:
    inner = "#!/bin/bash\n#RAD batch_size=32\npython y.py"
    text = f"#RAD memory=12G\ncat > inner.sh {begins}\n{inner}\n{ends}\n"
    said = parse_script(text, "job.sh")
    assert said is not None and said.memory_bytes == 12 * GIB
    for after in (text + "#RAD retry=no\n", text.replace(f"\n{ends}\n", "\n"), text.replace("<<", "<<<")):
        with pytest.raises(DirectiveError, match="#RAD below the first command is not read"):
            parse_script(after, "job.sh")


def test_names_with_spaces_and_quotes() -> None:
    said = parse_script("#RAD model=\"my big 'net'.txt\" batch_size=8 # why\n", "job.sh")
    assert said is not None
    assert said.model == "my big 'net'.txt"
    said = parse_comment("run 7 rad:model='a, b.txt',memory=12G,retry=no end")
    assert said is not None
    assert (said.model, said.memory_bytes, said.retry) == ("a, b.txt", 12 * GIB, False)


@pytest.mark.parametrize(
    ("value", "n_bytes"),
    [("12G", 12 * GIB), ("12GiB", 12 * GIB), ("512m", 512 * MIB), ("6000", 6000 * MIB), ("1T", 1024 * GIB)],
)
def test_memory_is_spelled_as_in_slurm(value: str, n_bytes: int) -> None:
    said = parse_script(f"#RAD memory={value}\n", "job.sh")
    assert said is not None
    assert said.memory_bytes == n_bytes


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("#RAD batchsize=8", "job.sh:2: unknown key 'batchsize'; did you mean batch_size?"),
        (
            "#RAD batch_size=0",
            "job.sh:2: batch_size=0 is impossible; give a whole number from 1 to 1073741824",
        ),
        (
            "#RAD batch_size=-1",
            "job.sh:2: batch_size=-1 is impossible; give a whole number from 1 to 1073741824",
        ),
        (
            "#RAD batch_size=1e99",
            "job.sh:2: batch_size=1e99 is impossible; give a whole number from 1 to 1073741824",
        ),
        (
            "#RAD batch_size=abc",
            "job.sh:2: batch_size=abc is impossible; give a whole number from 1 to 1073741824",
        ),
        ("#RAD optimizer=adm", "job.sh:2: unknown optimizer 'adm'; did you mean adam?"),
        ("#RAD policy=share", "job.sh:2: unknown policy 'share'; choose one of exclusive, collocate"),
        ("#RAD model=a model=b", "job.sh:2: model is given twice (line 2); keep one"),
        (
            "#RAD model = a, batch_size= 8",
            "job.sh:2: no spaces around =, no commas; write #RAD model=a batch_size=8",
        ),
        ("#RAD model=", "job.sh:2: model has no value; write model=VALUE with no spaces around ="),
        ("# RAD model=a", "job.sh:2: is a comment, no #RAD line; write #RAD model=a"),
        (
            "#RAD: model=a batch_size=8",
            "job.sh:2: is a comment, no #RAD line; write #RAD model=a batch_size=8",
        ),
        ("#RAD", "job.sh:2: no directive follows #RAD; write #RAD model=FILE batch_size=N"),
        ("#RADmemory=6G", "job.sh:2: is a comment, no #RAD line; write #RAD memory=6G"),
        ("#rad memory = 6G", "job.sh:2: is a comment, no #RAD line; write #RAD memory=6G"),
        (
            "#RAD batch_size=64,optimizer=adam",
            "job.sh:2: batch_size=64,optimizer=adam is impossible; give a whole number from 1 to 1073741824; "
            "separate settings by spaces, without commas",
        ),
        (
            "#RAD batch_size=$BS",
            "job.sh:2: batch_size=$BS is impossible; give a whole number from 1 to 1073741824; variables "
            "are not expanded in #RAD lines",
        ),
        (
            "#RAD precision=fp16",
            "job.sh:2: unknown precision 'fp16'; write amp for autocast, in fp16 or bf16, and bf16 for a model that is "
            "itself in 16 bits",
        ),
        ("#RAD memory=12", "job.sh:2: memory=12 are 12 MiB, less than any process uses; write memory=12G"),
        ("#RAD model='a", "job.sh:2: a quote is not closed; add the missing '"),
        (
            "#RAD memory=lots",
            "job.sh:2: memory=lots is not an amount of memory; write for example memory=12G",
        ),
        ("#RAD retry=maybe", "job.sh:2: retry=maybe is neither yes nor no; write retry=yes or retry=no"),
        ("echo\n#RAD model=a", "job.sh:3: #RAD below the first command is not read; move it above line 2"),
    ],
)
def test_one_clear_line_with_place_and_fix(line: str, message: str) -> None:
    with pytest.raises(DirectiveError) as caught:
        parse_script(f"#!/bin/sh\n{line}\n", "job.sh")
    assert str(caught.value) == message


def test_two_models_on_two_lines_name_both() -> None:
    with pytest.raises(DirectiveError, match=r"job\.sh:2: model is given twice \(line 1\); keep one"):
        parse_script("#RAD model=a\n#RAD model=b\n", "job.sh")


def test_a_blank_pasted_from_a_page_is_a_blank_and_a_bare_mark_next_to_a_directive_is_a_comment() -> None:
    found = parse_script("#!/bin/sh\n#RAD\n#RAD\u00a0memory=6G\n", "job.sh")
    assert found is not None and found.memory_bytes == 6 << 30


@pytest.mark.parametrize(
    "comment",
    [
        "rad:",
        "rad:colour=red",
        "rad:batch_size=0",
        "rad:memory=6G rad:memory=7G",
        "rad:memory=6G and rad:retry=no",
    ],
)
def test_bad_comments_are_named(comment: str) -> None:
    with pytest.raises(DirectiveError, match="comment: "):
        parse_comment(comment)


def test_quotes_inside_quotes_are_escaped_as_in_a_shell() -> None:
    script = parse_script('#RAD model="my \\"best\\" model\\\\one.txt" batch_size=2\n', "job.sh")
    assert script is not None and script.model == 'my "best" model\\one.txt'
    comment = parse_comment('mine rad:model="a \\" b.txt",batch_size=2 too')
    assert comment is not None and (comment.model, comment.setup.batch_size) == ('a " b.txt', 2)
    single = parse_script("#RAD model='a\\b.txt'\n", "job.sh")
    assert single is not None and single.model == "a\\b.txt"


@pytest.mark.parametrize(
    "script", ["#RAD m\x1b[2Jodel=x\n", "#RAD batch_size=\x1b]0;x\x07\n", "#RAD policy=\x7f\u202e\n"]
)
def test_what_the_fuzzer_found_no_message_moves_the_terminal(script) -> None:
    with pytest.raises(DirectiveError) as caught:
        parse_script(script, "job.sh")
    assert str(caught.value).isprintable()


def test_names_are_read_as_pytorch_spells_them() -> None:
    said = parse_script("#RAD model=a optimizer=AdamW precision=BF16 policy=Exclusive\n", "job.sh")
    assert said is not None and (said.setup.optimizer, said.setup.precision, said.policy) == (
        "adamw",
        "bf16",
        "exclusive",
    )


@pytest.mark.parametrize("line", ["# RAD model=old.txt", "##RAD model=old.txt", "#RAD: model=old.txt"])
def test_a_line_that_was_commented_out_does_not_spoil_one_that_counts(line: str) -> None:
    said = parse_script(f"{line}\n#RAD model=new.txt\n", "job.sh")
    assert said is not None and said.model == "new.txt"


@pytest.mark.parametrize(
    "line", ["# rad is used here", "##RAD model=a", "# radius = 3", "# grad=1 model=2", "echo\n# RAD model=a"]
)
def test_an_ordinary_comment_is_none(line: str) -> None:
    assert parse_script(f"#!/bin/sh\n{line}\n", "job.sh") is None


def test_a_job_may_ask_for_an_mps_server_of_its_own() -> None:
    said = parse_comment("rad:memory=4G,mps_server=own")
    assert said is not None and said.mps_server is MpsServer.OWN
    with pytest.raises(DirectiveError, match="unknown mps_server 'all'"):
        parse_comment("rad:memory=4G,mps_server=all")
