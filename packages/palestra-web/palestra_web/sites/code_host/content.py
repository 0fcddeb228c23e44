"""What people wrote: tickets, wiki pages and a forum about the tide tables."""

TICKETS: tuple[tuple[str, str, str, str], ...] = (
    # type, subsystem, severity, title
    ("Code_Defect", "tables", "Severe", "Second low water of the day is missing on neap days"),
    ("Code_Defect", "tables", "Important", "Heights jump at midnight when the month changes"),
    ("Code_Defect", "tables", "Minor", "Range in the heading is rounded twice"),
    ("Code_Defect", "tables", "Critical", "Wrong times for half a year south of the equator"),
    ("Code_Defect", "tables", "Important", "Turning points are lost where two samples are equal"),
    ("Feature_Request", "tables", "Minor", "Show the moon's phase beside the date"),
    ("Feature_Request", "tables", "Cosmetic", "Mark spring tides in bold"),
    ("Feature_Request", "tables", "Minor", "Tables in feet for charts in feet"),
    (
        "Code_Defect",
        "harbours",
        "Severe",
        "Brest is read as two harbours when the file ends with a space",
    ),
    ("Code_Defect", "harbours", "Important", "Names with an accent are not found"),
    ("Code_Defect", "harbours", "Minor", "Country codes in lower case are refused"),
    ("Feature_Request", "harbours", "Minor", "Harbours of Iceland"),
    ("Feature_Request", "harbours", "Minor", "Harbours of the Azores"),
    ("Feature_Request", "harbours", "Important", "Find the nearest harbour to a position"),
    ("Incident", "harbours", "Critical", "The list of harbours was empty after the last release"),
    ("Code_Defect", "cli", "Important", "--days 0 prints a traceback"),
    ("Code_Defect", "cli", "Minor", "Exit status is 0 when the harbour is unknown"),
    ("Code_Defect", "cli", "Cosmetic", "Columns do not line up for heights above ten metres"),
    ("Feature_Request", "cli", "Minor", "Complete harbour names in the shell"),
    ("Feature_Request", "cli", "Cosmetic", "Colours for high and low water"),
    ("Feature_Request", "cli", "Minor", "Print tomorrow's table with one letter"),
    ("Build_Problem", "cli", "Severe", "The script is not installed on a fresh machine"),
    ("Code_Defect", "export", "Important", "Semicolons in harbour names break the CSV"),
    ("Code_Defect", "export", "Severe", "The calendar has every event twice after an update"),
    ("Code_Defect", "export", "Minor", "The last line of the CSV has no line end"),
    ("Feature_Request", "export", "Minor", "Export as JSON"),
    ("Feature_Request", "export", "Minor", "A table that fits on one printed page"),
    ("Incident", "export", "Important", "Exports took an hour on the first of March"),
    ("Code_Defect", "cache", "Severe", "Two processes at once leave half a file"),
    ("Code_Defect", "cache", "Important", "The cache grows without limit"),
    ("Code_Defect", "cache", "Minor", "--forget complains when there is no cache"),
    ("Feature_Request", "cache", "Minor", "Say how old a table is"),
    ("Feature_Request", "cache", "Cosmetic", "Shorter file names in the cache"),
    ("Build_Problem", "cache", "Important", "Tests fail where the home folder is read-only"),
    ("Documentation", "docs", "Minor", "Explain the datum with a drawing"),
    ("Documentation", "docs", "Minor", "The page for skippers does not mention air pressure"),
    ("Documentation", "docs", "Cosmetic", "Two spellings of harbour in the readme"),
    ("Documentation", "docs", "Important", "The install page names a package that does not exist"),
    ("Documentation", "docs", "Minor", "List all options in one place"),
    ("Documentation", "docs", "Cosmetic", "Broken link from the columns page to the datum page"),
    ("Code_Defect", "tables", "Minor", "Table of a leap day repeats the day before"),
    ("Code_Defect", "harbours", "Minor", "Empty lines in the list count as harbours"),
    ("Build_Problem", "export", "Minor", "The export tests need a network that they never use"),
    ("Feature_Request", "cli", "Important", "Read the harbour from a settings file"),
    ("Incident", "docs", "Minor", "The documentation was unreachable on Sunday"),
    ("Code_Defect", "cli", "Severe", "Non-English month names are printed as question marks"),
    ("Feature_Request", "tables", "Important", "Take air pressure into account"),
    ("Code_Defect", "export", "Cosmetic", "The title of the page is printed twice"),
)
SEEN = (
    "Seen in version {version} on a fresh install. It happens every time.",
    "Since {version}. Before that it worked for me.",
    "Found while I prepared a table for the sailing club, version {version}.",
    "Version {version}, with the list of harbours as it is shipped.",
)
WISHES = (
    "It would save me a step every morning. I use version {version}.",
    "Several members of our club asked for it. We run {version}.",
    "Not urgent, but it would be welcome in the version after {version}.",
)
REMARKS = (
    "I can reproduce this.",
    "A test that fails is on my machine, a fix will follow.",
    "Could you attach the table that you got?",
    "This is smaller than it looks.",
    "Let us settle it before the next release.",
)

WIKI: tuple[tuple[str, str, str], ...] = (
    # title, author, text
    (
        "Tidewatch",
        "mira",
        "Welcome to **Tidewatch**: tide tables for small harbours, on paper or on a "
        "screen.\n\nThe maintainer is Mira Halvorsen. Start with [Install](/wiki?name=Install) "
        "and the [Style guide](/wiki?name=Style+guide).",
    ),
    (
        "Install",
        "mira",
        (
            "Python 3.9 or newer is needed.\n\n1. Make a virtual environment.\n2. `pip install "
            "tidewatch`\n3. `tidewatch Brest`"
        ),
    ),
    (
        "Style guide",
        "mira",
        (
            "Functions stay below 40 lines. Names are words. Lines have at most 100 characters. "
            "Every fix comes with a test."
        ),
    ),
    (
        "Release checklist",
        "jonas",
        "1. All tests pass.\n2. The change log has a section for the release.\n3. Tag the "
        "check-in.\n4. Upload the package.\n5. Tell the forum.\n\nReleases are made on Tuesdays "
        "by Jonas Petrov.",
    ),
    (
        "Adding a harbour",
        "oskar",
        "A harbour needs a name, a country code, the mean level and the spring range. "
        "Send the source of the figures with the ticket. Oskar Lund looks after the list.",
    ),
    (
        "Constituents",
        "priya",
        (
            "We use 37 constituents. The largest are M2, S2, N2 and K1. M2 has a period of 12.42 "
            "hours."
        ),
    ),
    (
        "Cache",
        "jonas",
        (
            "Tables are kept for 90 days under `~/.cache/tidewatch`. `tidewatch --forget` empties "
            "the folder."
        ),
    ),
    (
        "Export formats",
        "priya",
        (
            "CSV since 0.2.0. Calendar files are made on the branch *calendar*. JSON is wanted "
            "but not begun."
        ),
    ),
    (
        "Testing",
        "priya",
        (
            "Run `python -m pytest`. The whole suite takes about 40 seconds. Reference tables lie "
            "in `tests/reference`."
        ),
    ),
    (
        "Meeting 2025-02-11",
        "lena",
        (
            "Present: Mira, Jonas, Priya, Lena.\n\nDecided: 0.3 will know time zones. The next "
            "meeting is on 11 March."
        ),
    ),
    (
        "Meeting 2025-03-11",
        "lena",
        (
            "Present: Mira, Oskar, Priya.\n\nDecided: the calendar is developed on a branch of "
            "its own. The next meeting is on 8 April."
        ),
    ),
    (
        "Meeting 2025-04-08",
        "lena",
        (
            "Present: all.\n\nDecided: the cache keeps tables for 90 days. Lena writes a page for "
            "skippers."
        ),
    ),
    (
        "Contact",
        "mira",
        "Write to the forum first. Security matters go to security@tidewatch.example.",
    ),
    (
        "Supported systems",
        "oskar",
        "Linux and macOS are tested at each release. Windows is tested by Sam Okafor now and then.",
    ),
    (
        "Glossary",
        "lena",
        "*Spring tide*: the larger range after new and full moon. *Neap tide*: the smaller range "
        "in between. *Slack water*: the short rest when the stream turns.",
    ),
)

FORUM: tuple[tuple[str, str, str, tuple[tuple[str, str], ...]], ...] = (
    # author, title, text, replies
    (
        "mira",
        "Tidewatch 0.5.0 is out",
        "It prints the range of the day in the heading and forgets its cache when asked to.",
        (("sam", "Thank you. It runs well on Windows."), ("lena", "The docs are up to date.")),
    ),
    (
        "sam",
        "Which harbour for Tromsø?",
        "There is none on the list. Which of the Norwegian ones comes closest?",
        (
            ("oskar", "Take Narvik and add about forty minutes."),
            ("sam", "That fits within ten minutes, thank you."),
        ),
    ),
    (
        "lena",
        "A page for skippers",
        "What should stand on it? I have the wind and the pilot book so far.",
        (
            ("priya", "Air pressure: a hectopascal is about a centimetre."),
            ("jonas", "The difference between chart datum and mean level."),
        ),
    ),
    (
        "jonas",
        "Should 0.6 drop Python 3.9?",
        "It would let us use match statements. Who still needs it?",
        (
            ("sam", "Our club's computer has 3.9 until summer."),
            ("mira", "Then we keep it until September."),
        ),
    ),
    (
        "priya",
        "Six minutes or ten?",
        (
            "Sampling every six minutes finds all turns in the reference tables. Ten would be "
            "faster and misses two."
        ),
        (("mira", "Six. Correct comes first."),),
    ),
    (
        "oskar",
        "Sources for Chile",
        "The navy's tables of 2024 are the best that I found. Does anybody know newer ones?",
        (),
    ),
    (
        "sam",
        "Printing on A5",
        "Can a week be printed on one sheet of A5?",
        (("lena", "Not yet. There is a ticket for one printed page."),),
    ),
    (
        "lena",
        "Meeting in May",
        "Shall we meet on 13 May or on 20 May?",
        (("mira", "13 May suits me."), ("oskar", "13 May."), ("priya", "I can do both.")),
    ),
    (
        "sam",
        "How often is the list of harbours checked?",
        "Some mean levels look old.",
        (("oskar", "Once a year, in January."),),
    ),
    (
        "priya",
        "Calendar branch needs testers",
        "Please try it with your own calendar program and say which one it is.",
        (("sam", "Thunderbird shows all events."), ("jonas", "So does the one on my phone.")),
    ),
)
