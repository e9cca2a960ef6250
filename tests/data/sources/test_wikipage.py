"""A saved page to evidence: hand-written pages, each with one thing that is easy to get wrong."""

import logging

import pytest

from turngraph.data.sources.table_grid import Cell, RichText, read_grid
from turngraph.data.sources.wikipage import finish_page, parse_page


def read(html, title="Page"):
    return finish_page(parse_page(html, title, "page.html"))


def texts(html, source=None):
    return [p.text for p in read(html).evidence if source in (None, p.source)]


def entities(html, index=0):
    return {e.id: e for e in read(html).evidence[index].entities}


def wikitable(*rows):
    lines = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<table class='wikitable'>{lines}</table>"


def link(title, text=None, href=None):
    href = href or "/wiki/" + title.replace(" ", "_")
    return f'<a href="{href}" title="{title}">{text or title}</a>'


def test_rows_under_headers_and_row_headers_are_cells():
    html = wikitable(
        "<th>Year</th><th>City</th><th>Note</th>",
        "<th>1990</th><td>Oslo</td><td></td>",
        "<td>1994</td><td>Rome</td><td>–</td>",
    )
    assert texts(html) == ["Page, Year is 1990, City is Oslo", "Page, Year is 1994, City is Rome"]
    assert [p.id for p in read(html).evidence] == ["t0r1", "t0r2"]


def test_row_and_column_spans():
    html = wikitable(
        "<th>Year</th><th>Home</th><th>Away</th><th>Location</th>",
        "<td rowspan='2'>1990</td><td>A</td><td>B</td><td rowspan=0>Oslo</td>",
        "<td colspan='2'>Not held</td>",
    )
    assert texts(html) == [
        "Page, Year is 1990, Home is A, Away is B, Location is Oslo",
        "Page, Year is 1990, Home and Away is Not held, Location is Oslo",
    ]


def test_headers_of_several_levels_name_the_upper_one_once():
    html = wikitable(
        "<th rowspan=2>Player</th><th colspan=2>League</th><th colspan=2>Cup</th>",
        "<th>Apps</th><th>Goals</th><th>Apps</th><th>Goals</th>",
        "<td>Ann</td><td>9</td><td>1</td><td>2</td><td>0</td>",
        "<td>Bea</td><td></td><td>4</td><td>5</td><td>6</td>",
    )
    assert texts(html) == [
        "Page, Player is Ann, League Apps is 9, Goals is 1, Cup Apps is 2, Goals is 0",
        "Page, Player is Bea, League Goals is 4, Cup Apps is 5, Goals is 6",
    ]


def test_full_width_rows_group_and_headers_in_mid_table_take_over():
    html = wikitable(
        "<th>Name</th><th>Club</th>",
        "<td colspan=2>Group A</td>",
        "<td>Ann</td><td>Ajax</td>",
        "<th>Name</th><th>Club</th>",
        "<th>Name</th><th>Country</th>",
        "<td>Bea</td><td>Spain</td>",
        "<th>Total</th><th>2</th>",
        "<td colspan=2>All were there.</td>",
    )
    assert texts(html) == [
        "Page, Group A, Name is Ann, Club is Ajax",
        "Page, Group A, Name is Bea, Country is Spain",
        "Page, Group A, Name is Total, Country is 2",
        "Page, All were there.",
    ]


def test_header_without_th():
    bold = wikitable("<td><b>No 1</b></td><td><b>Club</b></td>", "<td>5</td><td>Ajax</td>")
    assert texts(bold) == ["Page, No 1 is 5, Club is Ajax"]
    plain = wikitable("<td>Name</td><td>Club</td>", "<td>Ann</td><td>Ajax</td>")
    assert texts(plain) == ["Page, Name is Ann, Club is Ajax"]
    data = wikitable("<td>Ann</td><td>7</td>", "<td>Bea</td><td>9</td>")
    assert texts(data) == ["Page, Ann, 7", "Page, Bea, 9"]


def test_hidden_parts_references_and_edit_links_are_no_text():
    html = (
        '<p>It has 5 cars.<sup class="reference"><a href="#n">[1]</a></sup> '
        '<span style="display:none">secret</span>'
        '<span class="mw-editsection">[<a href="#">edit</a>]</span></p><script>var x;</script>'
    ) + wikitable(
        "<th>Date</th><th>Score</th>",
        '<td><span style="display: none">19900102</span>2 January 1990</td>'
        '<td><span style="visibility:hidden">0</span>9<!-- no --></td>',
    )
    assert texts(html) == ["Page, It has 5 cars.", "Page, Date is 2 January 1990, Score is 9"]


def test_lines_in_a_cell():
    html = wikitable(
        "<th>First<br>leg</th><th>Who</th>", "<td>1–2<br>(3–4 p)</td><td>Ann<br>Bea</td>"
    )
    assert texts(html) == ["Page, First leg is 1–2 (3–4 p), Who is Ann, Bea"]
    assert {"value:ann", "value:bea", "value:ann bea"} <= entities(html).keys()


def test_infobox_rows_sections_and_nested_table():
    html = """<table class="infobox vcard">
      <tr><th colspan=2>Page</th></tr>
      <tr><td colspan=2><img alt="x.jpg">A view of it</td></tr>
      <tr><th>Founded:</th><td><span style="display:none">(1990-01-02)</span>2 January 1990<br>
        <a href="/wiki/Oslo" title="Oslo">Oslo</a></td></tr>
      <tr><th colspan=2>Area</th></tr>
      <tr><th>•&nbsp;Total</th><td>12 km<sup>2</sup></td></tr>
      <tr><td colspan=2><table><tr><td><b>Mayor</b></td><td>Ann</td></tr></table></td></tr>
    </table>"""
    assert texts(html, "infobox") == [
        "Page, A view of it",
        "Page, Founded, 2 January 1990, Oslo",
        "Page, Area, Total, 12 km2",
        "Page, Mayor, Ann",
    ]
    assert [p.id for p in read(html).evidence] == ["i0r0", "i0r1", "i0r2", "i0r3"]
    assert {"Oslo", "value:1990-01-02"} <= entities(html, 1).keys()
    assert "value:mayor" not in entities(html, 3)


def test_lists_carry_their_section_or_the_item_above():
    html = """<h2>Works</h2><ul><li>First. It was long.</li>
      <li>Early<ul><li>Opus 1</li></ul></li></ul>
      <dl><dt>Awards</dt><dd>Gold</dd></dl><dl><dt>Late</dt></dl><ul><li>Opus 9</li></ul>"""
    assert texts(html) == [
        "Page, Works, First.",
        "Page, Works, It was long.",
        "Page, Works, Early",
        "Page, Early, Opus 1",
        "Page, Awards, Gold",
        "Page, Late, Opus 9",
    ]


def test_left_out_by_choice_is_counted():
    html = """<div id="toc"><ul><li>1 Works</li></ul></div><p>One.</p>
      <table class="navbox"><tr><td>Other</td></tr></table><h2>References</h2><h3>General</h3>
      <ul><li>A book</li></ul><h3>Further reading</h3><p>B.</p><h2>Works</h2><p>Two.</p>"""
    page = read(html)
    assert [p.text for p in page.evidence] == ["Page, One.", "Page, Two."]
    assert page.left_out["navigation boxes"] == 1
    assert page.left_out["tables of contents"] == 1
    assert page.left_out["lines of sections that point elsewhere"] == 2
    assert page.problems == []


def test_layout_tables_are_walked():
    inner = wikitable("<th>A</th><th>B</th>", "<td>1</td><td>2</td>")
    html = f"<table><tr><td><p>Left.</p>{inner}</td><td>Right.</td></tr></table>"
    assert texts(html) == ["Page, Left.", "Page, A is 1, B is 2", "Page, Right."]
    html = "<table><tr><td><p>One column.</p></td></tr><tr><td><p>Two rows.</p></td></tr></table>"
    assert texts(html, "text") == ["Page, One column.", "Page, Two rows."]


def test_links_are_entities_with_their_mentions():
    html = "<p>It lies by " + link("Oslo (city)", "the town", "/wiki/Oslo_(city)#History")
    html += ', <a href="/wiki/F%C3%A5berg">Fåberg</a>, <a href="/wiki/File:X.png">a file</a>,'
    html += ' <a href="/w/index.php?redlink=1" title="Bø (page does not exist)">Bø</a>'
    html += ' and <a href="http://example.org/">a site</a>. Page is old.</p>'
    found = entities(html)
    assert found.keys() == {"Page", "Oslo (city)", "Fåberg", "Bø"}
    assert found["Oslo (city)"].mentions == ("the town",)
    assert found["Bø"].label == "Bø"
    assert entities(html, 1).keys() == {"Page"}


def test_equal_cells_share_an_entity_and_a_link_gives_it_its_title():
    html = wikitable(
        "<th>Name</th><th>Year</th><th>Pop.</th>",
        f"<td>{link('Ann Lee (actor)', 'Ann Lee')}</td><td>{link('1990 in film', '1990')}</td>"
        "<td>1,200</td>",
        "<td>Ann Lee</td><td>1990</td><td>1200</td>",
    )
    first, second = entities(html, 0), entities(html, 1)
    assert first["Ann Lee (actor)"].label == second["Ann Lee (actor)"].label == "Ann Lee"
    assert first.keys() - second.keys() == {"1990 in film"}
    assert {"value:1990", "value:1200"} <= second.keys()
    assert second["value:1200"].label == "1,200"
    assert second["value:1200"].mentions == ("1200",)


def test_a_text_linked_to_two_pages_is_known_by_its_value():
    html = wikitable(
        "<th>Team</th><th>At</th>",
        f"<td>{link('Peru (men)', 'Peru')}</td><td>x</td>",
        f"<td>{link('Peru (women)', 'Peru')}</td><td>x</td>",
    )
    assert {"value:peru", "Peru (men)"} <= entities(html, 0).keys()
    assert {"value:peru", "Peru (women)"} <= entities(html, 1).keys()


def test_sentences_name_cells():
    table = wikitable(
        "<th>Name</th><th>When</th><th>No</th><th>Result</th>",
        "<td>Big Ben</td><td>2 May 1990</td><td>12</td><td>Won</td>",
        "<td>Ben</td><td>1985</td><td>1,200</td><td>Lost</td>",
    )
    html = "<p>Big Ben won on May 2, 1990 with 12 men. Benny had 1200 in 1985.</p>" + table
    assert entities(html, 0).keys() == {"Page", "value:big ben", "value:1990-05-02"}
    assert entities(html, 0)["value:1990-05-02"].mentions == ("May 2, 1990",)
    assert entities(html, 1).keys() == {"Page", "value:1200", "value:1985"}


def test_text_between_blocks_is_read_in_its_place():
    html = "<div>First of all.<p>In the middle.</p>Last of all.</div>"
    assert texts(html) == ["Page, First of all.", "Page, In the middle.", "Page, Last of all."]
    html = "<details><summary>Who has the key?</summary>Ann has it.</details>"
    assert texts(html) == ["Page, Who has the key?", "Page, Ann has it."]


def test_a_value_inside_a_longer_one_is_not_found_and_the_next_is():
    table = wikitable(
        "<th>Name</th><th>Where</th>",
        "<td>Big Ben</td><td>London</td>",
        "<td>Ben</td><td>Rome</td>",
    )
    html = "<p>Big Ben met Ben in Rome, then Ben left London for Big Ben.</p>" + table
    found = entities(html, 0)
    assert found.keys() == {
        "Page",
        *(f"value:{name}" for name in ("big ben", "ben", "rome", "london")),
    }


def test_a_span_that_is_no_number_is_reported(caplog):
    html = wikitable("<th>A</th><th>B</th>", "<td rowspan='{{{n}}}'>1</td><td>2</td>")
    with caplog.at_level(logging.WARNING):
        page = read(html)
    assert [p.text for p in page.evidence] == ["Page, A is 1, B is 2"]
    assert page.problems == ['table t0, row 2: rowspan="{{{n}}}" read as 1']
    assert "page.html: table t0, row 2" in caplog.text


def test_a_table_that_cannot_be_read_is_reported_and_the_rest_stays(caplog):
    wide = "<td rowspan=1000 colspan=1000>x</td>"
    html = wikitable(wide, *["<td>y</td>"] * 600) + "<p>Still here.</p>"
    with caplog.at_level(logging.WARNING):
        page = read(html)
    assert [p.text for p in page.evidence] == ["Page, Still here."]
    assert len(page.problems) == 1
    assert "table t0 cannot be read" in caplog.text


def test_a_page_nested_too_deep_is_an_error_with_its_name():
    with pytest.raises(ValueError, match=r"page\.html: nested too deep"):
        read("<div>" * 5000 + "x")


@pytest.mark.parametrize("html", ["", "   ", "<table></table>", "<table class=wikitable><tr></tr>"])
def test_nothing_to_read(html):
    assert texts(html) == []


def test_grid_keeps_overlapping_spans_apart():
    tall = Cell(RichText("tall"), "tall", False, rowspan=3)
    wide = Cell(RichText("wide"), "wide", False, colspan=2)
    grid, num_further = read_grid([[tall, wide], [wide], []])
    assert num_further == 6
    assert [[slot and slot.header for slot in line] for line in grid] == [
        ["tall", "wide", "wide"],
        ["tall", "wide", "wide"],
        ["tall", None, None],
    ]


def test_the_tables_of_a_page_have_so_many_slots(monkeypatch):
    for name in ("table_grid", "wikipage"):
        monkeypatch.setattr(f"turngraph.data.sources.{name}.MAX_SLOTS", 6)
    wide = "<tr><td colspan=3>A, wide</td><td>B</td></tr>"
    page = read(f"<table>{wide * 2}</table><table>{wide * 2}</table>")
    assert [p.id for p in page.evidence] == ["t0r0", "t0r1"]
    [problem] = page.problems
    assert "t1 cannot be read: spans and short rows give more than 6 further cells" in problem
    one = "<tr><td>A</td></tr>"
    [problem] = read(f"<table>{wide}{one * 3}</table>").problems  # the rows are filled up
    assert "further cells" in problem
