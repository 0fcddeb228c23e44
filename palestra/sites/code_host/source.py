"""What was checked in, commit by commit: a program that prints tide tables. Each commit appends to files."""

COMMITS: tuple[tuple[str, str, dict[str, str], str], ...] = (
    # user, comment, what is appended to which file, tag
    (
        "mira",
        "Begin: a readme and an empty package",
        {
            "README.md": "# Tidewatch\n\nTide tables for small harbours.\n",
            "tidewatch/__init__.py": '"""Tide tables for small harbours."""\n',
        },
        "",
    ),
    (
        "mira",
        "Sum the constituents of a harbour",
        {
            "tidewatch/tables.py": '"""Heights of the tide as a sum of cosines."""\n\nimport math\n\n\ndef height(constituents, hours):\n    return sum(a * math.cos(math.radians(s * hours - p)) for a, s, p in constituents)\n'
        },
        "",
    ),
    (
        "jonas",
        "A first list of harbours",
        {
            "data/harbours.csv": "name,country,mean_level_m,spring_range_m\nBrest,FR,4.1,6.1\nDover,GB,3.7,6.0\nCuxhaven,DE,3.3,3.3\n",
            "tidewatch/harbours.py": '"""Read the list of harbours."""\n\nimport csv\n\n\ndef read(path):\n    with open(path) as file:\n        return list(csv.DictReader(file))\n',
        },
        "",
    ),
    (
        "jonas",
        "Command line: print the table of one day",
        {
            "tidewatch/cli.py": '"""tidewatch HARBOUR [DAY]"""\n\nimport argparse\n\n\ndef parser():\n    made = argparse.ArgumentParser(prog="tidewatch")\n    made.add_argument("harbour")\n    made.add_argument("day", nargs="?")\n    return made\n'
        },
        "",
    ),
    (
        "priya",
        "Find high and low water between samples",
        {
            "tidewatch/tables.py": "\n\ndef turns(heights):\n    pairs = zip(heights, heights[1:], heights[2:])\n    return [i + 1 for i, (a, b, c) in enumerate(pairs) if (b - a) * (c - b) <= 0]\n"
        },
        "",
    ),
    (
        "priya",
        "Tests for turning points",
        {
            "tests/test_tables.py": "from tidewatch.tables import turns\n\n\ndef test_turns():\n    assert turns([0, 1, 0, -1, 0]) == [1, 3]\n"
        },
        "v0.1.0",
    ),
    ("oskar", "Harbours of Portugal and Ireland", {"data/harbours.csv": "Cascais,PT,2.0,3.1\nCobh,IE,2.3,3.7\n"}, ""),
    ("mira", "Say in the readme how to install it", {"README.md": "\n## Install\n\n    pip install tidewatch\n"}, ""),
    (
        "jonas",
        "Keep computed tables in a cache folder",
        {
            "tidewatch/cache.py": '"""Tables that were computed before."""\n\nimport json\nfrom pathlib import Path\n\nFOLDER = Path("~/.cache/tidewatch").expanduser()\n\n\ndef load(key):\n    path = FOLDER / f"{key}.json"\n    return json.loads(path.read_text()) if path.exists() else None\n'
        },
        "",
    ),
    (
        "jonas",
        "Write the cache whole or not at all",
        {
            "tidewatch/cache.py": '\n\ndef store(key, table):\n    FOLDER.mkdir(parents=True, exist_ok=True)\n    draft = FOLDER / f"{key}.draft"\n    draft.write_text(json.dumps(table))\n    draft.rename(FOLDER / f"{key}.json")\n'
        },
        "",
    ),
    (
        "priya",
        "Export tables as CSV",
        {
            "tidewatch/export.py": '"""Tables for other programs."""\n\nimport csv\n\n\ndef to_csv(rows, file):\n    writer = csv.writer(file)\n    writer.writerow(["time", "height_m", "kind"])\n    writer.writerows(rows)\n'
        },
        "v0.2.0",
    ),
    (
        "lena",
        "Docs: what the columns mean",
        {"docs/columns.md": "# Columns\n\n`height_m` is metres above chart datum. `kind` is high or low.\n"},
        "",
    ),
    ("oskar", "Harbours of Norway", {"data/harbours.csv": "Bergen,NO,0.9,1.2\nNarvik,NO,1.8,2.9\n"}, ""),
    (
        "oskar",
        "Reject a harbour that is listed twice",
        {
            "tidewatch/harbours.py": '\n\ndef check(rows):\n    names = [row["name"] for row in rows]\n    twice = {name for name in names if names.count(name) > 1}\n    if twice:\n        raise ValueError(f"listed twice: {sorted(twice)}")\n'
        },
        "",
    ),
    (
        "mira",
        "Times in the harbour's own time zone",
        {"tidewatch/tables.py": "\n\ndef local(moment, zone):\n    return moment.astimezone(zone)\n"},
        "",
    ),
    (
        "priya",
        "Test that summer time shifts the table",
        {"tests/test_tables.py": "\n\ndef test_summer_time_is_an_hour_ahead():\n    assert 2 - 1 == 1\n"},
        "v0.3.0",
    ),
    (
        "lena",
        "Docs: datum and mean level",
        {"docs/datum.md": "# Datum\n\nHeights count from the lowest astronomical tide, unless the harbour says otherwise.\n"},
        "",
    ),
    (
        "jonas",
        "Option --days prints several days",
        {"tidewatch/cli.py": '\n\ndef with_days(made):\n    made.add_argument("--days", type=int, default=1)\n    return made\n'},
        "",
    ),
    (
        "jonas",
        "Refuse a negative number of days",
        {"tidewatch/cli.py": '\n\ndef check_days(days):\n    if days < 1:\n        raise SystemExit("--days must be at least 1")\n'},
        "",
    ),
    ("oskar", "Harbours of Chile and New Zealand", {"data/harbours.csv": "Valparaiso,CL,0.9,1.5\nNelson,NZ,2.3,3.9\n"}, ""),
    ("priya", "Round heights to a centimetre", {"tidewatch/export.py": "\n\ndef rounded(height):\n    return round(height, 2)\n"}, ""),
    (
        "mira",
        "Release notes for 0.4",
        {"CHANGES.md": "# Changes\n\n## 0.4.0\n- several days at once\n- harbours of Chile and New Zealand\n"},
        "v0.4.0",
    ),
    (
        "oskar",
        "Neighbouring harbours in one table",
        {"tidewatch/harbours.py": '\n\ndef near(rows, country):\n    return [row for row in rows if row["country"] == country]\n'},
        "",
    ),
    (
        "lena",
        "Docs: a page for skippers",
        {"docs/skippers.md": "# For skippers\n\nA table is no substitute for the pilot book. Mind the wind and the pressure.\n"},
        "",
    ),
    ("priya", "Speed: sample every six minutes, then refine", {"tidewatch/tables.py": "\n\nSTEP_MINUTES = 6\n"}, ""),
    (
        "jonas",
        "Clear the cache with --forget",
        {"tidewatch/cache.py": '\n\ndef forget():\n    for path in FOLDER.glob("*.json"):\n        path.unlink()\n'},
        "",
    ),
    (
        "mira",
        "Range of the day in the heading",
        {"tidewatch/tables.py": "\n\ndef day_range(heights):\n    return max(heights) - min(heights)\n"},
        "v0.5.0",
    ),
    (
        "oskar",
        "Mean level of Cuxhaven corrected",
        {"data/notes.txt": "Cuxhaven: mean level checked against the office's table of 2024.\n"},
        "",
    ),
)

BRANCH = "calendar"
BRANCH_COMMITS: tuple[tuple[str, str, dict[str, str]], ...] = (
    (
        "priya",
        "Calendar files: one event for each high water",
        {
            "tidewatch/calendar.py": '"""High waters as events of a calendar."""\n\n\ndef event(moment, height):\n    return f"SUMMARY:High water {height:.2f} m"\n'
        },
    ),
    (
        "priya",
        "Calendar files: an alarm an hour before",
        {"tidewatch/calendar.py": '\n\ndef alarm(minutes=60):\n    return f"TRIGGER:-PT{minutes}M"\n'},
    ),
    (
        "lena",
        "Docs: subscribe to a harbour",
        {"docs/calendar.md": "# Calendar\n\nSubscribe to the file that `tidewatch --calendar` writes.\n"},
    ),
)
